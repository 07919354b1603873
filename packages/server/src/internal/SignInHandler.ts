/** Handlers of the page's sign-in: open one for a grant, put its secret in a cookie, tell whose it is, end it. */
import * as ExecutionGrant from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { Clock, Effect, Result, type Redacted } from "effect"
import { HttpEffect, HttpServerRequest, HttpServerResponse } from "effect/http"
import { RateLimiter } from "effect/persistence"
import { checkCookie, CurrentGrant, CurrentProof, makeUnknownRate } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import * as SignInCookie from "./SignInCookie.ts"
import type { ServerLimits } from "../ServerLimits.ts"
import type { KnownTokens } from "./UnknownCallers.ts"

/** `secret` is the one that the header of the page is derived from. */
const viewOf = Effect.fnUntraced(function* (
  grant: ExecutionGrant.ExecutionGrant,
  secret: Redacted.Redacted<string>
) {
  const { allowSandbox, billingAccountId, expiresAt, id, permissions, scopes, userId } = grant
  const mayWrite = Result.isSuccess(ExecutionGrant.checkWriting(grant))
  const shown = { id, userId, billingAccountId, scopes, allowSandbox, permissions, mayWrite }
  return HttpServerResponse.jsonUnsafe(
    {
      csrf: yield* SignInCookie.csrfOf(secret),
      grant: { ...shown, expiresAt: expiresAt?.toISOString() ?? null }
    },
    { headers: { "cache-control": "no-store" } }
  )
})

/** A sign-in that opened the next one would never end. */
const tokenRequired = Problem.make(
  "authz_denied",
  "TokenRequired",
  "a sign-in needs the token of the grant, not an earlier sign-in. Send: Authorization: Bearer cgs_…"
)

/** The browser has forgotten the sign-in by then, so that there is nothing to send again. */
const stillOpen = Problem.make(
  "unavailable",
  "SignOutUnconfirmed",
  "this browser has forgotten the sign-in, but the server could not end it. It ends by itself when it expires. If " +
    "its cookie may have been copied, revoke the grant: cogni-sandbox grants revoke"
)

/** Makes the handlers. A sign-in lasts for `signInSecondsMax` at most. `known` is that of `Authentication`. */
export const make = Effect.fnUntraced(function* (
  limits: ServerLimits,
  known: KnownTokens,
  trustedProxies: ReadonlyArray<string> = []
) {
  const grants = yield* GrantStore
  const unknownWithinRate = makeUnknownRate(yield* RateLimiter.RateLimiter, limits, trustedProxies)

  /** Ends the sign-in of a request, if it has one. */
  const close = (secret: Redacted.Redacted<string> | undefined) =>
    secret === undefined || !GrantToken.isSignIn(secret) ? Effect.void : grants.closeSignIn(secret)

  return {
    signIn: Effect.gen(function* () {
      const grant = yield* CurrentGrant
      if ((yield* CurrentProof).by !== "token") return yield* Effect.fail(tokenRequired)
      const request = yield* HttpServerRequest.HttpServerRequest
      const seconds = SignInCookie.keptSeconds(grant, yield* Clock.currentTimeMillis, limits.signInSecondsMax)
      const secret = yield* Effect.gen(function* () {
        // The one that the new cookie replaces would live on unseen.
        yield* close(SignInCookie.secretOf(request))
        return yield* grants.openSignIn(grant.id, seconds)
      }).pipe(Effect.catch(Problem.storeUnavailable))
      return SignInCookie.keep(yield* viewOf(grant, secret), request, secret, seconds)
    }),
    get: Effect.gen(function* () {
      return yield* viewOf(yield* CurrentGrant, (yield* CurrentProof).secret)
    }),
    /** Needs no valid grant: a sign-out must work with a revoked one. Removes the cookie whatever the store answers. */
    signOut: Effect.gen(function* () {
      const request = yield* HttpServerRequest.HttpServerRequest
      const secret = SignInCookie.secretOf(request)
      const answer = HttpServerResponse.empty({ status: 204 })
      if (secret === undefined) return answer
      yield* checkCookie(request, secret)
      yield* HttpEffect.appendPreResponseHandler((_, response) =>
        Effect.succeed(SignInCookie.drop(response, request))
      )
      const hash = yield* GrantToken.hash(secret)
      // Others at the same address must not keep a sign-in open that was in use here.
      const withinRate = known.has(hash) ? Effect.void : unknownWithinRate
      yield* Effect.andThen(withinRate, close(secret)).pipe(Effect.catch(() => Effect.fail(stillOpen)))
      known.remove(hash)
      return answer
    })
  }
})
