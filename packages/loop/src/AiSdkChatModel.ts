/**
 * `ChatModel` on the AI SDK: chat completions with tools, as a stream, over the socket of a run or a base URL.
 *
 * The SDK's provider handles the dialects of "OpenAI compatible" APIs. It never retries, because the loop decides on
 * retries. No key is held or sent; the run's proxy adds it behind the socket.
 */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { ChatModel, type ChatRequest } from "./ChatModel.ts"
import { type ChatEndpoint, type ChatFinish, type ChatMessage, type ChatPart } from "./ChatMessage.ts"
import { type ChatModelFailed } from "./ChatError.ts"
import { Clock, Effect, Layer, Stream } from "effect"
import * as ChatErrors from "./internal/ChatErrors.ts"
import * as HostFetch from "./internal/HostFetch.ts"

export interface AiSdkChatModelOptions {
  /** Limit on one event of a stream, before it is parsed (default 8 MiB). */
  readonly lineBytesMax?: number | undefined
  /** Limit on one whole answer, including its framing (default 512 MiB). */
  readonly bodyBytesMax?: number | undefined
}

export const make = (options: AiSdkChatModelOptions = {}): ChatModel["Service"] => {
  const limits: HostFetch.FetchLimits = {
    lineBytesMax: options.lineBytesMax ?? 8 * 1024 * 1024,
    bodyBytesMax: options.bodyBytesMax ?? 512 * 1024 * 1024,
    errorBytesMax: 64 * 1024
  }
  return ChatModel.of({ stream: (request, at) => Stream.unwrap(open(request, at, limits)) })
}

export const layer = (options?: AiSdkChatModelOptions): Layer.Layer<ChatModel> =>
  Layer.sync(ChatModel, () => make(options))

const open = Effect.fnUntraced(function* (
  request: ChatRequest,
  at: ChatEndpoint,
  limits: HostFetch.FetchLimits
) {
  const now = new Date(yield* Clock.currentTimeMillis)
  const abortSignal = yield* Effect.abortSignal
  const onError = (error: unknown): ChatModelFailed => ChatErrors.ofUnknown(error, now)
  const model = modelOf(request.model, at, limits)
  const { stream } = yield* Effect.tryPromise({
    try: () => model.doStream({ ...callOf(request), abortSignal }),
    catch: onError
  })
  return Stream.fromReadableStream({ evaluate: () => stream, onError }).pipe(
    Stream.mapEffect(partsOf),
    Stream.flattenIterable
  )
})

const modelOf = (model: string, at: ChatEndpoint, limits: HostFetch.FetchLimits) =>
  createOpenAICompatible({
    name: "sandbox",
    baseURL: HostFetch.baseUrlOf(at),
    includeUsage: true,
    fetch: HostFetch.make(at, limits)
  }).chatModel(model)

type Model = ReturnType<typeof modelOf>
type CallOptions = Parameters<Model["doStream"]>[0]
type Turn = CallOptions["prompt"][number]
type StreamPart =
  Awaited<ReturnType<Model["doStream"]>>["stream"] extends ReadableStream<infer Part> ? Part : never

const callOf = ({ messages, outputTokensMax, tools }: ChatRequest): CallOptions => ({
  prompt: messages.map(turnOf),
  ...(outputTokensMax === undefined ? {} : { maxOutputTokens: outputTokensMax }),
  ...(tools.length === 0
    ? {}
    : {
        toolChoice: { type: "auto" } as const,
        tools: tools.map(({ description, inputSchema, name }) => ({
          type: "function" as const,
          name,
          description,
          inputSchema: inputSchema as object
        }))
      })
})

const turnOf = (message: ChatMessage): Turn => {
  switch (message.role) {
    case "system":
      return { role: "system", content: message.content }
    case "user":
      return { role: "user", content: [{ type: "text", text: message.content }] }
    case "assistant":
      return {
        role: "assistant",
        content: [
          { type: "text", text: message.content },
          ...(message.toolCalls ?? []).map((call) => ({
            type: "tool-call" as const,
            toolCallId: call.id,
            toolName: call.name,
            // A string is sent unchanged.
            input: call.arguments
          }))
        ]
      }
    case "tool":
      return {
        role: "tool",
        content: [
          {
            type: "tool-result",
            toolCallId: message.toolCallId,
            toolName: message.toolName,
            output: { type: "text", value: message.content }
          }
        ]
      }
  }
}

const finishes: Readonly<Record<string, ChatFinish>> = {
  stop: "stop",
  length: "length",
  "content-filter": "content_filter",
  "tool-calls": "tool_calls"
}

const partsOf = (part: StreamPart): Effect.Effect<ReadonlyArray<ChatPart>, ChatModelFailed> => {
  switch (part.type) {
    case "text-delta":
      return Effect.succeed([{ type: "text_delta", delta: part.delta }])
    case "tool-call":
      return Effect.succeed([
        { type: "tool_call", id: part.toolCallId, name: part.toolName, arguments: part.input }
      ])
    case "finish": {
      const inputTokens = part.usage.inputTokens.total
      const outputTokens = part.usage.outputTokens.total
      return Effect.succeed([
        {
          type: "usage",
          ...(inputTokens === undefined ? {} : { inputTokens }),
          ...(outputTokens === undefined ? {} : { outputTokens })
        },
        { type: "finish", reason: finishes[part.finishReason.unified] ?? "other" }
      ])
    }
    case "error":
      return Effect.fail(ChatErrors.ofPart(part.error))
    // Reasoning is not part of the answer.
    default:
      return Effect.succeed([])
  }
}
