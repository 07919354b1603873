/**
 * For every model, executor and limit, the loop ends once and within its limits, and always sends the model a valid
 * conversation.
 *
 * A model is a list of good, bad and broken answers, which repeats. Only a limit ends a model that never answers.
 */
import type { SandboxError } from "@cogni/sandbox-core"
import { type RunResult } from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import { ChatModel, HostLoop } from "@cogni/sandbox-loop"
import * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import type * as ChatBounds from "../src/internal/ChatBounds.ts"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as World from "./LoopWorld.ts"

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const Call = Schema.Struct({
  id: Schema.Literals(["", "a", "b", "call_1", "call_2", "sp ace", "x".repeat(200)]),
  name: Schema.Literals(["shell__exec", "file__read", "file__write", "fly", "", "a b\n", "é".repeat(99)]),
  arguments: Schema.Literals([
    '{"command":"a"}',
    '{"path":"a"}',
    '{"path":"a","content":"b"}',
    '{"path":"../../etc/passwd"}',
    '{"command":["a","b"],"timeout_seconds":1}',
    '{"__proto__":{"command":"a"}}',
    '{"command":"a"',
    "[]",
    "null",
    "",
    "[".repeat(10_000)
  ])
})

const Answer = Schema.Struct({
  kind: Schema.Literals(["whole", "whole", "whole", "fails", "breaks", "hangs", "goes_on", "endless"]),
  text: Schema.Literals(["", "hm", "y".repeat(700)]),
  calls: Schema.Array(Call).check(Schema.isMaxLength(5)),
  /** -1 means that the upstream does not count. */
  outputTokens: between(-1, 40),
  seconds: between(0, 20),
  finish: ChatMessage.ChatFinish,
  code: ChatError.ChatErrorCode
})

const Schedule = Schema.Struct({
  answers: Schema.NonEmptyArray(Answer).check(Schema.isMaxLength(6)),
  /** Results of the executor's operations, in order. */
  executor: Schema.NonEmptyArray(
    Schema.Struct({
      kind: Schema.Literals(["exits", "exits", "writes", "refused", "out_of_time", "hangs", "gone"]),
      seconds: between(0, 30)
    })
  ).check(Schema.isMaxLength(5)),
  /** When the sandbox ends by itself; 0 means never. */
  endsAfterSeconds: Schema.Literals([0, 0, 0, 7, 100]),
  limits: Schema.Struct({
    stepsMax: between(1, 12),
    toolCallsMax: between(0, 12),
    invalidCallsMax: between(0, 6),
    runtimeSecondsMax: between(1, 300),
    outputTokensMax: between(1, 200),
    contextBytesMax: Schema.Literals([0, 300, 3000, 1_000_000]),
    toolResultBytesMax: Schema.Literals([0, 30, 500]),
    attemptsMax: between(1, 3),
    retrySecondsMax: between(0, 10)
  })
})
type Schedule = typeof Schedule.Type

const answerLimits: ChatBounds.ChatLimits = { answerBytesMax: 30_000, toolCallsMax: 4, callSecondsMax: 60 }

const partsOf = (answer: typeof Answer.Type): ReadonlyArray<ChatMessage.ChatPart> => [
  { type: "text_delta", delta: answer.text },
  ...answer.calls.map((call): ChatMessage.ChatPart => ({ type: "tool_call", ...call })),
  ...(answer.outputTokens < 0 ? [] : [{ type: "usage", outputTokens: answer.outputTokens } as const])
]

const spoken = (
  answer: typeof Answer.Type
): Stream.Stream<ChatMessage.ChatPart, ChatError.ChatModelFailed> => {
  const finish: ChatMessage.ChatPart = { type: "finish", reason: answer.finish }
  const parts = Stream.fromIterable(partsOf(answer))
  const failure = Stream.fail(ChatError.failed(answer.code, "planted"))
  switch (answer.kind) {
    case "whole":
      return Stream.concat(parts, Stream.make(finish))
    case "fails":
      return failure
    case "breaks":
      return Stream.concat(parts, failure)
    case "hangs":
      return Stream.concat(parts, Stream.never)
    case "goes_on":
      return Stream.make(finish, finish)
    case "endless":
      return Stream.forever(
        Stream.make<[ChatMessage.ChatPart]>({ type: "text_delta", delta: "z".repeat(999) })
      )
  }
}

/** Observations of one run. */
interface Seen {
  readonly requests: Array<ChatModel.ChatRequest>
  underWay: number
  underWayPeak: number
  isGone: boolean
  askedWhenGone: number
}

const modelOf = (schedule: Schedule, seen: Seen) =>
  ChatModel.layerMemory((request) => {
    seen.requests.push(request)
    const answer = schedule.answers[(seen.requests.length - 1) % schedule.answers.length]!
    return Stream.concat(
      Stream.fromEffect(Effect.sleep(Duration.seconds(answer.seconds))).pipe(Stream.drain),
      spoken(answer)
    )
  })

