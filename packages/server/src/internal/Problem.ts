/**
 * The format of all errors that a caller gets.
 *
 *     { "error": { "code": "authz_denied", "reason": "GrantExpired", "message": "…" } }
 *
 * `code` decides the status. A message says what happened and what to do. It contains no token, prompt or output.
 */
import type { AiErrorCode } from "@cogni/sandbox-graph-provider/events/AiEvent"
import type { GraphRefused } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { Effect, Schema } from "effect"
import { HttpEffect, type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiSchema } from "effect/http-api"

/** HTTP status of each code. */
export const statusOf = {
  invalid_request: 400,
  insufficient_credits: 402,
  authz_denied: 403,
  policy_denied: 403,
  not_found: 404,
  method_not_allowed: 405,
  conflict: 409,
  too_large: 413,
  range_not_satisfiable: 416,
  misdirected_request: 421,
  rate_limit: 429,
  internal: 500,
  unavailable: 503
} as const

type ProblemCode = keyof typeof statusOf

const problem = <const Codes extends readonly [ProblemCode, ...ReadonlyArray<ProblemCode>]>(
  identifier: string,
  codes: Codes,
  description: string
) =>
  Schema.Struct({
    error: Schema.Struct({
      code: Schema.Literals(codes),
      /** The specific reason, such as `GrantExpired`. */
      reason: Schema.String,
      message: Schema.String
    })
  })
    .annotate({ identifier, description })
    .pipe(HttpApiSchema.status(statusOf[codes[0]]))

export const Invalid = problem("Invalid", ["invalid_request"], "The request is invalid.")
const Unpaid = problem("Unpaid", ["insufficient_credits"], "The account has insufficient credits.")
export const Denied = problem(
  "Denied",
  ["authz_denied", "policy_denied"],
  "The grant does not permit the request, or sandboxes are disabled on this server."
)
export const NotFound = problem("NotFound", ["not_found"], "The resource does not exist for this account.")
export const Conflict = problem(
  "Conflict",
  ["conflict"],
  "The run already exists or has already ended, or the decision was made before."
)
export const TooLarge = problem("TooLarge", ["too_large"], "The body is larger than this server accepts.")
export const RangeUnsatisfiable = problem(
  "RangeUnsatisfiable",
  ["range_not_satisfiable"],
  "The range begins after the last byte; see Content-Range."
)
export const TooMany = problem("TooMany", ["rate_limit"], "Too many runs or requests; see Retry-After.")
/** Not in the OpenAPI document, because it is answered before an endpoint is selected. */
const Misdirected = problem(
  "Misdirected",
  ["misdirected_request"],
  "The server does not serve the name in Host."
)
/** Not in the OpenAPI document either. */
const MethodNotAllowed = problem(
  "MethodNotAllowed",
  ["method_not_allowed"],
  "The path has other methods; see Allow."
)
export const Internal = problem("Internal", ["internal"], "An internal error; the server's log has details.")
export const Unavailable = problem(
  "Unavailable",
  ["unavailable"],
  "The server is full, is stopping, or cannot reach a dependency; see Retry-After."
)

/** All problems with which an endpoint can fail. */
export const all = [
  Invalid,
  Unpaid,
  Denied,
  NotFound,
  Conflict,
  TooLarge,
  TooMany,
  Internal,
  Unavailable
] as const

export type Problem = (typeof all)[number]["Type"]

/** A problem of an endpoint, or one that is answered before an endpoint is selected. */
export type Answered =
  | Problem
  | typeof MethodNotAllowed.Type
  | typeof Misdirected.Type
  | typeof RangeUnsatisfiable.Type

/** Maps refusals of a graph to problem codes. A timeout cannot occur before a run, so it is an internal error. */
const codes: Readonly<Record<AiErrorCode, ProblemCode>> = {
  invalid_request: "invalid_request",
  not_found: "not_found",
  rate_limit: "rate_limit",
  insufficient_credits: "insufficient_credits",
  authz_denied: "authz_denied",
  policy_denied: "policy_denied",
  internal: "internal",
  timeout: "internal",
  aborted: "conflict"
}

