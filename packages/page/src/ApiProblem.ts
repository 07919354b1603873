/** Why a request of the page has no result. Decided from the answer alone. */
import { Data, Option, Schema } from "effect"

export class ApiProblem extends Data.TaggedError("ApiProblem")<{
  /** HTTP status of the answer; `undefined` without an answer. */
  readonly status: number | undefined
  /** The server's reason, such as `GrantExpired`; otherwise `Unreachable`, `Refused` or `AnswerInvalid`. */
  readonly reason: string
  readonly message: string
  readonly retrySeconds?: number | undefined
}> {
  /** Whether the same request may succeed later. */
  get isRetryable(): boolean {
    return this.status === undefined || this.status === 429 || this.status >= 500
  }
}

const signedOut = new Set([
  "GrantMissing",
  "GrantNotFound",
  "GrantExpired",
  "GrantRevoked",
  "RequestForged",
  "SignInEnded"
])

/** Returns the shown parts of an error: one of a request, also by another package, or any other. */
export const describe = (
  error: unknown
): { readonly reason: string; readonly message: string; readonly isRetryable: boolean } => {
  if (!(error instanceof Error)) return { reason: "Failed", message: String(error), isRetryable: true }
  const { isRetryable, message, reason } = error as Error & Partial<Record<"isRetryable" | "reason", unknown>>
  return {
    reason: typeof reason === "string" ? reason : "Failed",
    message,
    isRetryable: isRetryable !== false
  }
}

/** Returns whether only a sign-in can mend an error. */
export const isSignedOut = (error: unknown): boolean => signedOut.has(describe(error).reason)

const decode = Schema.decodeUnknownOption(
  Schema.Struct({ error: Schema.Struct({ reason: Schema.String, message: Schema.String }) })
)

/** Longest time until a request is repeated. A timer of a browser with more than 24 days would end at once. */
export const retrySecondsMax = 60

/** Reads the problem of an answer. An intermediary may have answered in its own format. */
export const ofAnswer = (status: number, body: unknown, retryAfter: string | null): ApiProblem => {
  const problem = Option.getOrUndefined(decode(body))?.error
  const seconds = Number(retryAfter ?? Number.NaN)
  return new ApiProblem({
    status,
    reason: problem?.reason ?? "Refused",
    message: problem?.message ?? `the server answered with status ${status}`,
    retrySeconds: seconds >= 0 ? Math.min(seconds, retrySecondsMax) : undefined
  })
}

export const unreachable = (cause: unknown): ApiProblem =>
  new ApiProblem({
    status: undefined,
    reason: "Unreachable",
    message: `the server cannot be reached: ${cause instanceof Error ? cause.message : String(cause)}`
  })

export const invalidAnswer = (status: number, what: string): ApiProblem =>
  new ApiProblem({
    status,
    reason: "AnswerInvalid",
    message: `the server's answer is not a valid ${what}. Page and server may have different versions: reload the page`
  })
