/**
 * The error of a chat model.
 */
import { Schema } from "effect"

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
