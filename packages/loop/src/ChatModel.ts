/**
 * Port through which the host's agent loop calls a model, in the terms of OpenAI's chat completions.
 *
 * It holds no key: a request names its endpoint, which is the socket of a run's proxy or a base URL that needs no key.
 * One request is one call, without retries. The content of an answer is untrusted.
 */
import { Context, Duration, Effect, Layer, Schema, Stream } from "effect"
import * as Excerpt from "./Excerpt.ts"

/** A tool call that a model requests. */
export interface ChatToolCall {
  readonly id: string
  readonly name: string
  /** Arguments as the model wrote them. They may be invalid JSON. */
  readonly arguments: string
}

/** One turn of a conversation. One `tool` message for each call must directly follow an assistant's tool calls. */
export type ChatMessage =
  | { readonly role: "system"; readonly content: string }
  | { readonly role: "user"; readonly content: string }
  | {
      readonly role: "assistant"
      readonly content: string
      readonly toolCalls?: ReadonlyArray<ChatToolCall> | undefined
    }
  | {
      readonly role: "tool"
      readonly toolCallId: string
      readonly toolName: string
      readonly content: string
    }

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

/** Model endpoint: a run's proxy socket (`Sandbox.llmSocketPath`), or a base URL like `http://localhost:4000/v1`. */
export type ChatEndpoint = { readonly socketPath: string } | { readonly baseUrl: string }

/** Why an answer ended. */
export const ChatFinish = Schema.Literals(["stop", "length", "tool_calls", "content_filter", "other"])

export type ChatFinish = typeof ChatFinish.Type

/** A piece of an answer. `finish` is the last, and comes once. */
export type ChatPart =
  | { readonly type: "text_delta"; readonly delta: string }
  | ({ readonly type: "tool_call" } & ChatToolCall)
  /** As reported by the upstream; counts that it omits are absent. */
  | {
      readonly type: "usage"
      readonly inputTokens?: number | undefined
      readonly outputTokens?: number | undefined
    }
  | { readonly type: "finish"; readonly reason: ChatFinish }

/** Limits of one answer. */
export interface ChatLimits {
  /** Total of text, IDs, names and arguments, in UTF-8. */
  readonly answerBytesMax: number
  readonly toolCallsMax: number
  /** Time from the request to the end of its answer. */
  readonly callSecondsMax: number
}

export const defaultLimits: ChatLimits = {
  answerBytesMax: 4 * 1024 * 1024,
  toolCallsMax: 32,
  callSecondsMax: 600
}

export const ChatErrorCode = Schema.Literals([
  /** Too many requests in a period of time. */
  "rate_limit",
  /** A budget or an account is exhausted; waiting does not help. */
  "insufficient_quota",
  "unreachable",
  /** The upstream is reachable, but cannot answer now. */
  "unavailable",
  /** The upstream does not accept the request. */
  "invalid_request",
  "unauthorized",
  /** The answer is malformed or truncated. */
  "invalid_answer",
  "answer_too_large",
  /** The model, or a filter before it, refused to answer. */
  "refused",
  "timeout"
])

export type ChatErrorCode = typeof ChatErrorCode.Type

const remedies: Readonly<Record<ChatErrorCode, string>> = {
  rate_limit: "Wait a moment, then try again",
  insufficient_quota:
    "Raise the run's budget (llm.budget), or add credit to the account at the model's upstream",
  unreachable: "Check that the model's upstream is running and its URL is correct",
  unavailable: "Try again in a moment; if the error persists, check the model's upstream",
  invalid_request:
    "Check that the model exists at its upstream, supports tools, and has room for the conversation",
  unauthorized: "Check the key and the URL of the model's upstream",
  invalid_answer: "Try again; if the error persists, check that the upstream streams chat completions",
  answer_too_large: "Ask for less at one time",
  refused: "Rephrase the request",
  timeout: "Try again, or ask for less at one time"
}

const retryable: ReadonlySet<ChatErrorCode> = new Set(["rate_limit", "unreachable", "unavailable", "timeout"])