const executorOf = (schedule: Schedule, seen: Seen) => {
  let asked = 0
  const act = Effect.suspend(() => {
    const { kind, seconds } = schedule.executor[asked % schedule.executor.length]!
    asked += 1
    if (seen.isGone) seen.askedWhenGone += 1
    seen.underWay += 1
    seen.underWayPeak = Math.max(seen.underWayPeak, seen.underWay)
    const output = World.output("o".repeat(seconds * 100))
    const done = Effect.suspend((): Effect.Effect<number | RunResult.Output, SandboxError.SandboxError> => {
      switch (kind) {
        case "exits":
          return Effect.succeed(seconds)
        case "writes":
          return Effect.succeed(output)
        case "refused":
          return Effect.fail(World.fileRefused("a"))
        case "out_of_time":
          return Effect.fail(
            World.broken(
              new SandboxReason.CommandTimedOut({ timeoutSecondsMax: seconds, partial: { output, peak: {} } })
            )
          )
        case "hangs":
          return Effect.never
        case "gone":
          seen.isGone = true
          return Effect.fail(World.gone)
      }
    })
    return Effect.andThen(Effect.sleep(Duration.seconds(seconds)), done).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          seen.underWay -= 1
        })
      )
    )
  })
  const executor = World.executorOf(() => act)
  return {
    ...executor,
    files: {
      ...executor.files,
      read: () => Effect.as(act, new TextEncoder().encode("text\n".repeat(300))),
      write: () => Effect.asVoid(act)
    }
  }
}

const bytesOf = (messages: ReadonlyArray<ChatMessage.ChatMessage>) =>
  messages.reduce((sum, message) => {
    const calls = message.role === "assistant" ? (message.toolCalls ?? []) : []
    return (
      sum +
      Buffer.byteLength(message.content) +
      calls.reduce((all, call) => all + Buffer.byteLength(call.id + call.name + call.arguments), 0)
    )
  }, 0)

const live = (schedule: Schedule) =>
  Effect.gen(function* () {
    const seen: Seen = { requests: [], underWay: 0, underWayPeak: 0, isGone: false, askedWhenGone: 0 }
    const { endsAfterSeconds } = schedule
    const loop: HostLoop.LoopOptions = {
      at: { socketPath: "/s" },
      model: "m",
      messages: [
        { role: "system", content: "s" },
        { role: "user", content: "u" }
      ],
      tools: HostLoop.executorTools(executorOf(schedule, seen), { commandSecondsMax: 40 }),
      limits: { ...schedule.limits, answer: answerLimits },
      ...(endsAfterSeconds === 0
        ? {}
        : {
            ended: Effect.andThen(Effect.sleep(Duration.seconds(endsAfterSeconds)), Effect.fail(World.gone))
          })
    }
    const fiber = yield* HostLoop.stream(loop).pipe(
      Stream.runCollect,
      Effect.provide(modelOf(schedule, seen)),
      Effect.forkChild({ startImmediately: true })
    )
    // Longer than any limit. If the loop still ran, joining it would hang.
    for (let second = 0; second < 400; second += 1) yield* TestClock.adjust("1 second")
    const isOver = fiber.pollUnsafe() !== undefined
    assert(isOver, "the loop did not end")
    const events = yield* Fiber.join(fiber)
    const last = events.at(-1)
    assert(last?.type === "ended")
    return { seen, events, end: last.end }
  })

const resultsOf = (messages: ReadonlyArray<ChatMessage.ChatMessage>) =>
  messages.flatMap((message) => (message.role === "tool" ? [Buffer.byteLength(message.content)] : []))

describe("HostLoop", () => {
  const outcomes = new Map<string, number>()

  it.effect.prop(
    "ends once within its limits, and sends only valid conversations",
    { schedule: Schedule },
    ({ schedule }) =>
      Effect.gen(function* () {
        const { limits } = schedule
        const { end, events, seen } = yield* live(schedule)
        outcomes.set(end.outcome, (outcomes.get(end.outcome) ?? 0) + 1)
        assert.deepStrictEqual(World.misorderOf(events), [])
        for (const { messages } of seen.requests) {
          assert.deepStrictEqual(World.problemsOf(messages), [])
          assert.isAtMost(bytesOf(messages), limits.contextBytesMax)
          assert.isTrue(resultsOf(messages).every((bytes) => bytes <= limits.toolResultBytesMax))
        }
        assert.isAtMost(end.steps, limits.stepsMax)
        assert.isAtMost(seen.requests.length, limits.stepsMax * limits.attemptsMax)
        assert.isAtMost(end.toolCalls, limits.toolCallsMax)
        assert.isAtMost(end.durationMs, limits.runtimeSecondsMax * 1000)
        assert.isAtMost(Buffer.byteLength(end.text), answerLimits.answerBytesMax)
        assert.strictEqual(events.filter(({ type }) => type === "tool_call_started").length, end.toolCalls)
        // Calls run one at a time, none is left running, and none uses a sandbox that has ended.
        assert.deepInclude(seen, { underWay: 0, askedWhenGone: 0 })
        assert.isAtMost(seen.underWayPeak, 1)
        assert.strictEqual("error" in end, end.outcome === "model_failed" || end.outcome === "sandbox_failed")
        assert.notStrictEqual(end.message, "")
        if (end.outcome === "finished") {
          const said = events.flatMap((event) => (event.type === "text_delta" ? [event.delta] : [])).join("")
          assert.isTrue(said.endsWith(end.text))
        }
      }),
    { arbitrary: { runs: 250, seed: 4_711 } }
  )

  it("has reached every outcome", () => {
    assert.sameMembers(
      [...outcomes.keys()],
      [
        "finished",
        "steps_exhausted",
        "tool_calls_exhausted",
        "invalid_calls_exhausted",
        "output_tokens_exhausted",
        "context_exhausted",
        "timeout",
        "model_failed",
        "sandbox_failed"
      ]
    )
  })
})
