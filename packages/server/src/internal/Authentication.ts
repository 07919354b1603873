/**
 * Who asks: whoever shows the token of a grant that stands.
 *
 * Everything below `/api` goes through here. Without a grant, with one that is unknown, expired or revoked, the answer
 * is the same 403 before anything else is done. What a grant opens is asked later, of a graph; who pays is never asked.
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

/** By whose word a request is answered. */
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
          const grant = yield* grants
            .authenticate(credential)
            .pipe(Effect.catch((error) => Problem.retryLater(Problem.ofStore(error), storeRetrySeconds)))
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

/** Fails with 429 when a grant is faster than it may be; a minute's worth may come at once. */
export const withinRate = (
  limiter: RateLimiter.RateLimiter,
  what: "requests" | "runs",
  grantId: string,
  perMinuteMax: number
): Effect.Effect<void, typeof Problem.TooMany.Type, HttpServerRequest.HttpServerRequest> =>
  take(limiter, `${what}/${grantId}`, perMinuteMax, `this grant may make ${perMinuteMax} ${what} a minute`)

/** Before the store is asked: a token that is not known to be a grant's may be anything. */
const unknownWithinRate = (limiter: RateLimiter.RateLimiter, bucket: number, perMinuteMax: number) =>
  take(
    limiter,
    `unknown/${bucket}`,
    perMinuteMax,
    "there are too many requests from here with tokens that this server has not seen before"
  )

const take = (limiter: RateLimiter.RateLimiter, key: string, perMinuteMax: number, message: string) =>
  limiter.consume({ algorithm: "token-bucket", key, window: "1 minute", limit: perMinuteMax }).pipe(
    Effect.asVoid,
    Effect.catch(({ reason }) =>
      reason._tag === "RateLimitExceeded"
        ? Problem.retryLater(
            Problem.make("rate_limit", "TooFast", `${message}. Wait as long as Retry-After says`),
            Duration.toSeconds(reason.retryAfter)
          )
        : Effect.die(reason)
    )
  )

const storeRetrySeconds = 5

const missing = Problem.make(
  "authz_denied",
  "GrantMissing",
  "no grant is shown. Send its token: Authorization: Bearer cgs_…"
)

/** Of the header's form alone: no store is asked. */
const notBearer = Problem.make(
  "authz_denied",
  "GrantNotFound",
  "the header shows no token. It must be: Authorization: Bearer TOKEN"
)

/** Says nothing of whether there was such a one. */
const unknown = Problem.make(
  "authz_denied",
  "GrantNotFound",
  "there is no grant of that token. Ask whoever runs this host for one: cogni-sandbox grants create"
)
