/**
 * Authenticates a caller by the token of a valid grant.
 *
 * All routes below `/api` pass through here. Without a grant, or with an unknown, expired or revoked one, the answer is
 * a 403 before anything else is done. Graphs check later what the grant permits. The account that pays is always the
 * grant's.
 */
import * as ExecutionGrant from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { Clock, Context, Duration, Effect, Layer, Option } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware, HttpApiSecurity } from "effect/http-api"
import { RateLimiter } from "effect/persistence"
import * as UnknownCallers from "./UnknownCallers.ts"
import * as Problem from "./Problem.ts"
import type { ServerLimits } from "../ServerLimits.ts"

/** The grant that authenticates the current request. */
export class CurrentGrant extends Context.Service<CurrentGrant, ExecutionGrant.ExecutionGrant>()(
  "@cogni/sandbox-server/CurrentGrant"
) {}

export class Authentication extends HttpApiMiddleware.Service<Authentication, { provides: CurrentGrant }>()(
  "@cogni/sandbox-server/Authentication",
  {
    security: { bearer: HttpApiSecurity.bearer },
    error: [Problem.Denied, Problem.TooMany, Problem.Unavailable]
  }
) {}

export const layer = (
  limits: ServerLimits
): Layer.Layer<Authentication, never, GrantStore | RateLimiter.RateLimiter> =>
  Layer.effect(
    Authentication,
    Effect.gen(function* () {
      const grants = yield* GrantStore
      const limiter = yield* RateLimiter.RateLimiter
      const known = UnknownCallers.make()
      return Authentication.of({
        bearer: Effect.fnUntraced(function* (answer, { credential }) {
          const { headers, remoteAddress } = yield* HttpServerRequest.HttpServerRequest
          const hash = yield* GrantToken.hash(credential)
          if (!known.has(hash)) {
            const bucket = UnknownCallers.bucketOf(Option.getOrUndefined(remoteAddress))
            yield* unknownWithinRate(limiter, bucket, limits.unknownRequestsPerMinuteMax)
          }
          const { authorization } = headers
          if (authorization === undefined) return yield* Problem.challenge(missing)
          if (!/^bearer /iu.test(authorization)) return yield* Problem.challenge(notBearer)
          if (!GrantToken.isWellFormed(credential)) return yield* Problem.challenge(unknown)
          const grant = yield* grants.authenticate(credential).pipe(Effect.catch(Problem.storeUnavailable))
          if (grant === undefined) {
            known.remove(hash)
            return yield* Problem.challenge(unknown)
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
          return yield* Effect.provideService(answer, CurrentGrant, grant)
        })
      })
    })
  )

/** Fails with 429 if a grant exceeds its rate. A burst of one minute's allowance is possible. */
export const withinRate = (
  limiter: RateLimiter.RateLimiter,
  what: "requests" | "runs",
  grantId: string,
  perMinuteMax: number
): Effect.Effect<void, typeof Problem.TooMany.Type, HttpServerRequest.HttpServerRequest> =>
  take(limiter, `${what}/${grantId}`, perMinuteMax, `this grant may make ${perMinuteMax} ${what} per minute`)

/** Limits requests with unknown tokens, before the store is asked about them. */
const unknownWithinRate = (limiter: RateLimiter.RateLimiter, bucket: number, perMinuteMax: number) =>
  take(
    limiter,
    `unknown/${bucket}`,
    perMinuteMax,
    "too many requests with unknown tokens came from addresses like this one"
  )

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
