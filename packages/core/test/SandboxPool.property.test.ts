/**
 * Runs through a pool while sandboxes are killed, refused and outdated, at any moment.
 *
 * Each run has secrets of its own. Its program reports everything that it sees, and leaves something behind. Whatever
 * happens to the pool, each run must be right, see nothing of another run, and have a container that no other run had.
 * Some runs work in a directory of the host, which must be theirs, and keep what they left.
 */
import { assert, describe, it } from "@effect/vitest"
import { type MemoryContainerRuntime, type SandboxSpec } from "@cogni/sandbox-core"
import { Effect, Fiber, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as PoolHarness from "./PoolHarness.ts"
import { leftovers, llm, record, run, settle } from "./Specs.ts"

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const Event = Schema.Union([
  Schema.Struct({
    _tag: Schema.Literal("Run"),
    /** Seconds that the program takes. */
    seconds: between(0, 4),
    exitCode: between(0, 3),
    /** Sandboxes of the second have loaded their code. */
    shape: between(0, 1),
    withModel: Schema.Boolean,
    /** Number of the directory that it works in. Absent: a temporary workspace. */
    directory: Schema.Union([Schema.Undefined, between(0, 2)]),
    memoryBytesMax: Schema.Literals([2 ** 28, 2 ** 29]),
    /** Interrupted after this many turns of its fiber. */
    interruptedAfter: Schema.Union([Schema.Undefined, between(0, 150)])
  }),
  /** Kills the waiting sandbox of this number. */
  Schema.Struct({ _tag: Schema.Literal("Kill"), which: between(0, 7) }),
  Schema.Struct({ _tag: Schema.Literal("Rebuild") }),
  Schema.Struct({
    _tag: Schema.Literal("Trouble"),
    which: Schema.Literals(["prepareFails", "bindFails", "postureDiffers"]),
    isOn: Schema.Boolean
  }),
  Schema.Struct({ _tag: Schema.Literal("Wait"), seconds: Schema.Literals([0, 1, 6, 700, 2000]) }),
  /** Lets the fibers of the runs take this many turns. */
  Schema.Struct({ _tag: Schema.Literal("Turns"), count: between(1, 60) })
])
type Event = typeof Event.Type

const Schedule = Schema.Array(Event).check(Schema.isMinLength(4), Schema.isMaxLength(24))

const marker = "left-behind.txt"

/** Reports what a run sees, then leaves its secret in the workspace. */
const program: MemoryContainerRuntime.Program = ({ argv, env, files, spec, stdout }) =>
  Effect.gen(function* () {
    const found = yield* files.list("/workspace").pipe(
      Effect.map((entries) => entries.map(({ name }) => name)),
      Effect.orDie
    )
    yield* stdout(JSON.stringify({ argv, env, runId: spec.runId, found, limits: spec.limits }))
    yield* files.write(env["MARKER"] ?? marker, new TextEncoder().encode(env["SECRET"])).pipe(Effect.orDie)
    yield* Effect.sleep(`${Number(argv[1])} seconds`)
    return Number(argv[2])
  })

interface Ended {
  readonly number: number
  readonly event: Extract<Event, { readonly _tag: "Run" }>
  readonly fiber: Fiber.Fiber<Effect.Success<ReturnType<typeof run>>, unknown>
}

const specOf = (number: number, event: Ended["event"]): SandboxSpec.SandboxSpecInput => ({
  image: "memory/agent",
  argv: ["agent", String(event.seconds), String(event.exitCode), `argument-of-${number}`],
  env: {
    SECRET: `secret-of-${number}`,
    ...(event.directory === undefined ? {} : { MARKER: `left-in-${event.directory}` })
  },
  ...(event.directory === undefined
    ? {}
    : { workspace: { type: "directory", path: `/srv/${event.directory}` } as const }),
  inputs: [{ name: "prompt.txt", content: `prompt-of-${number}` }],
  limits: { memoryBytesMax: event.memoryBytesMax },
  ...(event.shape === 1 ? { preload: ["load", "agent"] } : {}),
  ...(event.withModel
    ? { llm: { ...llm, identity: { ...llm.identity, billingAccountId: `account-of-${number}` } } }
    : {})
})

const isolated = Effect.fnUntraced(function* ({ event, fiber, number }: Ended) {
  const exit = yield* Fiber.await(fiber)
  if (exit._tag === "Failure") {
    assert.isDefined(event.interruptedAfter, `run ${number} failed: ${String(exit.cause)}`)
    return
  }
  const { exitCode, output, runId } = exit.value
  assert.strictEqual(exitCode, event.exitCode)
  const seen = JSON.parse(output.stdout.text)
  assert.strictEqual(seen.runId, runId)
  const found = seen.found.filter((name: string) => name !== `left-in-${event.directory}`)
  assert.deepStrictEqual(found, [], "the workspace was another one, or not empty")
  assert.strictEqual(seen.env.SECRET, `secret-of-${number}`)
  assert.strictEqual(seen.argv[3], `argument-of-${number}`)
  assert.strictEqual(seen.limits.memoryBytesMax, event.memoryBytesMax)
  assert.strictEqual(seen.env.COGNI_MODEL, event.withModel ? llm.model : undefined)
  for (const word of output.stdout.text.match(/[a-z]+-of-\d+/gu) ?? [])
    assert.isTrue(word.endsWith(`-of-${number}`), `run ${number} saw ${word}`)
  assert.deepStrictEqual(yield* leftovers(runId), [])
})

/** Counts the runs in directories that had a waiting sandbox. */
const boundRuns = (runs: ReadonlyArray<Ended>) =>
  Effect.map(
    Effect.forEach(runs, ({ event, fiber }) =>
      Effect.flatMap(Fiber.await(fiber), (exit) =>
        exit._tag === "Failure" || event.directory === undefined
          ? Effect.succeed(false)
          : Effect.map(record(exit.value.runId), (recorded) => recorded?.pool === "hit")
      )
    ),
    (all) => all.filter(Boolean).length
  )

const enact = Effect.fnUntraced(function* (
  event: Event,
  number: number,
  { runs, seen, troubles }: { runs: Array<Ended>; seen: PoolHarness.Seen; troubles: PoolHarness.Troubles }
) {
  switch (event._tag) {
    case "Run": {
      const fiber = yield* Effect.forkChild(run(specOf(number, event)))
      runs.push({ number, event, fiber })
      if (event.interruptedAfter === undefined) return
      yield* Effect.repeat(Effect.yieldNow, { times: event.interruptedAfter })
      yield* Fiber.interrupt(fiber)
      return
    }
    case "Kill": {
      const waiting = seen.prepared.filter((id) => !seen.bound.includes(id))
      const killed = waiting[event.which % Math.max(1, waiting.length)]
      if (killed !== undefined) seen.killed.add(killed)
      return
    }
    case "Rebuild":
      troubles.images += 1
      return
    case "Trouble":
      troubles[event.which] = event.isOn
      return
    case "Wait":
      yield* settle
      yield* TestClock.adjust(`${event.seconds} seconds`)
      return
    case "Turns":
      yield* Effect.repeat(Effect.yieldNow, { times: event.count })
  }
})

describe("SandboxPool", () => {
  let hits = 0
  let runsTotal = 0
  let directories = 0

  it.effect.prop(
    "serves every run right, shares no sandbox and leaves nothing, whatever happens to waiting sandboxes",
    [Schedule],
    ([schedule]) => {
      const [troubles, seen] = [PoolHarness.makeTroubles(), PoolHarness.makeSeen()]
      return Effect.gen(function* () {
        yield* Effect.gen(function* () {
          const runs: Array<Ended> = []
          for (const [number, event] of schedule.entries())
            yield* enact(event, number, { runs, seen, troubles })
          for (let turn = 0; turn < 4; turn++) {
            yield* settle
            yield* TestClock.adjust("5 seconds")
          }
          yield* Effect.forEach(runs, isolated, { discard: true })
          directories += yield* boundRuns(runs)
          const report = yield* PoolHarness.report
          hits += report.hits
          runsTotal += runs.length
          assert.strictEqual(report.waiting.length * 2, seen.existing.size, "only waiting sandboxes exist")
        }).pipe(
          Effect.provide(
            PoolHarness.layer({ program, troubles, seen, pool: { limits: { sandboxesMax: 4 } } })
          )
        )
        assert.strictEqual(new Set(seen.bound).size, seen.bound.length, "two runs had one sandbox")
        assert.deepStrictEqual([...seen.existing], [])
        assert.deepStrictEqual(seen.mixed, [], "runs got another loaded program than theirs")
      })
    },
    { arbitrary: { runs: 150, seed: "pool-5" } }
  )

  it("took sandboxes from the pool in a good part of those runs, also for directories", () => {
    assert.isAbove(hits, runsTotal / 20)
    assert.isAbove(directories, 0)
  })
})
