import { assert, describe, it } from "@effect/vitest"
import {
  ContainerRuntime,
  LlmProxy,
  MemoryContainerRuntime,
  RunId,
  type SandboxSpec,
  Workspace
} from "@cogni/sandbox-core"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as PoolReport from "@cogni/sandbox-core/PoolReport"
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import { nameInUse, notMounted } from "@cogni/sandbox-core/WaitingSandbox"
import { Clock, Effect, Exit, Fiber, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import * as PoolState from "../src/internal/PoolState.ts"
import * as PoolPolicy from "../src/PoolPolicy.ts"
import * as PoolHarness from "./PoolHarness.ts"
import { hello, leftovers, llm, record, run, runner, settle } from "./Specs.ts"

const spec: SandboxSpec.SandboxSpecInput = { image: "memory/agent", argv: ["agent"] }

const keepsOne = { keep: [{ image: "memory/agent", count: 1 }] }

/** Lets the pool work until it has nothing to do. It begins when no run has started for a moment. */
const settled = Effect.andThen(settle, TestClock.adjust(PoolState.quietMillis)).pipe(Effect.andThen(settle))

/** Sandboxes that take a second to be removed, until the effect has ended. */
const slowly = <A, E, R>(troubles: PoolHarness.Troubles, effect: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    troubles.removeMillis = 1000
    return Effect.ensuring(
      effect,
      Effect.suspend(() => {
        troubles.removeMillis = 0
        // A test that fails must end too.
        return TestClock.adjust("1 minute")
      })
    )
  })

/** Lets the fibers of runs continue, until as many have ended. No time passes. */
const awaited = (fibers: ReadonlyArray<Fiber.Fiber<unknown, unknown>>, count: number) =>
  Effect.gen(function* () {
    const ended = () => fibers.filter((fiber) => fiber.pollUnsafe() !== undefined).length
    for (let turn = 0; turn < 50 && ended() < count; turn++) yield* settle
    yield* settle
    return ended()
  })

/** A run whose sandbox has loaded its code. */
const loads: SandboxSpec.SandboxSpecInput = { ...spec, preload: ["load", "agent"] }

/** How many sandboxes wait, by whether they have loaded code. */
const waitingNow = Effect.map(PoolHarness.report, ({ waiting }) => {
  const loaded = waiting.filter(({ memoryBytes }) => memoryBytes !== undefined).length
  return { plain: waiting.length - loaded, loaded }
})

const pass = (millis: number) => Effect.andThen(TestClock.adjust(millis), settle)

const withPool = (
  options: Parameters<typeof PoolHarness.layer>[0] = {}
): ReturnType<typeof PoolHarness.layer> => PoolHarness.layer({ program: hello, ...options })

