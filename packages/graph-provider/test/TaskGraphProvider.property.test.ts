/** Whatever a model, a sandbox and a reader do: the grammar holds, `final` settles, no resource is left. */
import * as ChatModel from "@cogni/sandbox-loop/ChatModel"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { LlmObservation } from "@cogni/sandbox-core/LlmObservation"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as EventGrammar from "../src/events/EventGrammar.ts"
import { GraphFinal } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Result, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { context, Heard } from "./GraphWorld.ts"
import * as World from "./TaskWorld.ts"
import { call, traffic } from "./Traffic.ts"

const Answer = Schema.Literals(["says", "calls", "calls_nonsense", "fails", "breaks", "hangs", "is_silent"])

const Case = Schema.Struct({
  answers: Schema.NonEmptyArray(Answer).check(Schema.isMaxLength(4)),
  command: Schema.Literals(["exits", "hangs", "talks"]),
  patch: Schema.Literals(["1 3\nYWJj", "nonsense", "", "1 1\n/w=="]),
  /** Time after which the sandbox is ended from outside. */
  endsAfter: Schema.Literals(["never", "never", "1 second", "30 seconds"]),
  reader: Schema.Literals(["drains", "leaves after one", "never reads", "cancels later", "closes", "stalls"])
})
type Case = typeof Case.Type

const partsOf = (answer: typeof Answer.Type, number: number): ChatModel.ScriptedAnswer => {
  const half: ChatMessage.ChatPart = { type: "text_delta", delta: "Half" }
  switch (answer) {
    case "says":
      return ChatModel.says("Done.")
    case "calls":
      return ChatModel.calls(World.callOf("shell__exec", { command: "a" }, `c${number}`))
    case "calls_nonsense":
      return ChatModel.calls({ id: "same", name: "fly \u0000", arguments: "{".repeat(99) })
    case "fails":
      return ChatError.failed("insufficient_quota", "spent")
    case "breaks":
      return Stream.concat(Stream.make(half), Stream.fail(ChatError.failed("unreachable", "gone")))
    case "hangs":
      return Stream.never
    case "is_silent":
      return []
  }
}

const exhaustion = { budget: "calls", limit: 1, used: 1 } as const
const spent: LlmObservation = { _tag: "BudgetExhausted", exhaustion }

const seen = new Set<string>()

const read = Effect.fnUntraced(function* (reader: Case["reader"]) {
  const live = yield* World.run(
    World.asked({ runtimeSecondsMax: 120, budget: { callsMax: 1, onExhausted: "stop" } })
  )
  const events: Array<AiEvent> = []
  const reading = Stream.runForEach(live.events, (event) => Effect.sync(() => void events.push(event)))
  switch (reader) {
    case "drains":
      yield* reading
      break
    case "leaves after one":
      yield* Stream.runHead(live.events)
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
    case "never reads":
    case "closes":
      break
  }
  const isWhole = reader === "drains" || reader === "cancels later"
  const final = reader === "closes" ? undefined : yield* live.final
  return { live, events: isWhole ? events : undefined, final }
})

const live = Effect.fnUntraced(function* ({ endsAfter, reader }: Case) {
  const { ends } = yield* Heard
  const fiber = yield* Effect.forkChild(Effect.scoped(read(reader)))
  for (let step = 0; step < 130; step += 1) yield* TestClock.adjust("5 seconds")
  const { events, final, live: over } = yield* Fiber.join(fiber)
  if (events !== undefined) {
    const end = events.reduce<Result.Result<EventGrammar.Grammar, string>>(
      (state, event) => Result.flatMap(state, (before) => EventGrammar.next(before, event)),
      Result.succeed(EventGrammar.initial)
    )
    assert.strictEqual(Result.isSuccess(end) ? end.success.phase : end.failure, "done")
  }
  const last = yield* over.final
  assert.isTrue(Schema.is(GraphFinal)(last))
  if (final !== undefined) assert.deepStrictEqual(final, last)
  if (endsAfter !== "never" && last.reason === "BudgetExceeded") assert.notProperty(last.patch ?? {}, "text")
  if (last.ok) assert.property(last, "patch")
  seen.add(last.ok ? "ok" : (last.reason ?? ""))
  assert.lengthOf(ends, 1)
  assert.deepStrictEqual(ends[0]?.final, last)
  assert.isAtLeast(ends[0]?.facts.length ?? 0, 1)
  const record = yield* (yield* RunStore).get(context.runId)
  assert.notStrictEqual(record?.outcome.status, "running")
  assert.deepStrictEqual(yield* (yield* ContainerRuntime).leftovers(context.runId), [])
})

describe("a task with any model, sandbox and reader", () => {
  it.effect.prop(
    "keeps the grammar, settles final, calls the observer once, and leaves no resource",
    { given: Case },
    ({ given }) => {
      let asked = 0
      const { layer } = World.world({
        model: () => {
          asked += 1
          return partsOf(given.answers[(asked - 1) % given.answers.length]!, asked)
        },
        limits: { stepsMax: 6, attemptsMax: 2, invalidCallsMax: 3 },
        program: World.program(
          ({ stdout }) =>
            given.command === "hangs"
              ? Effect.never
              : given.command === "talks"
                ? Effect.as(stdout("x".repeat(100_000)), 0)
                : Effect.succeed(1),
          given.patch
        ),
        ...(given.endsAfter === "never"
          ? {}
          : { proxy: World.proxyOf(traffic([call()]), [spent], given.endsAfter) })
      })
      return live(given).pipe(Effect.provide(Layer.fresh(layer)))
    },
    { arbitrary: { runs: 150, seed: 90_210 } }
  )

  it("covers every kind of end", () => {
    for (const reason of [
      "ok",
      "StepsExhausted",
      "InvalidCallsExhausted",
      "TimedOut",
      "BudgetExceeded",
      "Aborted",
      "ModelInsufficientQuota",
      "ModelInvalidAnswer",
      "ModelUnreachable"
    ]) {
      assert.isTrue(seen.has(reason), `${reason} in ${[...seen].join()}`)
    }
  })
})
