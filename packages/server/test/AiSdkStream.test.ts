/** Tests the stream for the AI SDK with the AI SDK itself. */
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as AiSdkStream from "../src/internal/AiSdkStream.ts"
import { assert, describe, it } from "@effect/vitest"
import { DefaultChatTransport, readUIMessageStream, type UIMessage } from "ai"
import { Effect } from "effect"
import { answering, question, serve } from "./ServerWorld.ts"

/** Reads a stream as the SDK does in a browser, and returns the last message. */
const read = async (transport: DefaultChatTransport<UIMessage>): Promise<UIMessage | undefined> => {
  const stream = await transport.sendMessages({
    trigger: "submit-message",
    chatId: "chat",
    messageId: undefined,
    messages: [{ id: "1", role: "user", parts: [{ type: "text", text: "Where?" }] }],
    abortSignal: undefined
  })
  let last: UIMessage | undefined
  for await (const message of readUIMessageStream({ stream, terminateOnError: true })) last = message
  return last
}

const ofEvents = (events: ReadonlyArray<AiEvent>) => {
  const encoder = AiSdkStream.make("run-000000000001")
  const body = `${encoder.begin}${events.map((event) => encoder.encode([event])).join("")}`
  const respond = () =>
    Promise.resolve(
      new Response(body, { headers: { ...encoder.headers, "content-type": "text/event-stream" } })
    )
  return read(new DefaultChatTransport({ api: "http://localhost/", fetch: respond }))
}

const fact = {
  runId: "run-000000000001",
  attempt: 0,
  source: "memory",
  executorType: "sandbox",
  billingAccountId: "acct",
  virtualKeyId: "vk",
  graphId: "sandbox:agent"
} as never

describe("AiSdkStream", () => {
  it.effect("encodes text, tools, more text, and usage", () =>
    Effect.gen(function* () {
      const message = yield* Effect.promise(() =>
        ofEvents([
          { type: "status", phase: "agent" },
          { type: "text_delta", delta: "Let me " },
          { type: "text_delta", delta: "look." },
          { type: "tool_call_start", toolCallId: "a", toolName: "bash", args: { command: "ls" } },
          { type: "tool_call_result", toolCallId: "a", result: "README.md" },
          { type: "tool_call_start", toolCallId: "b", toolName: "bash", args: { command: "false" } },
          { type: "tool_call_result", toolCallId: "b", result: { code: 1 }, isError: true },
          { type: "text_delta", delta: "One file." },
          { type: "assistant_final", content: "Let me look.One file." },
          { type: "usage_report", fact },
          { type: "done" }
        ])
      )
      assert.strictEqual(message?.id, "run-000000000001")
      assert.strictEqual(message?.role, "assistant")
      assert.containSubset(message?.parts, [
        { type: "text", text: "Let me look.", state: "done" },
        {
          type: "dynamic-tool",
          toolName: "bash",
          state: "output-available",
          input: { command: "ls" },
          output: "README.md"
        },
        { type: "dynamic-tool", toolCallId: "b", state: "output-error", errorText: '{"code":1}' },
        { type: "text", text: "One file.", state: "done" },
        { type: "data-usage", data: fact }
      ])
      assert.lengthOf(message!.parts, 5)
    })
  )

  it.effect("encodes an answer without deltas as text", () =>
    Effect.gen(function* () {
      const message = yield* Effect.promise(() =>
        ofEvents([
          { type: "assistant_final", content: "Lima" },
          { type: "usage_report", fact },
          { type: "done" }
        ])
      )
      assert.containSubset(message?.parts[0], { type: "text", text: "Lima", state: "done" })
    })
  )

  it.effect("encodes a failure as an error of the stream", () =>
    Effect.gen(function* () {
      const problem = yield* Effect.flip(
        Effect.tryPromise(() =>
          ofEvents([
            { type: "usage_report", fact },
            {
              type: "error",
              error: "timeout",
              reason: "TimedOut",
              message: "it took longer than 10 seconds"
            },
            { type: "done" }
          ])
        )
      )
      assert.include(
        String((problem as { readonly cause?: unknown }).cause),
        "it took longer than 10 seconds"
      )
    })
  )

  it.effect("streams a run over HTTP", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: answering("Lima") })
      const { headers } = yield* server.caller()
      const message = yield* Effect.promise(() =>
        read(
          new DefaultChatTransport({
            api: `${server.url}/api/v1/ai/chat?protocol=ai-sdk`,
            headers,
            prepareSendMessagesRequest: () => ({ body: question })
          })
        )
      )
      assert.containSubset(message?.parts, [{ type: "text", text: "Lima", state: "done" }])
    })
  )
})
