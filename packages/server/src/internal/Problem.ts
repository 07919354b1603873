/**
 * What a caller is told when something is refused or goes wrong: one shape for all of it.
 *
 *     { "error": { "code": "authz_denied", "reason": "GrantExpired", "message": "…" } }
 *
 * `code` decides the status. A message says what happened and what to do; none holds a token, a prompt or an output.
 */
import type { AiErrorCode } from "@cogni/sandbox-graph-provider/events/AiEvent"
import type { GraphRefused } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { Effect, Schema } from "effect"
import { HttpEffect, type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiSchema } from "effect/http-api"

/** The status that each code is answered with. */
export const statusOf = {
  invalid_request: 400,
  insufficient_credits: 402,
  authz_denied: 403,
  policy_denied: 403,
  not_found: 404,
  conflict: 409,
  too_large: 413,
  misdirected_request: 421,
  rate_limit: 429,
  internal: 500,
  unavailable: 503
} as const

export type ProblemCode = keyof typeof statusOf

const problem = <const Codes extends readonly [ProblemCode, ...ReadonlyArray<ProblemCode>]>(
  identifier: string,
  codes: Codes,
  description: string
) =>
  Schema.Struct({
    error: Schema.Struct({
      code: Schema.Literals(codes),
      /** What exactly, such as `GrantExpired`. */
      reason: Schema.String,
      message: Schema.String
    })
  })
    .annotate({ identifier, description })
    .pipe(HttpApiSchema.status(statusOf[codes[0]]))

export const Invalid = problem("Invalid", ["invalid_request"], "The request is not what it should be.")
export const Unpaid = problem("Unpaid", ["insufficient_credits"], "The account cannot pay for it.")
export const Denied = problem(
  "Denied",
  ["authz_denied", "policy_denied"],
  "The grant does not open it, or nobody's runs start here."
)
export const NotFound = problem("NotFound", ["not_found"], "There is nothing of that name for this account.")
export const Conflict = problem("Conflict", ["conflict"], "The run is there already, or is over already.")
export const TooLarge = problem("TooLarge", ["too_large"], "The body is larger than this server takes.")
export const TooMany = problem("TooMany", ["rate_limit"], "Too many at once, or too fast; see Retry-After.")
/** Not in the description: it is answered before there is an endpoint. */
export const Misdirected = problem(
  "Misdirected",
  ["misdirected_request"],
  "The server does not answer under the name in Host."
)
export const Internal = problem("Internal", ["internal"], "Something is broken here; the log says what.")
export const Unavailable = problem(
  "Unavailable",
  ["unavailable"],
  "Not now: the server is full, is stopping, or cannot reach what it needs; see Retry-After."
)

/** What an endpoint can fail with. */
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

/** The same, and what is answered before there is an endpoint. */
export type Answered = Problem | typeof Misdirected.Type

/** What a refusal of a graph is over HTTP. The two that cannot come before a run are the server's fault. */
const codes: Readonly<Record<AiErrorCode, ProblemCode>> = {
  invalid_request: "invalid_request",
  not_found: "not_found",
  rate_limit: "rate_limit",
  insufficient_credits: "insufficient_credits",
  authz_denied: "authz_denied",
  policy_denied: "policy_denied",
  internal: "internal",
  timeout: "internal",
  aborted: "internal"
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

/** A run that may not start. A store that is away is nobody's mistake. */
export const ofRefusal = ({ error, message, reason }: GraphRefused): Problem =>
  make(reason === "GrantStoreUnavailable" ? "unavailable" : codes[error], reason, message) as Problem

/** Fails with it; says when to come again where that is known. */
export const refuse = (refused: GraphRefused) => retryLater(ofRefusal(refused), refused.retrySeconds)

/** What is kept cannot be reached; which host it is on is the log's business. */
export const ofStore = (error: { readonly _tag: string }): typeof Unavailable.Type =>
  make("unavailable", error._tag, "what is kept of grants and runs cannot be reached. Try again in a moment")

/** Fails with it, and says when to come again where that is known. */
export const retryLater = <P extends Problem>(
  problem: P,
  seconds: number | undefined
): Effect.Effect<never, P, HttpServerRequest.HttpServerRequest> =>
  seconds === undefined
    ? Effect.fail(problem)
    : withHeader("retry-after", String(Math.max(1, Math.ceil(seconds)))).pipe(
        Effect.andThen(Effect.fail(problem))
      )

/** Fails with it, and says how to show a grant. */
export const challenge = <P extends Problem>(
  problem: P
): Effect.Effect<never, P, HttpServerRequest.HttpServerRequest> =>
  withHeader("www-authenticate", 'Bearer realm="cogni-sandbox"').pipe(Effect.andThen(Effect.fail(problem)))

/** As a response of its own, where no endpoint encodes it. */
export const toResponse = (problem: Answered): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.jsonUnsafe(problem, { status: statusOf[problem.error.code] })

const withHeader = (name: string, value: string) =>
  HttpEffect.appendPreResponseHandler((_request, response) =>
    Effect.succeed(HttpServerResponse.setHeader(response, name, value))
  )
