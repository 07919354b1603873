import { assert, describe, it } from "@effect/vitest"
import * as AgentWatch from "../src/internal/AgentWatch.ts"
import type { SandboxError } from "@cogni/sandbox-core"
import { LlmProxy, MemoryContainerRuntime, type SandboxSpec, Workspace } from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import {
  ContainerRuntimeFaults,
  LlmProxyFaults,
  WorkspaceFaults
} from "../../../test/harness/faults/Fault.ts"
import type { Limits } from "@cogni/sandbox-core/SpecFields"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { Clock, Deferred, Duration, Effect, Fiber, Layer, Schedule } from "effect"
import { TestClock } from "effect/testing"
import { leftovers, llm, run, runner, settle, spec } from "./Specs.ts"

const MiB = 1024 ** 2
const limited = (limits: NonNullable<SandboxSpec.SandboxSpecInput["limits"]>) => ({ ...spec, limits })

/** Returns the error of a run, and the second at which it came. */
const fails = Effect.fnUntraced(function* (input: SandboxSpec.SandboxSpecInput, seconds = 0) {
  const fiber = yield* Effect.forkChild(
    Effect.all([Effect.flip(run(input)), Effect.suspend(() => Clock.currentTimeMillis)])
  )
  yield* settle
  for (let second = 0; second < seconds; second++) yield* TestClock.adjust("1 second")
  const [error, atMillis] = yield* Fiber.join(fiber)
  assert.deepStrictEqual(yield* leftovers(), [])
  return { error, reason: error.reason, atSeconds: atMillis / 1000 }
})

const exit = { exitCode: 0, oomKilled: false, processesRefused: false, peak: {} }

/** A workspace that grows. */
const growing = (bytesPerSecond: number) =>
  Layer.effect(
    Workspace.Workspace,
    Effect.map(Workspace.makeMemory(), (inner) => ({
      acquire: (request) =>
        Effect.map(inner.acquire(request), (acquired) => ({
          ...acquired,
          countedBytes: Effect.map(Clock.currentTimeMillis, (now) => ({
            bytes: (now / 1000) * bytesPerSecond,
            isCertain: true
          }))
        }))
    }))
  )

/** A workspace whose disk does not change, and how often it was counted. */
const unchanged = (counted: { times: number; changed: boolean }) =>
  Layer.effect(
    Workspace.Workspace,
    Effect.map(Workspace.makeMemory(), (inner) => ({
      acquire: (request) =>
        Effect.map(inner.acquire(request), (acquired) => ({
          ...acquired,
          countedBytes: Effect.sync(() => ({ bytes: counted.times++, isCertain: true })),
          changed: Effect.repeat(
            Effect.sync(() => counted.changed),
            { until: (changed) => changed, schedule: Schedule.spaced("1 second") }
          )
        }))
    }))
  )

