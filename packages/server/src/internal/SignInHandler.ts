/** Handlers of the page's sign-in: keep the token of a grant in a cookie, tell whose it is, and remove it. */
import { Clock, Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { checkCookie, CurrentGrant, CurrentToken } from "./Authentication.ts"
import * as SignInCookie from "./SignInCookie.ts"

const view = Effect.gen(function* () {
  const { allowSandbox, billingAccountId, expiresAt, id, permissions, scopes, userId } = yield* CurrentGrant
  const csrf = yield* SignInCookie.csrfOf(yield* CurrentToken)
  const grant = { id, userId, billingAccountId, scopes, allowSandbox, permissions }
  return HttpServerResponse.jsonUnsafe(
    { csrf, grant: { ...grant, expiresAt: expiresAt?.toISOString() ?? null } },
    { headers: { "cache-control": "no-store" } }
  )
})

/** Makes the handlers. A browser keeps the cookie for `secondsMax` at most. */
export const make = (secondsMax: number) => ({
  signIn: Effect.gen(function* () {
    const grant = yield* CurrentGrant
    const seconds = SignInCookie.keptSeconds(grant, yield* Clock.currentTimeMillis, secondsMax)
    const request = yield* HttpServerRequest.HttpServerRequest
    return SignInCookie.keep(yield* view, request, yield* CurrentToken, seconds)
  }),
  get: view,
  /** Asks no store: a sign-out must work with a revoked grant, and while the store is unavailable. */
  signOut: Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const token = SignInCookie.tokenOf(request)
    const answer = HttpServerResponse.empty({ status: 204 })
    if (token === undefined) return answer
    yield* checkCookie(request, token)
    return SignInCookie.drop(answer, request)
  })
})
