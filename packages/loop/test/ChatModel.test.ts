import { ChatModel } from "@cogni/sandbox-loop"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import * as ChatBounds from "../src/internal/ChatBounds.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result, Stream } from "effect"
import { TestClock } from "effect/testing"

const limits: ChatBounds.ChatLimits = { answerBytesMax: 10, toolCallsMax: 2, callSecondsMax: 5 }

const heard = (parts: ReadonlyArray<ChatMessage.ChatPart>) =>
  Effect.result(Stream.runCollect(ChatBounds.bounded(Stream.fromIterable(parts), limits)))

const codeOf = <A>(result: Result.Result<A, ChatError.ChatModelFailed>) =>
  Result.isFailure(result) ? result.failure.code : "none"

const call = (id: string): ChatMessage.ChatPart => ({ type: "tool_call", id, name: "t", arguments: "" })
const text = (delta: string): ChatMessage.ChatPart => ({ type: "text_delta", delta })
const stop: ChatMessage.ChatPart = { type: "finish", reason: "stop" }

describe("ChatBounds.bounded", () => {
  it.effect("passes an answer that is exactly at its limits", () =>
    Effect.gen(function* () {
      const parts = [text("éé"), text("abcdef"), stop]
      assert.deepStrictEqual(yield* heard(parts), Result.succeed(parts))
    })
  )

  it.effect("ends an answer over its byte limit, in text or in calls", () =>
    Effect.gen(function* () {
      assert.strictEqual(codeOf(yield* heard([text("éé"), text("abcdefg"), stop])), "answer_too_large")
      const long = { type: "tool_call", id: "1", name: "t", arguments: '{"a":12345}' } as const
      assert.strictEqual(codeOf(yield* heard([long, stop])), "answer_too_large")
    })
  )

  it.effect("ends an answer over its limit on tool calls", () =>
    Effect.gen(function* () {
      assert.strictEqual(codeOf(yield* heard([call("1"), call("2"), stop])), "none")
      assert.strictEqual(codeOf(yield* heard([call("1"), call("2"), call("3"), stop])), "answer_too_large")
    })
  )

  it.effect("requires exactly one finish, as the last part", () =>
    Effect.gen(function* () {
      assert.strictEqual(codeOf(yield* heard([text("a")])), "invalid_answer")
      assert.strictEqual(codeOf(yield* heard([stop, text("a")])), "invalid_answer")
      assert.strictEqual(codeOf(yield* heard([stop, stop])), "invalid_answer")
    })
  )

  it.effect("ends an answer that is not complete in time", () =>
    Effect.gen(function* () {
      const slow = Stream.concat(Stream.make(text("a")), Stream.never)
      const fiber = yield* Effect.forkChild(
        Effect.result(Stream.runCollect(ChatBounds.bounded(slow, limits)))
      )
      yield* TestClock.adjust("4999 millis")
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(codeOf(yield* Fiber.join(fiber)), "timeout")
    })
  )
})

describe("ChatModelFailed", () => {
  it("has a cause and a remedy, whatever the upstream wrote", () => {
    const error = ChatError.failed("rate_limit", `too \u001B[31mfast\r\n${"x".repeat(10_000)}`, {
      status: 429
    })
    assert.include(error.message, "the model failed: too [31mfast xxx")
    assert.include(error.message, "(rate_limit). Wait a moment, then try again")
    assert.isAtMost(error.detail.length, ChatError.detailCharsMax)
  })

  it("is retryable only if waiting helps", () => {
    const may = ChatError.ChatErrorCode.literals.filter((code) => ChatError.failed(code, "x").isRetryable)
    assert.deepStrictEqual(may, ["rate_limit", "unreachable", "unavailable", "timeout"])
  })
})

describe("ChatModel.layerMemory", () => {
  it.effect("answers or fails as its function says, and passes the endpoint", () =>
    Effect.gen(function* () {
      const ask = (model: string) =>
        ChatModel.ChatModel.use((chat) =>
          Effect.result(
            Stream.runCollect(chat.stream({ model, messages: [], tools: [] }, { socketPath: "/s" }))
          )
        )
      assert.deepStrictEqual(yield* ask("says"), Result.succeed([text("/s"), stop]))
      assert.strictEqual(codeOf(yield* ask("fails")), "refused")
      assert.deepStrictEqual(
        yield* ask("calls"),
        Result.succeed([call("1"), { type: "finish", reason: "tool_calls" } as const])
      )
    }).pipe(
      Effect.provide(
        ChatModel.layerMemory(({ model }, at) =>
          model === "fails"
            ? ChatError.failed("refused", "no")
            : model === "calls"
              ? Stream.fromIterable(ChatModel.calls({ id: "1", name: "t", arguments: "" }))
              : ChatModel.says("socketPath" in at ? at.socketPath : at.baseUrl)
        )
      )
    )
  )
})
