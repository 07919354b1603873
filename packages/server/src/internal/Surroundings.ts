/**
 * What goes around every route of a server: its name is checked, its answer is counted and made safe for a browser, and
 * what no route has answered is answered.
 */
import { Cause, Effect, type Types } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import * as HostNames from "../HostNames.ts"
import * as Problem from "./Problem.ts"
import * as ServerMetrics from "./ServerMetrics.ts"

/** Nothing that a page of ours shows may be loaded from elsewhere, sent elsewhere, or shown inside another. */
const pagePolicy =
  "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const safely = HttpServerResponse.setHeaders({
  "content-security-policy": pagePolicy,
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff"
})

const noRoute = Problem.toResponse(
  Problem.make("not_found", "RouteNotFound", "there is nothing at this path. See the guide of the server")
)

const broken = Problem.toResponse(
  Problem.make("internal", "Defect", "an internal error occurred. The operator finds it in the log")
)

/** What no route has answered: an unknown path, or a defect, of which the caller is told nothing. */
const answered = (
  cause: Cause.Cause<Types.unhandled>
): Effect.Effect<HttpServerResponse.HttpServerResponse, Types.unhandled> => {
  const error = Cause.squash(cause)
  if (HttpServerError.isHttpServerError(error) && error.reason._tag === "RouteNotFound")
    return Effect.succeed(noRoute)
  return Cause.hasInterruptsOnly(cause)
    ? Effect.failCause(cause)
    : Effect.as(Effect.logError("a request broke", cause), broken)
}

/** For all routes of the router that it is merged with. */
export const layer = (hostNames: ReadonlyArray<string>) =>
  HttpRouter.middleware(
    Effect.map(
      HostNames.checked(hostNames),
      (underName) => (effect: Effect.Effect<HttpServerResponse.HttpServerResponse, Types.unhandled>) =>
        Effect.gen(function* () {
          const { method, url } = yield* HttpServerRequest.HttpServerRequest
          const response = yield* underName(Effect.catchCause(effect, answered))
          yield* ServerMetrics.requestAnswered(method, url, response.status)
          return safely(response)
        })
    ),
    { global: true }
  )