export const make = <Code extends ProblemCode>(
  code: Code,
  reason: string,
  message: string
): Extract<Answered, { readonly error: { readonly code: Code } }> =>
  ({ error: { code, reason, message } }) as unknown as Extract<
    Answered,
    { readonly error: { readonly code: Code } }
  >

/** Reasons for which a dependency, and not the request, is at fault. */
const unavailableReasons: ReadonlySet<string> = new Set([
  "GrantStoreUnavailable",
  "StoreUnavailable",
  "TemporalUnreachable",
  "ThreadHostFull",
  "ThreadsUnavailable"
])

/** Converts the refusal of a run. An unavailable store is not an error of the caller. */
const ofRefusal = ({ error, message, reason }: GraphRefused): Problem =>
  make(unavailableReasons.has(reason) ? "unavailable" : codes[error], reason, message) as Problem

/** Fails with the problem of a refusal, and with `Retry-After` if known. */
export const refuse = (refused: GraphRefused) => retryLater(ofRefusal(refused), refused.retrySeconds)

/** Fails with the problem, and with `Retry-After` if the seconds are known. */
export const retryLater = <P extends Problem>(
  problem: P,
  seconds: number | undefined
): Effect.Effect<never, P, HttpServerRequest.HttpServerRequest> =>
  seconds === undefined
    ? Effect.fail(problem)
    : withHeader("retry-after", String(Math.max(1, Math.ceil(seconds)))).pipe(
        Effect.andThen(Effect.fail(problem))
      )

/** Seconds after which a client may try again when a store was unavailable. */
const storeRetrySeconds = 5

/**
 * Fails for an unavailable store, without the details of its error: these could reveal the store's host. If a retry
 * cannot help, such as on a full disk, there is no `Retry-After`.
 */
export const storeUnavailable = (error: { readonly _tag: string; readonly isRetryable: boolean }) =>
  retryLater(
    make(
      "unavailable",
      error._tag,
      `the store of grants or runs is unavailable. ${error.isRetryable ? "Try again in a moment" : "The operator of this server must correct that"}`
    ),
    error.isRetryable ? storeRetrySeconds : undefined
  )

/** Fails for a decision whose answer was lost: it may have been taken. Without the details of its error, as above. */
export const decisionDoubtful = (error: { readonly _tag: string }) =>
  retryLater(
    make(
      "unavailable",
      error._tag,
      "the store of approvals did not answer, so the call may have been decided. List the approvals before you decide again"
    ),
    storeRetrySeconds
  )

/** Fails with the problem, and with a `WWW-Authenticate` header. */
export const challenge = <P extends Problem>(
  problem: P
): Effect.Effect<never, P, HttpServerRequest.HttpServerRequest> =>
  withHeader("www-authenticate", 'Bearer realm="cogni-sandbox"').pipe(Effect.andThen(Effect.fail(problem)))

/** Parses a cursor that is a number, of a list whose order never changes. */
export const indexOf = (after: string | undefined) =>
  after === undefined
    ? Effect.succeed(0)
    : /^\d{1,9}$/u.test(after)
      ? Effect.succeed(Number(after))
      : Effect.fail(
          make(
            "invalid_request",
            "CursorInvalid",
            "after is not a cursor of this list. Send `next` of the page before, unchanged"
          )
        )

/** Converts a problem to a response, where no endpoint encodes it. */
export const toResponse = (problem: Answered): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(problem, { status: statusOf[problem.error.code] })

const withHeader = (name: string, value: string) =>
  HttpEffect.appendPreResponseHandler((_request, response) =>
    Effect.succeed(HttpServerResponse.setHeader(response, name, value))
  )