describe("SandboxPool", () => {
  it.effect("starts a run cold at first, and the next in a sandbox that waited", () =>
    Effect.gen(function* () {
      const first = yield* run(spec)
      yield* settled
      assert.strictEqual((yield* PoolHarness.report).waiting.length, 1)
      const second = yield* run({ ...spec, llm, inputs: [{ name: "prompt.txt", content: "x" }] })
      assert.deepStrictEqual([first.exitCode, second.exitCode], [0, 0])
      assert.strictEqual(second.output.stdout.text, "hello\n")
      const { hits, misses } = yield* PoolHarness.report
      assert.deepStrictEqual([hits, misses], [1, 1])
      const recorded = [yield* record(first.runId), yield* record(second.runId)]
      assert.deepStrictEqual(
        recorded.map((one) => one?.pool),
        ["miss", "hit"]
      )
      assert.strictEqual(recorded[1]?.outcome.status, "exited")
      yield* settled
      assert.deepStrictEqual(yield* leftovers(second.runId), [])
    }).pipe(Effect.provide(withPool()))
  )

  it.effect("leaves the records of a process without a pool as they are", () =>
    Effect.gen(function* () {
      const { runId } = yield* run(spec)
      const recorded = yield* record(runId)
      assert.strictEqual(recorded?.outcome.status, "exited")
      assert.notProperty(recorded, "pool")
    }).pipe(Effect.provide(runner({ program: hello })))
  )

  it.effect("serves open sandboxes too", () =>
    Effect.gen(function* () {
      yield* settled
      const { SandboxRunner } = yield* Effect.promise(() => import("@cogni/sandbox-core/SandboxRunner"))
      const runner = yield* SandboxRunner
      const exit = yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* runner.open({ image: "memory/agent", env: { A: "1" } })
          return yield* sandbox.exec(["agent"])
        })
      )
      assert.strictEqual(exit.exitCode, 0)
      assert.strictEqual((yield* PoolHarness.report).hits, 1)
    }).pipe(
      Effect.provide(withPool({ pool: { keep: [{ image: "memory/agent", supervised: true, count: 1 }] } }))
    )
  )

  it.effect("keeps no sandbox for a directory that cannot be bound", () => {
    const keep = [{ image: "memory/agent", directory: "/srv/project", count: 1 }]
    const runtime = Layer.effect(
      ContainerRuntime.ContainerRuntime,
      Effect.map(MemoryContainerRuntime.make(), (inner) =>
        ContainerRuntime.ContainerRuntime.of({ ...inner, whyUnbound: Effect.succeed("it is not root") })
      )
    )
    return Effect.gen(function* () {
      const report = Effect.flatMap(SandboxPool.make({ keep }), (pool) =>
        Effect.andThen(settled, pool.report)
      )
      const bindable = Layer.merge(MemoryContainerRuntime.layer(), Workspace.layerMemory())
      assert.lengthOf((yield* Effect.provide(Effect.scoped(report), bindable)).waiting, 1)
      const layers = Layer.merge(runtime, Workspace.layerMemory())
      assert.deepStrictEqual((yield* Effect.provide(Effect.scoped(report), layers)).waiting, [])
      const unexamined = Layer.effect(
        Workspace.Workspace,
        Effect.map(Workspace.makeMemory(), (inner) => ({ ...inner, examine: () => Effect.undefined }))
      )
      const strange = Layer.merge(MemoryContainerRuntime.layer(), unexamined)
      assert.deepStrictEqual((yield* Effect.provide(Effect.scoped(report), strange)).waiting, [])
    })
  })

  it.effect("is not made to keep sandboxes whose limits the runtime refuses", () => {
    const seen = PoolHarness.makeSeen()
    const keep = [{ image: "memory/agent", limits: { processesMax: 63 }, count: 1 }]
    const layers = Layer.merge(
      PoolHarness.runtime({ ...PoolHarness.makeTroubles(), processesMin: 64 }, seen),
      Workspace.layerMemory()
    )
    return Effect.gen(function* () {
      const error = yield* Effect.flip(Effect.scoped(SandboxPool.make({ keep })))
      assert.strictEqual(error._tag, "ContainerFailed")
      assert.include(error.message, "too few processes")
      yield* settle
      assert.strictEqual(seen.asked, 0)
    }).pipe(Effect.provide(layers))
  })

  it.effect("keeps as many as a burst asked for, and forgets it when no run asks any more", () =>
    Effect.gen(function* () {
      yield* Effect.all(
        Array.from({ length: 5 }, () => run(spec)),
        { concurrency: "unbounded" }
      )
      yield* settled
      assert.strictEqual((yield* PoolHarness.report).waiting.length, 5)
      yield* Effect.all(
        Array.from({ length: 5 }, () => run(spec)),
        { concurrency: "unbounded" }
      )
      assert.strictEqual((yield* PoolHarness.report).hits, 5)
      yield* TestClock.adjust("11 minutes")
      yield* settled
      assert.deepStrictEqual((yield* PoolHarness.report).waiting, [])
    }).pipe(Effect.provide(withPool()))
  )

  it.effect("replaces a sandbox that has waited too long, and removes all of them when it closes", () => {
    const seen = PoolHarness.makeSeen()
    return Effect.gen(function* () {
      yield* Effect.gen(function* () {
        yield* settled
        assert.strictEqual(seen.prepared.length, 2)
        yield* TestClock.adjust("31 minutes")
        yield* settled
        assert.strictEqual(seen.prepared.length, 4)
        assert.strictEqual(seen.existing.size, 4, "two sandboxes and their directories")
      }).pipe(Effect.provide(withPool({ seen, pool: { keep: [{ image: "memory/agent", count: 2 }] } })))
      assert.deepStrictEqual([...seen.existing], [])
    })
  })

  it.effect("lets nothing wait while the host is low on memory", () => {
    const low = PoolPolicy.defaults.memoryAvailableBytesMin
    let available = low + PoolPolicy.startBytesMore
    const pool = {
      keep: [{ image: "memory/agent", count: 2 }],
      memoryAvailableBytes: Effect.sync(() => available)
    }
    return Effect.gen(function* () {
      const waitingWith = Effect.fnUntraced(function* (bytes: number) {
        available = bytes
        yield* TestClock.adjust("5 seconds")
        yield* settled
        return (yield* PoolHarness.report).waiting.length
      })
      assert.strictEqual(yield* waitingWith(available), 2)
      assert.strictEqual(yield* waitingWith(low), 2)
      assert.strictEqual(yield* waitingWith(low - 1), 0)
      assert.strictEqual(yield* waitingWith(low + PoolPolicy.startBytesMore - 1), 0, "it would be low again")
      assert.strictEqual(yield* waitingWith(low + PoolPolicy.startBytesMore), 2)
    }).pipe(Effect.provide(withPool({ pool })))
  })

  it.effect("pauses longer after each failed start, says why, and runs start cold meanwhile", () => {
    const troubles = { ...PoolHarness.makeTroubles(), prepareFails: true }
    return Effect.gen(function* () {
      yield* settled
      const failing = yield* PoolHarness.report
      assert.include(failing.failure, "it does not start")
      assert.include(PoolReport.problemOf(failing), "it does not start")
      assert.strictEqual((yield* run(spec)).exitCode, 0)
      troubles.prepareFails = false
      yield* TestClock.adjust("5 seconds")
      yield* settled
      const working = yield* PoolHarness.report
      assert.isUndefined(working.failure)
      assert.strictEqual(working.waiting.length, 1)
    }).pipe(Effect.provide(withPool({ troubles, pool: keepsOne })))
  })

  it.effect("keeps its other sandboxes while those of one image cannot be started", () => {
    const missing = "memory/missing"
    const troubles = { ...PoolHarness.makeTroubles(), missingImage: missing }
    return Effect.gen(function* () {
      yield* run({ ...spec, image: missing })
      yield* settled
      const { failure, waiting } = yield* PoolHarness.report
      assert.include(failure, "its image does not exist")
      assert.deepStrictEqual(
        waiting.map(({ image }) => image),
        ["memory/agent", "memory/agent"]
      )
      yield* run(spec)
      yield* settled
      const later = yield* PoolHarness.report
      assert.deepStrictEqual([later.hits, later.waiting.length], [1, 2])
    }).pipe(Effect.provide(withPool({ troubles, pool: { keep: [{ image: "memory/agent", count: 2 }] } })))
  })

  it.effect("pauses after a defect of a start as after a failure, and says so", () => {
    const [troubles, seen] = [{ ...PoolHarness.makeTroubles(), prepareDies: true }, PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      assert.strictEqual(seen.asked, 1)
      assert.include((yield* PoolHarness.report).failure, "it has a defect")
      troubles.prepareDies = false
      yield* TestClock.adjust("5 seconds")
      yield* settled
      assert.strictEqual((yield* PoolHarness.report).waiting.length, 1)
    }).pipe(Effect.provide(withPool({ troubles, seen, pool: keepsOne })))
  })

  it.effect(
    "pauses longer after each sandbox whose loaded program was of no use to its run, until one is",
    () => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      const startedIn = Effect.fnUntraced(function* (seconds: number) {
        const before = seen.prepared.length
        yield* TestClock.adjust(`${seconds} seconds`)
        yield* settled
        return seen.prepared.length - before
      })
      return Effect.gen(function* () {
        yield* run(loads)
        yield* settled
        assert.deepStrictEqual(
          (yield* PoolHarness.report).waiting.map(({ memoryBytes }) => memoryBytes),
          [troubles.loadedBytes]
        )
        // A reason of this run only, whatever its text says.
        troubles.bindFails = true
        yield* run(loads)
        assert.isUndefined((yield* PoolHarness.report).failure)
        troubles.bindFails = false
        yield* TestClock.adjust(PoolState.loadQuietMillis)
        yield* settled
        troubles.programFails = true
        for (const [seconds, none] of [
          [2, 1],
          [4, 3]
        ] as const) {
          yield* run(loads)
          assert.include((yield* PoolHarness.report).failure, "it was made to go on")
          assert.strictEqual(yield* startedIn(none), 0)
          assert.isAbove(yield* startedIn(seconds + 5 - none), 0)
        }
        troubles.programFails = false
        yield* run(loads)
        const { failure, hits } = yield* PoolHarness.report
        assert.deepStrictEqual([failure, hits], [undefined, 1])
      }).pipe(Effect.provide(withPool({ troubles, seen })))
    }
  )

  it.effect.each([
    ["the pool", Effect.void],
    ["its run", run({ ...spec, preload: ["load", "agent"] })]
  ] as const)(
    "pauses longer after each sandbox with loaded code that ended while it waited, as %s finds it",
    ([, find]) => {
      const seen = PoolHarness.makeSeen()
      const failures = new Set<string>()
      return Effect.gen(function* () {
        yield* run({ ...spec, preload: ["load", "agent"] })
        for (let turn = 0; turn < 12; turn++) {
          yield* settled
          for (const id of seen.prepared) seen.killed.add(id)
          yield* find
          yield* TestClock.adjust("5 seconds")
          failures.add((yield* PoolHarness.report).failure ?? "none")
        }
        assert.isAtMost(seen.prepared.length, 10, "one a pause, not one a look")
        // None when the next one has started.
        assert.match(
          [...failures].toSorted().join(),
          /^a sandbox with its loaded program ended[^,]*(?:,none)?$/u
        )
      }).pipe(Effect.provide(withPool({ seen })))
    }
  )

  it.effect(
    "pauses once if all sandboxes with loaded code ended together, as when the engine restarts",
    () => {
      const seen = PoolHarness.makeSeen()
      const keep = [{ image: "memory/agent", preload: ["load", "agent"] as const, count: 3 }]
      const pool = { keep, limits: { memoryBytesMax: 2 ** 31 } }
      return Effect.gen(function* () {
        yield* settled
        assert.strictEqual(seen.prepared.length, 3)
        for (const id of seen.prepared) seen.killed.add(id)
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual(seen.prepared.length, 3)
        // A pause of 2 seconds, not one of 8, before the next look.
        yield* TestClock.adjust("5 seconds")
        yield* settled
        assert.strictEqual(seen.prepared.length, 6)
      }).pipe(Effect.provide(withPool({ seen, pool })))
    }
  )

  it.effect(
    "loads code under the largest limits of its runs, and starts a run cold that has too little for it",
    () => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      const asked = (limits: { readonly memoryBytesMax?: number; readonly cpusMax?: number }) =>
        run({ ...spec, preload: ["load", "agent"], limits })
      return Effect.gen(function* () {
        yield* asked({ memoryBytesMax: 2 ** 30, cpusMax: 2 })
        yield* settled
        const small = yield* asked({ memoryBytesMax: 2 ** 26, cpusMax: 0.1 })
        assert.strictEqual((yield* record(small.runId))?.pool, "memory")
        yield* asked({ cpusMax: 0.1 })
        yield* settled
        const { failure, hits } = yield* PoolHarness.report
        assert.deepStrictEqual([failure, hits], [undefined, 1])
        for (const { cpusMax, memoryBytesMax } of seen.limits)
          assert.deepStrictEqual([cpusMax, memoryBytesMax], [2, 2 ** 30])
      }).pipe(Effect.provide(withPool({ troubles, seen })))
    }
  )

  it.effect(
    "measures loaded code again after a while, so that one large load keeps no runs cold for long",
    () =>
      Effect.gen(function* () {
        const asked = { ...spec, preload: ["load", "agent"] as const, limits: { memoryBytesMax: 2 ** 26 } }
        yield* run({ ...asked, limits: { memoryBytesMax: 2 ** 30 } })
        yield* settled
        const early = yield* run(asked)
        yield* TestClock.adjust(`${PoolPolicy.defaults.demandSecondsMax} seconds`)
        const late = yield* run(asked)
        assert.strictEqual((yield* record(early.runId))?.pool, "memory")
        assert.strictEqual((yield* record(late.runId))?.pool, "miss")
      }).pipe(Effect.provide(withPool()))
  )

  it.effect("gives up a load that leaves the host too little memory", () => {
    const troubles = { ...PoolHarness.makeTroubles(), prepareMillis: 20_000 }
    let available = 2 ** 40
    const pool = { memoryAvailableBytes: Effect.sync(() => available) }
    return Effect.gen(function* () {
      yield* run({ ...spec, preload: ["load", "agent"] })
      yield* settled
      available = 0
      yield* TestClock.adjust("2 seconds")
      yield* settled
      const { failure, waiting } = yield* PoolHarness.report
      assert.include(failure, "the host is low on memory while its code is loaded")
      assert.strictEqual(waiting.length, 0)
    }).pipe(Effect.provide(withPool({ troubles, pool })))
  })

  it.effect("lets none wait whose loaded code takes more memory than the pool may use, and says so", () => {
    const troubles = { ...PoolHarness.makeTroubles(), loadedBytes: 2 ** 31 }
    return Effect.gen(function* () {
      yield* run({ ...spec, preload: ["load", "agent"] })
      yield* settled
      yield* TestClock.adjust("60 seconds")
      yield* settled
      const { failure, shapes, started, waiting } = yield* PoolHarness.report
      assert.deepStrictEqual([started, waiting.length], [1, 0])
      assert.deepInclude(shapes[0], {
        waiting: 0,
        wanted: 1,
        memoryBytes: 2 ** 31,
        limitedBy: "memoryBytesMax"
      })
      assert.include(
        failure,
        "more than the 1073741824 that the pool may use. Raise PoolLimits.memoryBytesMax"
      )
    }).pipe(Effect.provide(withPool({ troubles })))
  })

  it.effect.each(["bindFails", "postureDiffers"] as const)(
    "starts a run cold if its sandbox cannot be used (%s), and removes that sandbox",
    (trouble) => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      return Effect.gen(function* () {
        yield* settled
        troubles[trouble] = true
        const result = yield* run(spec)
        assert.strictEqual(result.output.stdout.text, "hello\n")
        assert.strictEqual((yield* record(result.runId))?.pool, "unusable")
        const { discarded, hits, misses } = yield* PoolHarness.report
        assert.deepStrictEqual([discarded, hits, misses], [1, 0, 1])
        yield* settle
        assert.isFalse(seen.existing.has(seen.prepared[0]!))
        assert.deepStrictEqual(yield* leftovers(result.runId), [])
      }).pipe(Effect.provide(withPool({ troubles, seen, pool: keepsOne })))
    }
  )

  it.effect("spends no sandbox for a run that its runtime refuses, and learns no limits from it", () => {
    const [troubles, seen] = [{ ...PoolHarness.makeTroubles(), processesMin: 64 }, PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      for (const index of [1, 2]) {
        const runId = RunId.RunId.make(`run-refused00000${index}`)
        const { message } = yield* Effect.flip(run({ ...spec, runId, limits: { processesMax: 32 } }))
        assert.include(message, "it has too few processes")
        const recorded = yield* record(runId)
        assert.strictEqual(recorded?.outcome.status, "failed")
        assert.notProperty(recorded, "pool")
        yield* settled
      }
      const { failure, hits, misses, waiting } = yield* PoolHarness.report
      assert.deepStrictEqual([failure, hits, misses, waiting.length], [undefined, 0, 0, 2])
      yield* run(spec)
      yield* settled
      assert.strictEqual((yield* PoolHarness.report).hits, 1)
      assert.isTrue(seen.limits.every(({ processesMax }) => processesMax > 32))
    }).pipe(
      Effect.provide(withPool({ troubles, seen, pool: { keep: [{ image: "memory/agent", count: 2 }] } }))
    )
  })

  describe("a problem of runs that cannot use their sandboxes", () => {
    const pool = { keep: [{ image: "memory/agent", count: 2 }] }
    const problem = Effect.map(PoolHarness.report, PoolReport.problemOf)
    const problemAfter = Effect.fnUntraced(function* (
      troubles: PoolHarness.Troubles,
      bindFails: PoolHarness.Troubles["bindFails"]
    ) {
      troubles.bindFails = bindFails
      yield* settled
      yield* run(spec)
      return yield* problem
    })

    it.effect("needs two in a row, says what to do, and ends with the next that can", () => {
      const troubles = PoolHarness.makeTroubles()
      return Effect.gen(function* () {
        assert.isUndefined(yield* problemAfter(troubles, true), "one may be an accident")
        assert.strictEqual(
          yield* problemAfter(troubles, true),
          "2 runs in a row got a waiting sandbox of memory/agent, and started cold: " +
            "its program could not be bound. Take it out"
        )
        assert.isUndefined(yield* problemAfter(troubles, false))
        assert.isUndefined(yield* problemAfter(troubles, true))
      }).pipe(Effect.provide(withPool({ troubles, pool })))
    })

    it.effect("ends some time after the last of them", () => {
      const troubles = PoolHarness.makeTroubles()
      const { demandSecondsMax } = PoolPolicy.defaults
      return Effect.gen(function* () {
        yield* problemAfter(troubles, true)
        yield* TestClock.adjust(`${demandSecondsMax} seconds`)
        assert.isUndefined(yield* problemAfter(troubles, true), "the one before was long ago")
        assert.include(yield* problemAfter(troubles, true), "2 runs in a row")
        yield* TestClock.adjust(`${demandSecondsMax - 1} seconds`)
        assert.include(yield* problem, "2 runs in a row")
        yield* TestClock.adjust("1 second")
        assert.isUndefined(yield* problem)
      }).pipe(Effect.provide(withPool({ troubles, pool })))
    })

    it.effect("counts those once that took theirs before the first of them failed", () => {
      const troubles = { ...PoolHarness.makeTroubles(), bindMillis: 1000 }
      return Effect.gen(function* () {
        yield* settled
        troubles.bindFails = true
        const running = [yield* Effect.forkChild(run(spec))]
        yield* pass(500)
        running.push(yield* Effect.forkChild(run(spec)))
        yield* pass(1000)
        yield* Effect.forEach(running, Fiber.join)
        assert.strictEqual((yield* PoolHarness.report).unusable?.runs, 1)
        troubles.bindMillis = 0
        assert.include(yield* problemAfter(troubles, true), "2 runs in a row")
      }).pipe(Effect.provide(withPool({ troubles, pool })))
    })

    it.effect.each([
      ["an engine that does not answer", new RuntimeUnavailable({ detail: "is slow", remedy: "Wait" })],
      ["a run whose ID is in use", nameInUse("cogni-run-1-agent")],
      ["a run whose directory cannot be bound", notMounted("it is not a directory")]
    ] as const)("is not caused by %s", ([, error]) => {
      const troubles = PoolHarness.makeTroubles()
      return Effect.gen(function* () {
        for (let count = 0; count < 3; count++) assert.isUndefined(yield* problemAfter(troubles, error))
        const { misses, unusable } = yield* PoolHarness.report
        assert.deepStrictEqual([misses, unusable], [3, undefined])
      }).pipe(Effect.provide(withPool({ troubles, pool })))
    })
  })

  it.effect("counts no run as served whose program did not start", () =>
    Effect.gen(function* () {
      yield* settled
      const pool = yield* SandboxPool.SandboxPool
      const { capabilities } = yield* LlmProxy.LlmProxy
      const asked = { spec: yield* SpecDecoder.decode(spec), supervised: false, proxy: capabilities }
      // As a run whose proxy fails, or that is cancelled, after it got a sandbox.
      const taken = yield* Effect.scoped(pool.claim(asked))
      assert.strictEqual(taken._tag, "Warm")
      const { hits, misses, discarded } = yield* PoolHarness.report
      assert.deepStrictEqual([hits, misses, discarded], [0, 0, 0])
    }).pipe(Effect.provide(withPool({ pool: keepsOne })))
  )

  it.effect.each(["bindFails", "postureDiffers"] as const)(
    "lets no run wait long for the removal of a sandbox that it cannot use (%s)",
    (trouble) => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      return Effect.gen(function* () {
        yield* settled
        yield* slowly(
          troubles,
          Effect.gen(function* () {
            troubles[trouble] = true
            troubles.removeMillis = 10_000
            const running = yield* Effect.forkChild(run(spec))
            assert.strictEqual(yield* awaited([running], 1), 0)
            yield* TestClock.adjust("2 seconds")
            assert.strictEqual(yield* awaited([running], 1), 1)
            assert.strictEqual((yield* Fiber.join(running)).exitCode, 0)
            assert.isTrue(seen.existing.has(seen.prepared[0]!))
            yield* TestClock.adjust("8 seconds")
            yield* settle
            assert.isFalse(seen.existing.has(seen.prepared[0]!))
          })
        )
      }).pipe(Effect.provide(withPool({ troubles, seen, pool: keepsOne })))
    }
  )

  it.effect("takes the next sandbox if one has ended, and none whose image was replaced", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      seen.killed.add(seen.prepared[0]!)
      yield* run(spec)
      assert.deepStrictEqual(seen.bound, [seen.prepared[1]!])
      yield* settled
      troubles.images += 1
      assert.strictEqual((yield* run(spec)).exitCode, 0)
      assert.strictEqual(seen.bound.length, 1, "the run started cold")
      yield* settled
      yield* run(spec)
      assert.strictEqual(seen.bound.length, 2, "one of the new image was started")
    }).pipe(
      Effect.provide(withPool({ troubles, seen, pool: { keep: [{ image: "memory/agent", count: 2 }] } }))
    )
  })

  it.effect("replaces sandboxes that ended or whose image was replaced, before a run needs them", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      for (const change of [() => seen.killed.add(seen.prepared[0]!), () => (troubles.images += 1)]) {
        const before = [...seen.existing]
        change()
        yield* TestClock.adjust("5 seconds")
        yield* settled
        assert.strictEqual(seen.existing.size, 2)
        assert.notInclude(before, [...seen.existing][0])
      }
      yield* run(spec)
      assert.strictEqual((yield* PoolHarness.report).discarded, 0)
    }).pipe(Effect.provide(withPool({ troubles, seen, pool: keepsOne })))
  })

  it.effect(
    "looks at its sandboxes and replaces old ones as often after the time of day was set back",
    () => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      return Effect.gen(function* () {
        const clock = yield* Clock.Clock
        let hours = 0
        const stepped: Clock.Clock = {
          ...clock,
          currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis - hours * 3_600_000)
        }
        const pooled = Effect.gen(function* () {
          yield* settled
          hours = 5
          seen.killed.add(seen.prepared[0]!)
          yield* TestClock.adjust("5 seconds")
          yield* settled
          assert.strictEqual(seen.prepared.length, 2)
          yield* TestClock.adjust(`${PoolPolicy.defaults.ageSecondsMax} seconds`)
          yield* settled
          assert.strictEqual(seen.prepared.length, 3)
        })
        yield* Effect.provide(pooled, withPool({ troubles, seen, pool: keepsOne })).pipe(
          Effect.provideService(Clock.Clock, stepped)
        )
      })
    }
  )

  it.effect("logs once why its sandboxes must go, and again after one has served a run", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    const warnings: Array<string> = []
    const log = Logger.make(({ logLevel, message }) => void warnings.push(`${logLevel}: ${String(message)}`))
    const replaced = () => {
      troubles.images += 1
      return Effect.andThen(TestClock.adjust("5 seconds"), settled)
    }
    return Effect.gen(function* () {
      yield* settled
      for (const _round of [1, 2, 3]) yield* replaced()
      assert.strictEqual(seen.prepared.length, 8, "both were replaced in each round")
      const why =
        "Warn: a waiting sandbox of memory/agent is replaced, because no run can get it: its image was replaced"
      assert.deepStrictEqual(warnings, [why])
      yield* run(spec)
      yield* settled
      yield* replaced()
      assert.deepStrictEqual(warnings, [why, why])
    }).pipe(
      Effect.provide(
        Layer.provide(
          withPool({ troubles, seen, pool: { keep: [{ image: "memory/agent", count: 2 }] } }),
          Logger.layer([log])
        )
      )
    )
  })

  it.effect("removes nothing that a run got while the pool looked at it", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    const pool = { keep: [{ image: "memory/agent", count: 1 }] }
    return Effect.gen(function* () {
      yield* settled
      const [id] = seen.prepared
      troubles.lookMillis = 1000
      yield* TestClock.adjust("5 seconds")
      troubles.lookMillis = 0
      const running = yield* Effect.forkChild(run(spec))
      yield* settled
      assert.deepStrictEqual(seen.bound, [id])
      seen.killed.add(id!)
      yield* TestClock.adjust("1 second")
      yield* settled
      assert.isTrue(seen.existing.has(id!))
      yield* Fiber.interrupt(running)
      assert.isFalse(seen.existing.has(id!))
    }).pipe(Effect.provide(PoolHarness.layer({ troubles, seen, pool, program: () => Effect.never })))
  })

  it.effect("removes a taken sandbox if its run is interrupted at any moment", () => {
    const seen = PoolHarness.makeSeen()
    return Effect.gen(function* () {
      for (let turns = 0; turns < 60; turns += 3) {
        yield* settled
        const running = yield* Effect.forkChild(run(spec))
        yield* Effect.repeat(Effect.yieldNow, { times: turns })
        yield* Fiber.interrupt(running)
      }
      yield* settled
      assert.strictEqual(seen.existing.size, 2, "the one that waits now, and its directories")
    }).pipe(
      Effect.provide(
        PoolHarness.layer({
          seen,
          program: () => Effect.never,
          pool: { limits: { sandboxesMax: 1 }, keep: [{ image: "memory/agent", count: 1 }] }
        })
      )
    )
  })

  it.effect("starts and removes no sandbox while a run is being started in another", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      yield* run(spec)
      troubles.bindMillis = 200
      const second = yield* Effect.forkChild(run(spec))
      yield* TestClock.adjust(199)
      yield* settle
      assert.strictEqual(seen.asked, 2, "the pool must not start another sandbox now")
      assert.isTrue(seen.existing.has(seen.bound[0]!), "the sandbox of the first run must not be removed now")
      yield* TestClock.adjust(1)
      assert.strictEqual(yield* awaited([second], 1), 1)
      assert.strictEqual(seen.asked, 2, "the program of the second run must have a moment")
      yield* settled
      assert.strictEqual(seen.asked, 4)
      assert.isFalse(seen.existing.has(seen.bound[0]!))
    }).pipe(
      Effect.provide(withPool({ troubles, seen, pool: { keep: [{ image: "memory/agent", count: 2 }] } }))
    )
  })

  it.effect("starts a sandbox after half a second also if runs are always being started", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      troubles.bindMillis = 5000
      yield* Effect.forkChild(run(spec))
      yield* settle
      yield* TestClock.adjust(PoolState.quietWaitMillisMax - 1)
      yield* settle
      assert.strictEqual(seen.asked, 1)
      yield* TestClock.adjust(1)
      yield* settle
      assert.strictEqual(seen.asked, 2)
      yield* TestClock.adjust(5000)
    }).pipe(Effect.provide(withPool({ troubles, seen, pool: keepsOne })))
  })

  it.effect(
    "loads no code in the first moment of a run with loaded code, unless such runs never stop",
    () => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      return Effect.gen(function* () {
        // A cold run: nothing is loaded for it.
        yield* run(loads)
        yield* settled
        assert.strictEqual(seen.prepared.length, 1)
        yield* run(loads)
        yield* settled
        yield* TestClock.adjust(PoolState.loadQuietMillis - 2 * PoolState.quietMillis)
        yield* settle
        assert.strictEqual(seen.prepared.length, 1)
        yield* TestClock.adjust(PoolState.quietMillis)
        yield* settle
        assert.strictEqual(seen.prepared.length, 2)
        troubles.bindMillis = 60_000
        yield* Effect.forkChild(run(loads))
        yield* settle
        yield* TestClock.adjust(PoolState.loadWaitMillisMax)
        yield* settle
        assert.strictEqual(seen.prepared.length, 2)
        // Before and after that, each step waits for a quiet moment too.
        yield* TestClock.adjust(2 * PoolState.quietWaitMillisMax)
        yield* settle
        assert.strictEqual(seen.prepared.length, 3)
        yield* TestClock.adjust(60_000)
      }).pipe(Effect.provide(withPool({ troubles, seen, pool: { limits: { sandboxesMax: 1 } } })))
    }
  )

  it.effect(
    "starts sandboxes without loaded code while a load waits, which does not wait longer for them",
    () => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      return Effect.gen(function* () {
        yield* run(loads)
        yield* settled
        troubles.bindMillis = 60_000
        yield* Effect.forkChild(run(loads))
        yield* settle
        for (const [index, image] of ["memory/1", "memory/2", "memory/3", "memory/4"].entries()) {
          assert.deepStrictEqual(yield* waitingNow, { plain: index, loaded: 0 })
          yield* run({ ...spec, image })
          yield* TestClock.adjust("1 second")
          yield* settle
        }
        assert.deepStrictEqual(yield* waitingNow, { plain: 4, loaded: 1 })
        yield* TestClock.adjust(60_000)
      }).pipe(Effect.provide(withPool({ troubles, seen })))
    }
  )

  it.effect("starts a load that has waited before others that are asked for all the time", () => {
    const troubles = PoolHarness.makeTroubles()
    return Effect.gen(function* () {
      yield* run(loads)
      yield* settled
      yield* pass(10_000)
      yield* run(loads)
      troubles.prepareMillis = 1000
      let seconds = 0
      for (; seconds < 20 && (yield* waitingNow).loaded === 0; seconds++) {
        yield* run({ ...spec, image: "memory/plain" })
        yield* pass(1000)
      }
      assert.isAtMost(seconds, 5, "the wait for its turn, the start of another, and its own")
    }).pipe(Effect.provide(withPool({ troubles })))
  })

  it.effect("lets a load wait again if a run with loaded code has begun since its turn came", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    const keep = [{ image: "memory/agent", preload: ["load", "agent"] as const, count: 2 }]
    return Effect.gen(function* () {
      yield* settled
      yield* pass(10_000)
      assert.deepStrictEqual(yield* waitingNow, { plain: 0, loaded: 2 })
      yield* run(loads)
      yield* pass(1000)
      // While this one starts, the turn of the load comes.
      troubles.prepareMillis = 1000
      yield* run({ ...spec, image: "memory/plain" })
      yield* pass(900)
      assert.deepStrictEqual(yield* waitingNow, { plain: 0, loaded: 1 })
      troubles.prepareMillis = 0
      yield* run(loads)
      const before = seen.asked
      // Until then, 3 s have passed since the load began to wait.
      yield* pass(1000)
      assert.deepStrictEqual([yield* waitingNow, seen.asked], [{ plain: 1, loaded: 0 }, before])
      yield* pass(200)
      assert.deepStrictEqual(yield* waitingNow, { plain: 1, loaded: 1 })
    }).pipe(Effect.provide(withPool({ troubles, seen, pool: { keep } })))
  })

  it.effect("leaves the memory of the host to a load that waits and comes first", () => {
    const MiB = 2 ** 20
    let [available, plain] = [2 ** 40, 0]
    const memoryAvailableBytes = Effect.sync(() => available - plain * 40 * MiB)
    return Effect.gen(function* () {
      yield* run(loads)
      yield* settled
      yield* pass(10_000)
      available = PoolPolicy.defaults.memoryAvailableBytesMin
      yield* run({ ...spec, image: "memory/plain" })
      yield* pass(1)
      // Room for a load of 128 MiB, which needs 176, and for nothing else meanwhile.
      available += 190 * MiB
      yield* run(loads)
      for (let turn = 0; turn < 40; turn++) {
        yield* pass(100)
        plain = (yield* waitingNow).plain
      }
      assert.deepStrictEqual(yield* waitingNow, { plain: 1, loaded: 1 })
    }).pipe(Effect.provide(withPool({ pool: { memoryAvailableBytes } })))
  })

  it.effect("starts the shape that was asked for last before loads that need not wait", () => {
    const troubles = { ...PoolHarness.makeTroubles(), prepareMillis: 1000 }
    const keep = [{ image: "memory/agent", preload: ["load", "agent"] as const, count: 3 }]
    return Effect.gen(function* () {
      yield* settled
      yield* run({ ...spec, image: "memory/plain" })
      yield* pass(1000)
      yield* pass(1000)
      assert.deepStrictEqual(yield* waitingNow, { plain: 1, loaded: 1 })
      yield* pass(2000)
    }).pipe(Effect.provide(withPool({ troubles, pool: { keep, limits: { memoryBytesMax: 2 ** 31 } } })))
  })

  it.effect("pauses after a defect also while a load waits", () => {
    const troubles = PoolHarness.makeTroubles()
    let [isBroken, reads] = [false, 0]
    const memoryAvailableBytes = Effect.suspend(() => {
      reads += 1
      return isBroken ? Effect.die(new Error("it has a defect")) : Effect.succeed(2 ** 40)
    })
    return Effect.gen(function* () {
      yield* run(loads)
      yield* settled
      troubles.bindMillis = 20_000
      yield* Effect.forkChild(run(loads))
      yield* settle
      yield* pass(1000)
      ;[isBroken, reads] = [true, 0]
      for (let seconds = 0; seconds < 20; seconds++) yield* pass(1000)
      assert.isAtMost(reads, 5)
    }).pipe(Effect.provide(withPool({ troubles, pool: { memoryAvailableBytes } })))
  })

  it.effect("lets no run wait for the removal of its empty sandbox, up to 16 at once", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      yield* slowly(
        troubles,
        Effect.gen(function* () {
          const running = yield* Effect.forEach(Array.from({ length: 17 }), () => Effect.forkChild(run(spec)))
          assert.strictEqual(yield* awaited(running, 16), 16)
          assert.strictEqual((yield* PoolHarness.report).removing, 16)
          assert.isTrue(seen.bound.every((id) => seen.existing.has(id)))
          yield* TestClock.adjust("2 seconds")
          assert.strictEqual(yield* awaited(running, 17), 17)
          assert.strictEqual((yield* PoolHarness.report).removing, 0)
          assert.isFalse(seen.bound.some((id) => seen.existing.has(id)))
        })
      )
    }).pipe(
      Effect.provide(
        withPool({
          troubles,
          seen,
          pool: {
            limits: { sandboxesMax: 17, memoryBytesMax: 2 ** 30 },
            keep: [{ image: "memory/agent", count: 17 }]
          }
        })
      )
    )
  })

  it.effect("removes a sandbox before its run returns if its program was interrupted", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      yield* settled
      yield* slowly(
        troubles,
        Effect.gen(function* () {
          const running = yield* Effect.forkChild(run(spec))
          yield* settle
          const stopping = yield* Effect.forkChild(Fiber.interrupt(running))
          assert.strictEqual(yield* awaited([stopping], 1), 0)
          yield* TestClock.adjust("2 seconds")
          assert.strictEqual(yield* awaited([stopping], 1), 1)
          assert.isFalse(seen.existing.has(seen.bound[0]!))
        })
      )
    }).pipe(
      Effect.provide(
        PoolHarness.layer({
          troubles,
          seen,
          program: () => Effect.never,
          pool: keepsOne
        })
      )
    )
  })

  it.effect("ends with all sandboxes removed, also those of runs that have ended", () => {
    const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
    return Effect.gen(function* () {
      const whole = Effect.gen(function* () {
        yield* settled
        troubles.removeMillis = 1000
        yield* run(spec)
        assert.isTrue(seen.existing.has(seen.bound[0]!))
      }).pipe(Effect.provide(withPool({ troubles, seen, pool: keepsOne })))
      const ending = yield* Effect.forkChild(whole)
      assert.strictEqual(yield* awaited([ending], 1), 0)
      yield* TestClock.adjust("3 seconds")
      assert.strictEqual(yield* awaited([ending], 1), 1)
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(ending)))
      assert.deepStrictEqual([...seen.existing], [])
    })
  })

  it.effect("refuses invalid sandboxes to keep, more than it has places for, and invalid limits", () => {
    const image = "memory/agent"
    const refused = [
      { keep: [{ image: "Not an image", count: 1 }] },
      { keep: [{ image, count: 1.5 }] },
      { keep: [{ image, count: -1 }] },
      { keep: [{ image, count: 9 }] },
      { keep: [{ image, count: 3 }], limits: { memoryBytesMax: 2 * PoolPolicy.sandboxBytes } },
      { limits: { sandboxesMax: Number.NaN } },
      { limits: { ageSecondsMax: -1 } }
    ]
    return Effect.forEach(refused, (pool) =>
      Effect.map(Effect.exit(Effect.provide(PoolHarness.report, withPool({ pool }))), (exit) =>
        assert.isTrue(Exit.isFailure(exit), JSON.stringify(pool))
      )
    )
  })

  it.effect("keeps all that it was asked to keep of one shape, and has memory for all of its sandboxes", () =>
    Effect.gen(function* () {
      yield* settled
      assert.strictEqual((yield* PoolHarness.report).waiting.length, 40)
    }).pipe(
      Effect.provide(
        withPool({
          pool: {
            limits: { sandboxesMax: 40 },
            keep: [
              { image: "memory/agent", count: 30 },
              { image: "memory/agent", count: 10, limits: { memoryBytesMax: 2 ** 28 } }
            ]
          }
        })
      )
    )
  )

  it("has a problem if no run ever gets a sandbox", () => {
    const counts = { started: 3, hits: 0, misses: 0, cold: {}, discarded: 0, removing: 0 }
    const report = { ...counts, waiting: [], shapes: [] }
    const { problemOf } = PoolReport
    assert.isUndefined(problemOf(report))
    assert.isUndefined(problemOf({ ...report, misses: 9 }))
    assert.isUndefined(problemOf({ ...report, misses: 90, hits: 10 }))
    assert.include(problemOf({ ...report, misses: 90, hits: 1 }), "only 1 of 91 runs found a waiting sandbox")
    assert.include(problemOf({ ...report, misses: 10 }), "none of 10 runs found a waiting sandbox")
    // One image is missing, while the sandboxes of the others have runs.
    assert.strictEqual(
      problemOf({ ...report, misses: 1, hits: 99, failure: "its image does not exist" }),
      "no sandbox waits now, and the last attempt to start one failed: its image does not exist"
    )
    assert.include(
      problemOf({ ...report, misses: 2, cold: { workspace: 9, files: 3 } }),
      "9 of them because its workspace is a directory"
    )
  })

  it("says which limit of the pool to raise", () => {
    const counts = { waiting: [], started: 3, hits: 0, misses: 90, cold: {}, discarded: 0, removing: 0 }
    const shape = { image: "memory/agent", waiting: 0, wanted: 2, memoryBytes: 2 ** 29 }
    const problemOf = (...limits: ReadonlyArray<PoolPolicy.LimitedBy>) =>
      PoolReport.problemOf({ ...counts, shapes: limits.map((limitedBy) => ({ ...shape, limitedBy })) })
    assert.include(problemOf(), "Raise PoolLimits.sandboxesMax, or keep")
    assert.include(problemOf("sandboxesMax", "memoryBytesMax"), "Raise PoolLimits.memoryBytesMax")
    assert.include(problemOf("memoryAvailableBytesMin"), "Free memory of the host")
  })
})