/** The model did not answer, or its answer is invalid. */
export class ChatModelFailed extends Schema.TaggedError<ChatModelFailed>()("ChatModelFailed", {
  code: ChatErrorCode,
  /** Cause, which may quote the upstream and is therefore untrusted. One line of at most {@link detailCharsMax}. */
  detail: Schema.String,
  /** HTTP status, if the upstream answered. */
  status: Schema.optionalKey(Schema.Int),
  /** When the same request may succeed, if the upstream gave a time. */
  retryAfterSeconds: Schema.optionalKey(Schema.Finite)
}) {
  /** Whether the same request may succeed in a moment. */
  get isRetryable(): boolean {
    return retryable.has(this.code)
  }
  override get message(): string {
    return `the model failed: ${this.detail} (${this.code}). ${remedies[this.code]}`
  }
}

export const detailCharsMax = 500

/** Creates a failure with a detail that is safe to print. */
export const failed = (
  code: ChatErrorCode,
  detail: string,
  more: { readonly status?: number | undefined; readonly retryAfterSeconds?: number | undefined } = {}
): ChatModelFailed =>
  new ChatModelFailed({
    code,
    // Control characters from an upstream must not reach a terminal.
    detail: detail
      .slice(0, 4 * detailCharsMax)
      .replace(/[\p{C}\s]+/gu, " ")
      .trim()
      .slice(0, detailCharsMax),
    ...(more.status === undefined ? {} : { status: more.status }),
    ...(more.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: more.retryAfterSeconds })
  })

export class ChatModel extends Context.Service<
  ChatModel,
  {
    /** Sends one request. Ending the stream early ends the call. */
    readonly stream: (request: ChatRequest, at: ChatEndpoint) => Stream.Stream<ChatPart, ChatModelFailed>
  }
>()("@cogni/sandbox-loop/ChatModel") {}

/** Returns how many bytes of UTF-8 a part adds to the kept answer. */
export const bytesOf = (part: ChatPart): number => {
  switch (part.type) {
    case "text_delta":
      return Excerpt.bytesOf(part.delta)
    case "tool_call":
      return Excerpt.bytesOf(part.id) + Excerpt.bytesOf(part.name) + Excerpt.bytesOf(part.arguments)
    default:
      return 0
  }
}

/** Enforces limits and form on an answer: it ends in time, in exactly one `finish`, or fails. */
export const bounded = (
  answer: Stream.Stream<ChatPart, ChatModelFailed>,
  { answerBytesMax, callSecondsMax, toolCallsMax }: ChatLimits = defaultLimits
): Stream.Stream<ChatPart, ChatModelFailed> =>
  Stream.suspend(() => {
    let bytes = 0
    let toolCalls = 0
    let hasFinished = false
    const judge = (part: ChatPart): Effect.Effect<void, ChatModelFailed> => {
      if (hasFinished) return Effect.fail(failed("invalid_answer", "the answer went on after its end"))
      bytes += bytesOf(part)
      if (part.type === "tool_call") toolCalls += 1
      if (part.type === "finish") hasFinished = true
      return bytes > answerBytesMax
        ? Effect.fail(failed("answer_too_large", `the answer has more than ${answerBytesMax} bytes`))
        : toolCalls > toolCallsMax
          ? Effect.fail(failed("answer_too_large", `the answer has more than ${toolCallsMax} tool calls`))
          : Effect.void
    }
    const outOfTime = Effect.andThen(
      Effect.sleep(Duration.seconds(callSecondsMax)),
      Effect.fail(failed("timeout", `the answer was not complete after ${callSecondsMax} s`))
    )
    return answer.pipe(
      Stream.tap(judge),
      Stream.concat(
        Stream.suspend(() =>
          hasFinished ? Stream.empty : Stream.fail(failed("invalid_answer", "the answer broke off"))
        )
      ),
      Stream.interruptWhen(outOfTime)
    )
  })

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
