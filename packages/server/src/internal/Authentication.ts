/**
 * Authenticates a caller by the token of a valid grant, or our page by its sign-in.
 *
 * All routes below `/api` pass through here. The token is in the `Authorization` header; our page has the secret of a
 * sign-in in a cookie. Without a grant, or with an unknown, expired or revoked one, the answer is a 403 before anything
 * else is done, and so it is if a read-only grant would change something. Graphs check later what else the grant
 * permits. The account that pays is always the grant's.
 */
import * as ExecutionGrant from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { type GrantStoreUnavailable } from "@cogni/sandbox-graph-provider/grants/GrantError"
import { Clock, Context, Duration, Effect, Layer, Option, type Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware, HttpApiSecurity } from "effect/http-api"
import { RateLimiter } from "effect/persistence"
import * as EndpointAccess from "./EndpointAccess.ts"
import * as SignInCookie from "./SignInCookie.ts"
import * as UnknownCallers from "./UnknownCallers.ts"
import * as OpenAnswers from "./OpenAnswers.ts"
import * as Problem from "./Problem.ts"
import * as SharedReadings from "./SharedReadings.ts"
import type { ServerLimits } from "../ServerLimits.ts"

/** The grant that authenticates the current request. */
export class CurrentGrant extends Context.Service<CurrentGrant, ExecutionGrant.ExecutionGrant>()(
  "@cogni/sandbox-server/CurrentGrant"
) {}

/** The secret with which the caller proved its grant. */
export interface Proof {
  readonly by: "token" | "sign-in"
  readonly secret: Redacted.Redacted<string>
}

export class CurrentProof extends Context.Service<CurrentProof, Proof>()(
  "@cogni/sandbox-server/CurrentProof"
) {}

export class Authentication extends HttpApiMiddleware.Service<
  Authentication,
  { provides: CurrentGrant | CurrentProof }
>()("@cogni/sandbox-server/Authentication", {
  security: { bearer: HttpApiSecurity.bearer },
  error: [Problem.Denied, Problem.TooMany, Problem.Unavailable]
}) {}

export const layer = (
  limits: ServerLimits,
  trustedProxies: ReadonlyArray<string> = [],
  known: UnknownCallers.KnownTokens = UnknownCallers.make()
): Layer.Layer<Authentication, never, GrantStore | RateLimiter.RateLimiter> =>
  Layer.effect(
    Authentication,
    Effect.gen(function* () {
      const grants = yield* GrantStore
      const limiter = yield* RateLimiter.RateLimiter
      const answers = yield* OpenAnswers.make(limits)
      const shared = SharedReadings.make<ExecutionGrant.ExecutionGrant | undefined, GrantStoreUnavailable>()
      const unknownWithinRate = makeUnknownRate(limiter, limits, trustedProxies)
      return Authentication.of({
        bearer: Effect.fnUntraced(function* (answer, { credential, endpoint }) {
          const request = yield* HttpServerRequest.HttpServerRequest
          const proof = proofOf(request, credential)
          const hash = yield* GrantToken.hash(proof.secret)
          if (!known.has(hash)) yield* unknownWithinRate
          yield* checkProof(request, proof)
          const grant = yield* shared(
            `${proof.by} ${hash}`,
            proof.by === "token" ? grants.authenticate(proof.secret) : grants.authenticateSignIn(proof.secret)
          ).pipe(Effect.catch(Problem.storeUnavailable))
          if (grant === undefined) {
            known.remove(hash)
            return yield* Problem.challenge(unknownOf(proof))
          }
          const now = new Date(yield* Clock.currentTimeMillis)
          yield* Effect.fromResult(ExecutionGrant.checkStanding(grant, now)).pipe(
            Effect.catch(({ _tag, message }) => {
              known.remove(hash)
              return Problem.challenge(Problem.make("authz_denied", _tag, message))
            })
          )
          known.add(hash)
          yield* withinRate(limiter, "requests", grant.id, limits.requestsPerMinutePerGrantMax)
          yield* EndpointAccess.check(grant, endpoint)
          yield* answers.enter(grant.billingAccountId)
          const response = yield* Effect.provideContext(
            answer,
            Context.make(CurrentGrant, grant).pipe(Context.add(CurrentProof, proof))
          )
          return yield* answers.paced(grant.billingAccountId, response)
        })
      })
    })
  )

/** Fails with 429 if a grant exceeds its rate. A burst of one minute's allowance is possible. */
export const withinRate = (
  limiter: RateLimiter.RateLimiter,
  what: "proposals" | "requests" | "runs",
  grantId: string,
  perMinuteMax: number
): Effect.Effect<void, typeof Problem.TooMany.Type, HttpServerRequest.HttpServerRequest> =>
  take(limiter, `${what}/${grantId}`, perMinuteMax, `this grant may make ${perMinuteMax} ${what} per minute`)

