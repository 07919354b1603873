/**
 * Middleware for every route of a server: checks the `Host` name, counts the response, adds security headers for
 * browsers, and answers unknown paths and defects.
 */
import { Cause, Effect, type Types } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import * as HostNames from "../HostNames.ts"
import type { MethodsOf } from "./AllowedMethods.ts"
import * as Problem from "./Problem.ts"
import * as ServerMetrics from "./ServerMetrics.ts"

/** For answers that no browser needs to render: they load and run nothing, and no page can embed them. */
export const policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** For the documentation of the API, whose page contains its script and its style. */
export const documentationPolicy =
  "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; " +
  "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const safely = (policy: string) => (response: HttpServerResponse.HttpServerResponse) =>
  HttpServerResponse.setHeaders(response, {
    // No cache between the server and one caller may answer another one.
    "cache-control": response.headers["cache-control"] ?? "private, no-store",
    // A response can have its own policy.
    "content-security-policy": response.headers["content-security-policy"] ?? policy,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff"
  })

const noRoute = Problem.toResponse(
  Problem.make(
    "not_found",
    "RouteNotFound",
    "this path does not exist. docs/guides/server.md lists the paths and their methods"
  )
)

/** Answers a request for a path that other methods have. */
const otherMethod = (method: string, methods: ReadonlyArray<string>) =>
  HttpServerResponse.setHeader(
    Problem.toResponse(
      Problem.make(
        "method_not_allowed",
        "MethodNotAllowed",
        `this path does not answer ${method}. Use ${methods.join(" or ")}`
      )
    ),
    "allow",
    methods.join(", ")
  )

const broken = Problem.toResponse(
  Problem.make("internal", "Defect", "an internal error occurred. The operator can find it in the log")
)

/** Answers an unknown path, a method that a path does not have, or a defect. The caller gets no details of a defect. */
const answered = (
  cause: Cause.Cause<Types.unhandled>,
  { method, url }: Pick<HttpServerRequest.HttpServerRequest, "method" | "url">,
  methodsOf: MethodsOf
): Effect.Effect<HttpServerResponse.HttpServerResponse, Types.unhandled> => {
  const error = Cause.squash(cause)
  if (HttpServerError.isHttpServerError(error) && error.reason._tag === "RouteNotFound") {
    const methods = methodsOf(url.split("?")[0]!)
    return Effect.succeed(methods.length === 0 ? noRoute : otherMethod(method, methods))
  }
  return Cause.hasInterruptsOnly(cause)
    ? Effect.failCause(cause)
    : Effect.as(Effect.logError("a request failed unexpectedly", cause), broken)
}

interface SurroundingsOptions {
  /** Default content security policy of responses. */
  readonly contentPolicy?: string | undefined
  /** Methods of the paths of this server, for requests with another one. */
  readonly methodsOf?: MethodsOf | undefined
}

/** Applies to all routes of the router with which the layer is merged. */
export const layer = (
  hostNames: ReadonlyArray<string>,
  { contentPolicy = policy, methodsOf = () => [] }: SurroundingsOptions = {}
) =>
  HttpRouter.middleware(
    Effect.map(
      HostNames.checked(hostNames),
      (underName) => (effect: Effect.Effect<HttpServerResponse.HttpServerResponse, Types.unhandled>) =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          const response = yield* underName(
            Effect.catchCause(effect, (cause) => answered(cause, request, methodsOf))
          )
          yield* ServerMetrics.requestAnswered(request.method, request.url, response.status)
          return safely(contentPolicy)(response)
        })
    ),
    { global: true }
  )