describe("AgentWatch", () => {
  describe("time", () => {
    it.effect("stops an agent that handles SIGTERM, and keeps its last output", () =>
      Effect.gen(function* () {
        const { atSeconds, reason } = yield* fails(
          limited({ runtimeSecondsMax: 10, stopGraceSecondsMax: 5 }),
          20
        )
        if (reason._tag !== "TimedOut") return assert.fail(reason.message)
        assert.strictEqual(atSeconds, 10)
        assert.strictEqual(reason.partial.exitCode, 3)
        assert.strictEqual(reason.partial.output.stdout.text, "working\nbye\n")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout, terminated }) =>
              stdout("working\n").pipe(
                Effect.andThen(terminated),
                Effect.andThen(stdout("bye\n")),
                Effect.as(3)
              )
          })
        )
      )
    )

    it.effect("kills an agent that ignores SIGTERM when the grace is over", () =>
      Effect.gen(function* () {
        const { atSeconds, error, reason } = yield* fails(
          limited({ runtimeSecondsMax: 10, stopGraceSecondsMax: 5 }),
          20
        )
        if (reason._tag !== "TimedOut") return assert.fail(reason.message)
        assert.strictEqual(atSeconds, 15)
        assert.strictEqual(reason.partial.exitCode, 137)
        assert.strictEqual(reason.partial.output.stdout.text, "working\n")
        assert.strictEqual(error.code, "timeout")
      }).pipe(
        Effect.provide(runner({ program: ({ stdout }) => Effect.andThen(stdout("working\n"), Effect.never) }))
      )
    )

    it.effect("accepts an agent that ends just before the limit", () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(run(limited({ runtimeSecondsMax: 10 })))
        yield* settle
        yield* TestClock.adjust("9999 millis")
        assert.strictEqual((yield* Fiber.join(fiber)).exitCode, 0)
      }).pipe(Effect.provide(runner({ program: () => Effect.as(Effect.sleep("9999 millis"), 0) })))
    )

    it.effect("reports the limit if the container ended itself at its deadline, whatever its exit code", () =>
      Effect.gen(function* () {
        const { reason } = yield* fails(limited({ runtimeSecondsMax: 10 }))
        if (reason._tag !== "TimedOut") return assert.fail(reason.message)
        assert.strictEqual(reason.runtimeSecondsMax, 10)
        assert.strictEqual(reason.partial.output.stdout.text, "working\n")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) => Effect.as(stdout("working\n"), { ...exit, deadlinePassed: true })
          })
        )
      )
    )

    it.effect("reports the limit even if the engine never reports the exit", () =>
      Effect.gen(function* () {
        const { reason } = yield* fails(limited({ runtimeSecondsMax: 10, stopGraceSecondsMax: 5 }), 60)
        if (reason._tag !== "TimedOut") return assert.fail(reason.message)
        assert.isUndefined(reason.partial.exitCode)
      }).pipe(
        Effect.provide(
          runner({
            runtime: ContainerRuntimeFaults.layer(
              MemoryContainerRuntime.layer({ program: () => Effect.never }),
              [ContainerRuntimeFaults.hang("Container.exit", 1)]
            )
          })
        )
      )
    )

    it.effect("bounds a stop that hangs, and reports the limit", () =>
      Effect.gen(function* () {
        const { atSeconds, reason } = yield* fails(
          limited({ runtimeSecondsMax: 10, stopGraceSecondsMax: 5 }),
          120
        )
        assert.strictEqual(reason._tag, "TimedOut")
        assert.isAtMost(atSeconds, 10 + 5 + 10)
      }).pipe(
        Effect.provide(
          runner({
            runtime: ContainerRuntimeFaults.layer(
              MemoryContainerRuntime.layer({ program: () => Effect.never }),
              [ContainerRuntimeFaults.hang("Container.stop", 1)]
            )
          })
        )
      )
    )

    it.effect("requests the exit only once", () =>
      Effect.gen(function* () {
        assert.strictEqual((yield* run()).exitCode, 6)
      }).pipe(
        Effect.provide(
          runner({
            runtime: ContainerRuntimeFaults.layer(
              MemoryContainerRuntime.layer({ program: () => Effect.succeed(6) }),
              [ContainerRuntimeFaults.hang("Container.exit", 2)]
            )
          })
        )
      )
    )
  })

  describe("kernel", () => {
    const kernel: ReadonlyArray<
      readonly [what: string, exit: typeof exit, tag: SandboxError.Reason["_tag"] | undefined]
    > = [
      ["an agent that the kernel killed", { ...exit, exitCode: 137, oomKilled: true }, "OomKilled"],
      ["an agent whose child the kernel killed", { ...exit, oomKilled: true }, "OomKilled"],
      ["an agent that was refused a process", { ...exit, processesRefused: true }, "PidsExhausted"],
      ["an agent that broke both limits", { ...exit, oomKilled: true, processesRefused: true }, "OomKilled"],
      ["an agent that killed itself", { ...exit, exitCode: 137 }, undefined]
    ]
    it.effect.each(kernel)("classifies %s", ([, exit, tag]) =>
      Effect.gen(function* () {
        const ended = yield* Effect.result(run(limited({ memoryBytesMax: 64 * MiB, processesMax: 8 })))
        if (ended._tag === "Success") {
          assert.isUndefined(tag)
          return assert.strictEqual(ended.success.exitCode, exit.exitCode)
        }
        assert.strictEqual(ended.failure.reason._tag, tag)
        assert.strictEqual(ended.failure.partial?.exitCode, exit.exitCode)
        assert.strictEqual(ended.failure.partial?.output.stdout.text, "so far")
        assert.strictEqual(ended.failure.partial?.peak.memoryBytes, 60 * MiB)
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) => Effect.as(stdout("so far"), { ...exit, peak: { memoryBytes: 60 * MiB } })
          })
        )
      )
    )

    it.effect("prefers a limit of the kernel to the time limit, because it came first", () =>
      Effect.gen(function* () {
        const { reason } = yield* fails(limited({ runtimeSecondsMax: 10 }), 20)
        assert.strictEqual(reason._tag, "OomKilled")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ terminated }) => Effect.as(terminated, { ...exit, exitCode: 137, oomKilled: true })
          })
        )
      )
    )
  })

  describe("output", () => {
    const flood = "x".repeat(64 * 1024)
    it.effect("stops a flood of output, counts it, and keeps a part", () =>
      Effect.gen(function* () {
        const { atSeconds, reason } = yield* fails(
          limited({ outputBytesMax: MiB, outputRetainedBytesMax: 1000, stopGraceSecondsMax: 5 })
        )
        if (reason._tag !== "OutputLimitExceeded") return assert.fail(reason.message)
        assert.strictEqual(atSeconds, 0)
        assert.strictEqual(reason.partial.output.stdout.text, "x".repeat(1000))
        assert.isTrue(reason.partial.output.stdout.truncated)
        assert.isAbove(reason.partial.output.stdout.bytes, MiB)
        assert.strictEqual(reason.partial.exitCode, 2)
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout, terminated }) =>
              Effect.raceFirst(Effect.forever(stdout(flood)), terminated).pipe(Effect.as(2))
          })
        )
      )
    )

    it.effect("kills a flooding agent that ignores SIGTERM, and drains its output", () =>
      Effect.gen(function* () {
        const { reason } = yield* fails(limited({ outputBytesMax: MiB, stopGraceSecondsMax: 2 }), 5)
        assert.strictEqual(reason._tag, "OutputLimitExceeded")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) => Effect.forever(Effect.andThen(stdout(flood), Effect.sleep("50 millis")))
          })
        )
      )
    )

    it.effect("applies the limit to both streams together, and allows its last byte", () =>
      Effect.gen(function* () {
        const { output } = yield* run(limited({ outputBytesMax: 6 }))
        assert.strictEqual(output.stdout.bytes + output.stderr.bytes, 6)
        const error = yield* Effect.flip(
          run({ ...limited({ outputBytesMax: 5 }), runId: "run-test00000002" as never })
        )
        assert.strictEqual(error.reason._tag, "OutputLimitExceeded")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stderr, stdout }) => stdout("abc").pipe(Effect.andThen(stderr("def")), Effect.as(0))
          })
        )
      )
    )
  })

  describe("disk", () => {
    it.effect("stops a run that fills its workspace at the next measurement", () =>
      Effect.gen(function* () {
        const { atSeconds, reason } = yield* fails(
          limited({ workspaceBytesMax: 3 * MiB, stopGraceSecondsMax: 5 }),
          20
        )
        if (reason._tag !== "DiskFull") return assert.fail(reason.message)
        assert.strictEqual(atSeconds, 4)
        assert.strictEqual(reason.partial.peak.workspaceBytes, 4 * MiB)
        assert.strictEqual(reason.partial.exitCode, 143)
      }).pipe(
        Effect.provide(
          runner({ workspace: growing(MiB), program: ({ terminated }) => Effect.as(terminated, 143) })
        )
      )
    )

    it.effect("measures a run that is shorter than the interval after its end", () =>
      Effect.gen(function* () {
        const { reason } = yield* fails(limited({ workspaceBytesMax: MiB }), 2)
        if (reason._tag !== "DiskFull") return assert.fail(reason.message)
        assert.strictEqual(reason.partial.exitCode, 0)
      }).pipe(
        Effect.provide(
          runner({ workspace: growing(3 * MiB), program: () => Effect.as(Effect.sleep("500 millis"), 0) })
        )
      )
    )

    it.effect(
      "counts a workspace again when its disk has changed, and at the latest after ten seconds",
      () => {
        const counted = { times: 0, changed: false }
        return Effect.gen(function* () {
          const fiber = yield* Effect.forkChild(run(limited({ runtimeSecondsMax: 60 })))
          yield* settle
          const timesAfter = Effect.fnUntraced(function* (seconds: number) {
            for (let second = 0; second < seconds; second++) yield* TestClock.adjust("1 second")
            return counted.times
          })
          assert.strictEqual(yield* timesAfter(9), 0)
          assert.strictEqual(yield* timesAfter(1), 1)
          counted.changed = true
          assert.strictEqual(yield* timesAfter(3), 4)
          counted.changed = false
          assert.strictEqual(yield* timesAfter(9), 4)
          yield* TestClock.adjust("7 seconds")
          yield* Fiber.join(fiber)
          assert.strictEqual(counted.times, 6, "also after its end, whatever its disk says")
        }).pipe(
          Effect.provide(
            runner({ workspace: unchanged(counted), program: () => Effect.as(Effect.sleep("29 seconds"), 0) })
          )
        )
      }
    )

    const watchedFor = Effect.fnUntraced(function* (seconds: number) {
      for (let second = 0; second < seconds; second++) yield* TestClock.adjust("1 second")
    })

    it.effect("does not count a workspace while no process of the sandbox runs, from the third time on", () =>
      Effect.gen(function* () {
        const sandbox = { micros: 100, countedAt: Array<number>(), bytes: 0 }
        const limits = { workspaceBytesMax: MiB, runtimeSecondsMax: 3600 } as Limits
        const watched = {
          changed: Effect.never,
          processorMicros: Effect.sync(() => sandbox.micros),
          countedBytes: Effect.map(Clock.currentTimeMillis, (now) => {
            sandbox.countedAt.push(now / 1000)
            return sandbox.bytes
          })
        }
        const fiber = yield* Effect.forkChild(AgentWatch.firstBroken(limits, watched, Effect.never))
        yield* watchedFor(300)
        assert.deepStrictEqual(sandbox.countedAt, [10, 20], "the second finds what the kernel wrote late")
        sandbox.micros += 1
        sandbox.bytes = 2 * MiB
        yield* watchedFor(10)
        assert.isDefined(fiber.pollUnsafe())
        const broken = (yield* Fiber.join(fiber))({ output: emptyOutput, peak: {} })
        assert.strictEqual(broken._tag, "DiskFull")
        assert.isAtMost(sandbox.countedAt.at(-1)!, 310)
      })
    )

    it.effect("counts a workspace every ten seconds if it is unknown whether its sandbox runs", () =>
      Effect.gen(function* () {
        let times = 0
        const watched = {
          changed: Effect.never,
          processorMicros: Effect.undefined,
          countedBytes: Effect.sync(() => times++)
        }
        const limits = { workspaceBytesMax: MiB, runtimeSecondsMax: 3600 } as Limits
        const fiber = yield* Effect.forkChild(AgentWatch.firstBroken(limits, watched, Effect.never))
        yield* watchedFor(100)
        assert.strictEqual(times, 10)
        yield* Fiber.interrupt(fiber)
      })
    )

    it.effect("counts a workspace as soon as its disk changes, after hours without processor time", () =>
      Effect.gen(function* () {
        const changed = yield* Deferred.make<void>()
        const watched = {
          changed: Deferred.await(changed),
          processorMicros: Effect.succeed(100),
          countedBytes: Effect.map(Clock.currentTimeMillis, (now) => (now >= 7_200_000 ? 2 * MiB : 0))
        }
        const limits = { workspaceBytesMax: MiB, runtimeSecondsMax: 24 * 3600 } as Limits
        const fiber = yield* Effect.forkChild(AgentWatch.firstBroken(limits, watched, Effect.never))
        yield* TestClock.adjust("2 hours")
        yield* Deferred.succeed(changed, undefined)
        yield* settle
        assert.isDefined(fiber.pollUnsafe())
        assert.strictEqual((yield* Fiber.join(fiber))({ output: emptyOutput, peak: {} })._tag, "DiskFull")
      })
    )

    it.effect("counts uncertain bytes again while the container is paused", () =>
      Effect.gen(function* () {
        const done: Array<string> = []
        const say = (what: string) => Effect.sync(() => done.push(what))
        const countOf = (isCertain: boolean) =>
          AgentWatch.counted(
            {
              whilePaused: (effect) => Effect.andThen(say("paused"), Effect.ensuring(effect, say("goes on")))
            },
            {
              countedBytes: Effect.as(say("counted"), { bytes: 1, isCertain }),
              countedBytesAtRest: Effect.as(say("counted at rest"), 2)
            }
          )
        assert.strictEqual(yield* countOf(true), 1)
        assert.strictEqual(yield* countOf(false), 2)
        assert.deepStrictEqual(done, ["counted", "counted", "paused", "counted at rest", "goes on"])
      })
    )

    it.effect("ends a run whose workspace can no longer be measured", () =>
      Effect.gen(function* () {
        const { atSeconds, reason } = yield* fails(spec, 20)
        assert.strictEqual(reason._tag, "WorkspaceFailed")
        assert.strictEqual(atSeconds, 2)
      }).pipe(
        Effect.provide(
          runner({
            program: () => Effect.never,
            workspace: WorkspaceFaults.layer(Workspace.layerMemory(), [
              WorkspaceFaults.failNth(
                "Workspace.countedBytes",
                3,
                new SandboxReason.WorkspaceFailed({ path: "/w", detail: "is gone", remedy: "Look for it" })
              )
            ])
          })
        )
      )
    )
  })

  describe("proxy", () => {
    it.effect("ends a run at once when its proxy dies", () =>
      Effect.gen(function* () {
        const { atSeconds, error, reason } = yield* fails({ ...spec, llm }, 60)
        assert.strictEqual(reason._tag, "ProxyFailed")
        assert.strictEqual(atSeconds, 7)
        assert.isTrue(error.isRetryable)
        assert.strictEqual(error.partial?.output.stdout.text, "half an answer")
        assert.strictEqual(error.llm?.proxy, "memory", "the calls are reported on this path too")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) => Effect.andThen(stdout("half an answer"), Effect.never),
            proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [
              LlmProxyFaults.slow("LlmProxy.failure", Duration.seconds(7)),
              LlmProxyFaults.failNth(
                "LlmProxy.failure",
                1,
                new SandboxReason.ProxyFailed({ detail: "it ended", remedy: "Look at its log" })
              )
            ])
          })
        )
      )
    )
  })
})
