/**
 * Converts every failure between the host and a model to `ChatModelFailed`. Pure.
 *
 * Status, code and headers decide whether a failure is temporary, never the message. A 429 is final if its type or code
 * is `insufficient_quota` or if it has `x-should-retry: false`; otherwise it is a rate limit.
 */
import { type ChatErrorCode, ChatModelFailed, failed } from "../ChatError.ts"
import { APICallError } from "@ai-sdk/provider"
import { AnswerTooLarge, Unreachable } from "./HostFetch.ts"
import * as Json from "./Json.ts"

/** Error details of a response body. */
interface Told {
  readonly message?: string | undefined
  readonly type?: string | undefined
  readonly code?: string | undefined
}

/** `now` is the reference for a `retry-after` that is a date. */
export const ofUnknown = (error: unknown, now: Date): ChatModelFailed => {
  if (error instanceof ChatModelFailed) return error
  const causes = chain(error)
  const tooLarge = causes.find((cause) => cause instanceof AnswerTooLarge)
  if (tooLarge !== undefined) return failed("answer_too_large", tooLarge.message)
  const unreachable = causes.find((cause) => cause instanceof Unreachable)
  if (unreachable !== undefined)
    return failed("unreachable", `the upstream cannot be reached: ${unreachable.message}`)
  const call = causes.find((cause) => APICallError.isInstance(cause))
  if (call === undefined) return ofPart(error)
  const { message, responseBody, responseHeaders = {}, statusCode: status } = call
  // Without an error status, the rest of the answer is missing or invalid.
  if (status === undefined || (status >= 200 && status < 300)) {
    const why = causes.at(-1)?.message ?? message
    return status === undefined || causes.some(isOfTheNetwork)
      ? failed("unreachable", `the answer broke off: ${why}`)
      : failed("invalid_answer", `the response is not a valid answer: ${why}`)
  }
  const told = toldOf(Json.parse(responseBody ?? ""))
  const code = codeOf(status, told, responseHeaders["x-should-retry"] === "false")
  return failed(code, `${told.message ?? (message === "" ? "no message" : message)} [status ${status}]`, {
    status,
    retryAfterSeconds:
      code === "rate_limit" || code === "unavailable" ? retryAfter(responseHeaders, now) : undefined
  })
}

/** Converts an error that arrived as a part of an answer. */
export const ofPart = (error: unknown): ChatModelFailed => {
  const told = toldOf(error)
  const message = told.message ?? (error instanceof Error ? error.message : "the answer contains an error")
  const code = kinds[told.code ?? ""] ?? kinds[told.type ?? ""]
  return failed(code ?? "invalid_answer", message)
}

/** Error codes and types of OpenAI, this project's gateway and LiteLLM that are more specific than a status. */
const kinds: Readonly<Record<string, ChatErrorCode>> = {
  insufficient_quota: "insufficient_quota",
  billing_error: "insufficient_quota",
  budget_exceeded: "insufficient_quota",
  content_filter: "refused",
  content_policy_violation: "refused",
  exfiltration_suspected: "refused",
  rate_limit_exceeded: "rate_limit",
  rate_limit_error: "rate_limit",
  upstream_unreachable: "unreachable",
  upstream_refused: "unauthorized",
  invalid_api_key: "unauthorized",
  server_error: "unavailable",
  overloaded_error: "unavailable",
  timeout: "timeout"
}

const statuses: Readonly<Record<number, ChatErrorCode>> = {
  401: "unauthorized",
  402: "insufficient_quota",
  403: "unauthorized",
  408: "timeout",
  504: "timeout"
}

const codeOf = (status: number, told: Told, isFinal: boolean): ChatErrorCode => {
  if (status === 429) {
    return isFinal || [told.code, told.type].some((kind) => kinds[kind ?? ""] === "insufficient_quota")
      ? "insufficient_quota"
      : "rate_limit"
  }
  const known = kinds[told.code ?? ""] ?? statuses[status]
  if (known !== undefined) return known
  if (status >= 500) return "unavailable"
  return status >= 400 ? "invalid_request" : "invalid_answer"
}

const chain = (error: unknown): ReadonlyArray<Error> => {
  const found: Array<Error> = []
  for (let next = error; next instanceof Error && found.length < 10; next = next.cause) found.push(next)
  return found
}

const isOfTheNetwork = (error: Error): boolean =>
  "code" in error && typeof error.code === "string" && /^E[A-Z]+$/u.test(error.code)

const toldOf = (body: unknown): Told => {
  const outer = recordOf(body)
  const inner = recordOf(outer["error"])
  const told = Object.keys(inner).length === 0 ? outer : inner
  return { message: textOf(told["message"]), type: textOf(told["type"]), code: textOf(told["code"]) }
}

const recordOf = (value: unknown): Readonly<Record<string, unknown>> => (Json.isObject(value) ? value : {})

const textOf = (value: unknown): string | undefined =>
  typeof value === "string" && value !== "" ? value : undefined

/** Reads seconds or a date, or OpenAI's header in milliseconds. */
const retryAfter = (headers: Readonly<Record<string, string>>, now: Date): number | undefined => {
  const millis = Number(headers["retry-after-ms"])
  if (Number.isFinite(millis) && millis > 0) return millis / 1000
  const given = headers["retry-after"]
  if (given === undefined) return undefined
  const seconds = /^\d+(?:\.\d+)?$/u.test(given.trim())
    ? Number(given)
    : (Date.parse(given) - now.getTime()) / 1000
  return Number.isFinite(seconds) && seconds > 0 ? seconds : undefined
}
