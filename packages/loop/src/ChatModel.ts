/**
 * Port through which the host's agent loop calls a model, in the terms of OpenAI's chat completions.
 *
 * It holds no key: a request names its endpoint, which is the socket of a run's proxy or a base URL that needs no key.
 * One request is one call, without retries. The content of an answer is untrusted.
 */
import { Context, Layer, Stream } from "effect"
import { ChatModelFailed } from "./ChatError.ts"
import type { ChatToolCall, ChatMessage, ChatEndpoint, ChatPart } from "./ChatMessage.ts"

/** Description of a tool for a model. */
interface ChatTool {
  readonly name: string
  readonly description: string
  /** JSON Schema of the arguments: an object. */
  readonly inputSchema: Readonly<Record<string, unknown>>
}

export interface ChatRequest {
  readonly model: string
  readonly messages: ReadonlyArray<ChatMessage>
  readonly tools: ReadonlyArray<ChatTool>
  /** Token limit of this answer. */
  readonly outputTokensMax?: number | undefined
}

export class ChatModel extends Context.Service<
  ChatModel,
  {
    /** Sends one request. Ending the stream early ends the call. */
    readonly stream: (request: ChatRequest, at: ChatEndpoint) => Stream.Stream<ChatPart, ChatModelFailed>
  }
>()("@cogni/sandbox-loop/ChatModel") {}

/** Answer of a scripted model to a request. */
export type ScriptedAnswer =
  | ReadonlyArray<ChatPart>
  | ChatModelFailed
  | Stream.Stream<ChatPart, ChatModelFailed>

/** Returns the parts of an answer with text only. */
export const says = (text: string): ReadonlyArray<ChatPart> => [
  { type: "text_delta", delta: text },
  { type: "finish", reason: "stop" }
]

/** Returns the parts of an answer with tool calls. */
export const calls = (...toolCalls: ReadonlyArray<ChatToolCall>): ReadonlyArray<ChatPart> => [
  ...toolCalls.map((call): ChatPart => ({ type: "tool_call", ...call })),
  { type: "finish", reason: "tool_calls" }
]

/** A scripted model, given as a function: for tests, and to try a loop without an upstream. */
export const layerMemory = (
  answer: (request: ChatRequest, at: ChatEndpoint) => ScriptedAnswer
): Layer.Layer<ChatModel> =>
  Layer.succeed(
    ChatModel,
    ChatModel.of({
      stream: (request, at) =>
        Stream.suspend((): Stream.Stream<ChatPart, ChatModelFailed> => {
          const given = answer(request, at)
          return given instanceof ChatModelFailed
            ? Stream.fail(given)
            : Stream.isStream(given)
              ? given
              : Stream.fromIterable(given)
        })
    })
  )
