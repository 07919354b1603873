/**
 * The port through which a loop of the host's speaks to a model, in the words of OpenAI's chat completions.
 *
 * It holds no key: a request names where it goes, which is the socket of a run's own proxy or a base URL that needs
 * none. One request is one call; nothing is tried again here. Whatever an answer says is untrusted.
 */
import { Context, Duration, Effect, Layer, Schema, Stream } from "effect"
import * as Excerpt from "./Excerpt.ts"

/** That a model asks for a tool. */
export interface ChatToolCall {
  readonly id: string
  readonly name: string
  /** As the model wrote them: JSON, if it did well. */
  readonly arguments: string
}

/** One turn of a conversation. Every call of an assistant's is answered by one `tool` that comes right after it. */
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

/** A tool, as a model is told of it. */
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
  /** Of this one answer. */
  readonly outputTokensMax?: number | undefined
}

/** Where a model is reached: the socket of a run's proxy (`Sandbox.llmSocketPath`), or a base URL such as `http://localhost:4000/v1`. */
export type ChatEndpoint = { readonly socketPath: string } | { readonly baseUrl: string }

/** Why an answer ended. */
export const ChatFinish = Schema.Literals(["stop", "length", "tool_calls", "content_filter", "other"])

export type ChatFinish = typeof ChatFinish.Type

/** A piece of an answer. `finish` is the last, and comes once. */
export type ChatPart =
  | { readonly type: "text_delta"; readonly delta: string }
  | ({ readonly type: "tool_call" } & ChatToolCall)
  /** As the upstream said; what it did not say is absent. */
  | {
      readonly type: "usage"
      readonly inputTokens?: number | undefined
      readonly outputTokens?: number | undefined
    }
  | { readonly type: "finish"; readonly reason: ChatFinish }

/** What one answer may come to. */
export interface ChatLimits {
  /** Of text, names and arguments together. */
  readonly answerBytesMax: number
  readonly toolCallsMax: number
  /** From the request to the end of its answer. */
  readonly callSecondsMax: number
}

export const defaultLimits: ChatLimits = {
  answerBytesMax: 4 * 1024 * 1024,
  toolCallsMax: 32,
  callSecondsMax: 600
}

export const ChatErrorCode = Schema.Literals([
  /** Too many requests at this time. */
  "rate_limit",
  /** A budget is spent, or an account is empty: waiting does not help. */
  "insufficient_quota",
  "unreachable",
  /** It is there, and cannot answer now. */
  "unavailable",
  /** It does not take the request. */
  "invalid_request",
  "unauthorized",
  /** What came is no answer, or broke off. */
  "invalid_answer",
  "answer_too_large",
  /** The model, or a filter before it, would not answer. */
  "refused",
  "timeout"
])

export type ChatErrorCode = typeof ChatErrorCode.Type

const remedies: Readonly<Record<ChatErrorCode, string>> = {
  rate_limit: "Wait a moment, then try again",
  insufficient_quota: "Raise the run's budget (llm.budget), or fill up the account of the model's upstream",
  unreachable: "See that the model's upstream is up and its URL right (cogni-sandbox doctor)",
  unavailable: "Try again in a moment; if it stays, look at the model's upstream",
  invalid_request:
    "See that the model exists at its upstream, takes tools, and has room for the conversation",
  unauthorized: "Check the key and the URL of the model's upstream",
  invalid_answer: "Try again; if it stays, see whether the upstream speaks chat completions with streams",
  answer_too_large: "Ask for less at one time",
  refused: "Ask in another way",
  timeout: "Try again, or ask for less at one time"
}

const retryable: ReadonlySet<ChatErrorCode> = new Set(["rate_limit", "unreachable", "unavailable", "timeout"])

/** The model did not answer, or not as it must. */
export class ChatModelFailed extends Schema.TaggedError<ChatModelFailed>()("ChatModelFailed", {
  code: ChatErrorCode,
  /** What happened. It may quote the upstream, and so be untrusted; it is one line of at most {@link detailCharsMax}. */
  detail: Schema.String,
  /** What the upstream said with, where it answered at all. */
  status: Schema.optionalKey(Schema.Int),
  /** When the same request may pass, where the upstream said so. */
  retryAfterSeconds: Schema.optionalKey(Schema.Finite)
}) {
  /** Whether the same request may pass in a moment. */
  get isRetryable(): boolean {
    return retryable.has(this.code)
  }
  override get message(): string {
    return `the model failed: ${this.detail} (${this.code}). ${remedies[this.code]}`
  }
}

export const detailCharsMax = 500

/** A failure, its detail made fit to be shown. */
export const failed = (
  code: ChatErrorCode,
  detail: string,
  more: { readonly status?: number | undefined; readonly retryAfterSeconds?: number | undefined } = {}
): ChatModelFailed =>
  new ChatModelFailed({
    code,
    // Control characters of an upstream's must not reach a terminal.
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
    /** Ask once. Abandoning the stream ends the call. */
    readonly stream: (request: ChatRequest, at: ChatEndpoint) => Stream.Stream<ChatPart, ChatModelFailed>
  }
>()("@cogni/sandbox-loop/ChatModel") {}

/** How many bytes of UTF-8 a part adds to what is kept of an answer. */
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

/**
 * An answer that keeps to its limits and to its form, whoever gives it: it ends in time, in exactly one `finish`, or
 * fails.
 */
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
      Effect.fail(failed("timeout", `the answer was not whole after ${callSecondsMax} s`))
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

/** What a pretend model says to a request. */
export type ScriptedAnswer =
  | ReadonlyArray<ChatPart>
  | ChatModelFailed
  | Stream.Stream<ChatPart, ChatModelFailed>

/** The parts of an answer that only says something. */
export const says = (text: string): ReadonlyArray<ChatPart> => [
  { type: "text_delta", delta: text },
  { type: "finish", reason: "stop" }
]

/** The parts of an answer that asks for tools. */
export const calls = (...toolCalls: ReadonlyArray<ChatToolCall>): ReadonlyArray<ChatPart> => [
  ...toolCalls.map((call): ChatPart => ({ type: "tool_call", ...call })),
  { type: "finish", reason: "tool_calls" }
]

/** A model that is a function of what it is asked: for tests, and for trying a loop with nothing installed. */
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