/** Limits requests with unknown tokens, before the store is asked about them. */
export const makeUnknownRate = (
  limiter: RateLimiter.RateLimiter,
  { unknownRequestsPerMinuteMax }: ServerLimits,
  trustedProxies: ReadonlyArray<string>
) => {
  const trusted = new Set(trustedProxies.flatMap((address) => UnknownCallers.canonicalOf(address) ?? []))
  return Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ headers, remoteAddress }) => {
    const remote = Option.getOrUndefined(remoteAddress)
    const address = UnknownCallers.callerOf(remote, headers["x-forwarded-for"], trusted)
    return take(
      limiter,
      `unknown/${UnknownCallers.bucketOf(address)}`,
      unknownRequestsPerMinuteMax,
      "too many requests with unknown tokens came from addresses like this one"
    )
  })
}

const proofOf = (
  request: HttpServerRequest.HttpServerRequest,
  inHeader: Redacted.Redacted<string>
): Proof => {
  const inCookie = request.headers["authorization"] === undefined ? SignInCookie.secretOf(request) : undefined
  return inCookie === undefined ? { by: "token", secret: inHeader } : { by: "sign-in", secret: inCookie }
}

/** Fails if the store has not to be asked. */
const checkProof = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest, proof: Proof) {
  if (proof.by === "sign-in") {
    yield* checkCookie(request, proof.secret)
    if (!GrantToken.isSignIn(proof.secret)) return yield* Problem.challenge(ended)
    return
  }
  const { authorization } = request.headers
  if (authorization === undefined) return yield* Problem.challenge(missing)
  if (!/^bearer /iu.test(authorization)) return yield* Problem.challenge(notBearer)
  if (!GrantToken.isWellFormed(proof.secret)) return yield* Problem.challenge(unknown)
})

const take = (limiter: RateLimiter.RateLimiter, key: string, perMinuteMax: number, message: string) =>
  limiter.consume({ algorithm: "token-bucket", key, window: "1 minute", limit: perMinuteMax }).pipe(
    Effect.asVoid,
    Effect.catch(({ reason }) =>
      reason._tag === "RateLimitExceeded"
        ? Problem.retryLater(
            Problem.make("rate_limit", "TooFast", `${message}. Wait for the time in Retry-After`),
            Duration.toSeconds(reason.retryAfter)
          )
        : Effect.die(reason)
    )
  )

const missing = Problem.make(
  "authz_denied",
  "GrantMissing",
  "the request has no token. Send the token of a grant: Authorization: Bearer cgs_…"
)

/** Fails if a request with the sign-in cookie may not come from our page, or not from its own sign-in. */
export const checkCookie = Effect.fnUntraced(function* (
  request: HttpServerRequest.HttpServerRequest,
  secret: Redacted.Redacted<string>
) {
  if (SignInCookie.isDoubled(request)) return yield* Effect.fail(doubled)
  if (yield* SignInCookie.isForged(request, secret)) return yield* Effect.fail(forged)
})

const doubled = Problem.make(
  "authz_denied",
  "CookieDoubled",
  "the browser sent two sign-in cookies, so another server of this host or domain set one of them. Remove the cookies " +
    "of this host in the browser, and sign in again"
)

/** The cookie is valid only for our page, which knows the header's value. */
const forged = Problem.make(
  "authz_denied",
  "RequestForged",
  "a request with the sign-in cookie must come from the page of this server, and have its x-cogni-csrf header. " +
    "Reload the page. A program sends the token of a grant: Authorization: Bearer cgs_…"
)

/** Reports only the form of the header. The store is not asked. */
const notBearer = Problem.make(
  "authz_denied",
  "GrantNotFound",
  "the Authorization header has no Bearer token. Send: Authorization: Bearer TOKEN"
)

/** Does not reveal whether such a grant ever existed. */
const unknown = Problem.make(
  "authz_denied",
  "GrantNotFound",
  "no grant has this token. Ask the operator of this host for a grant: cogni-sandbox grants create"
)

/** Does not reveal whether such a sign-in ever existed. */
const ended = Problem.make(
  "authz_denied",
  "SignInEnded",
  "this sign-in has ended: it expired, you signed out, or newer sign-ins of the grant took its place. Sign in again with " +
    "the token of the grant"
)

const unknownOf = ({ by }: Proof) => (by === "token" ? unknown : ended)
