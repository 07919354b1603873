/**
 * Whatever an agent and its reader do: the grammar holds, `final` settles, no resource is left.
 *
 * Runs every agent with every reader. A run on the test clock is deterministic, so once is enough.
 */
import { type Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as EventGrammar from "../src/events/EventGrammar.ts"
import { GraphFinal } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Result, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { context, envelope, Heard, request, run, world } from "./GraphWorld.ts"

const texts = ["answer", "half", "noise", "many", "nothing"] as const
const endings = ["exits", "fails", "hangs", "runs out of memory", "dies"] as const
const readers = [
  "drains",
  "leaves after one",
  "never reads",
  "throws",
  "cancels at once",
  "cancels later",
  "stalls",
  "closes"
] as const

/** Behavior of the agent. */
interface Agent {
  readonly output: (typeof texts)[number]
  readonly ends: (typeof endings)[number]
}

/** Behavior of its reader. */
type Reader = (typeof readers)[number]

interface Case {
  readonly agent: Agent
  readonly reader: Reader
}

const outputs = {
  answer: envelope("Lima"),
  half: envelope("Lima").slice(0, 25),
  noise: "\u0000noise\n",
  many: `${envelope("x")}\n`.repeat(50),
  nothing: ""
}

const program =
  ({ ends, output }: Agent): Program =>
  ({ stdout }) =>
    Effect.andThen(
      stdout(outputs[output]),
      ends === "hangs"
        ? Effect.never
        : ends === "dies"
          ? Effect.die(new Error("dead"))
          : Effect.succeed(
              ends === "runs out of memory"
                ? { exitCode: 137, oomKilled: true, processesRefused: false, peak: {} }
                : ends === "fails"
                  ? 1
                  : 0
            )
    )

const seen = new Map<string, number>()

const read = Effect.fnUntraced(function* (reader: Reader) {
  const live = yield* run(request({ runtimeSecondsMax: 60 }))
  const events: Array<AiEvent> = []
  const reading = live.events.pipe(
    Stream.tap((event) => Effect.sync(() => void events.push(event))),
    Stream.runDrain
  )
  switch (reader) {
    case "drains":
      yield* reading
      break
    case "leaves after one":
      yield* Stream.runHead(live.events)
      break
    case "throws":
      yield* Effect.exit(Stream.runForEach(live.events, () => Effect.die(new Error("reader"))))
      break
    case "cancels at once":
      yield* live.cancel
      yield* reading
      break
    case "cancels later": {
      const fiber = yield* Effect.forkChild(reading)
      yield* Effect.timeoutOption(Effect.never, "1 second")
      yield* live.cancel
      yield* Fiber.join(fiber)
      break
    }
    case "stalls":
      yield* Stream.runForEach(live.events, () => Effect.never).pipe(Effect.timeoutOption("5 minutes"))
      break
    case "closes":
    case "never reads":
      break
  }
  const isWhole = reader === "drains" || reader.startsWith("cancels")
  const final = reader === "closes" ? undefined : yield* live.final
  return { live, events: isWhole ? events : undefined, final }
})

const judge = (events: ReadonlyArray<AiEvent>) => {
  const end = events.reduce<Result.Result<EventGrammar.Grammar, string>>(
    (state, event) => Result.flatMap(state, (before) => EventGrammar.next(before, event)),
    Result.succeed(EventGrammar.initial)
  )
  assert.isTrue(Result.isSuccess(end), Result.isFailure(end) ? end.failure : "")
  assert.strictEqual(events.at(-1)?.type, "done")
}

const live = Effect.fnUntraced(function* ({ agent, reader }: Case) {
  const { ends } = yield* Heard
  const fiber = yield* Effect.forkChild(Effect.scoped(read(reader)))
  yield* TestClock.adjust("10 minutes")
  const { events, final, live: over } = yield* Fiber.join(fiber)
  if (events !== undefined) judge(events)

  // The scope is closed, so `final` has settled, whatever the reader did.
  const last = yield* over.final
  assert.isTrue(Schema.is(GraphFinal)(last))
  if (final !== undefined) assert.deepStrictEqual(final, last)
  const ok = agent.output === "answer" && agent.ends === "exits"
  if (reader === "drains" || reader === "never reads") assert.strictEqual(last.ok, ok)
  if (!ok) assert.isFalse(last.ok)
  seen.set(last.ok ? "ok" : (last.reason ?? ""), (seen.get(last.ok ? "ok" : (last.reason ?? "")) ?? 0) + 1)

  // A reader that leaves ends a run that would otherwise continue.
  if (agent.ends === "hangs" && ["leaves after one", "throws", "cancels at once", "closes"].includes(reader))
    assert.strictEqual(last.reason, "Aborted")

  // The observer is called once, with the whole usage.
  assert.strictEqual(ends.length, 1)
  assert.deepStrictEqual(ends[0]?.final, last)
  assert.isAtLeast(ends[0]?.facts.length ?? 0, 1)

  const record = yield* (yield* RunStore).get(context.runId)
  if (record !== undefined) {
    assert.notStrictEqual(record.outcome.status, "running")
    if (record.timings.length > 0) assert.property(record.annotations, "graph")
  }
  assert.deepStrictEqual(yield* (yield* ContainerRuntime).leftovers(context.runId), [])
})

describe("a graph run with any agent and any reader", () => {
  const cases = texts.flatMap((output) =>
    endings.flatMap((ends) => readers.map((reader): Case => ({ agent: { output, ends }, reader })))
  )
  describe("keeps the grammar, settles final, calls the observer once, and leaves no resource", () => {
    for (const one of cases) {
      const { ends, output } = one.agent
      it.effect(`with the output "${output}", an agent that ${ends}, and a reader that ${one.reader}`, () =>
        live(one).pipe(Effect.provide(Layer.fresh(world({ program: program(one.agent) })), { local: true }))
      )
    }
  })

  it("covers every kind of end", () => {
    for (const end of ["ok", "AgentFailed", "TimedOut", "OomKilled", "Aborted"])
      assert.isAtLeast(seen.get(end) ?? 0, 2, JSON.stringify([...seen]))
  })
})
