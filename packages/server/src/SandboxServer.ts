/**
 * The server: its routes, what goes around them, and how it stops.
 *
 * The platform's HTTP server is given by whoever composes it. When its scope closes it takes no more runs, lets those
 * under way end, and cancels what is left; only then does it stop to listen.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import type { GraphExecutor } from "@cogni/sandbox-graph-provider/AggregatingGraphExecutor"
import { AgentCatalog } from "@cogni/sandbox-graph-provider/AgentCatalog"
import type { GrantStore } from "@cogni/sandbox-graph-provider/GrantStore"
import type { ObservedEnd } from "@cogni/sandbox-graph-provider/GraphObserver"
import { Cause, Effect, type FileSystem, Layer, type Path, type Types } from "effect"
import {
  type Etag,
  type HttpPlatform,
  HttpRouter,
  type HttpServer,
  HttpServerError,
  HttpServerRequest,
  HttpServerResponse
} from "effect/http"
import { HttpApiBuilder, HttpApiSwagger } from "effect/http-api"
import { PrometheusMetrics } from "effect/observability"
import { RateLimiter } from "effect/persistence"
import * as Authentication from "./Authentication.ts"
import type { IdempotencyKeys } from "./IdempotencyKeys.ts"
import * as AgentHandler from "./internal/AgentHandler.ts"
import * as ChatHandler from "./internal/ChatHandler.ts"
import * as RunHandlers from "./internal/RunHandlers.ts"
import * as Problem from "./Problem.ts"
import * as RunRoster from "./RunRoster.ts"
import * as ServerApi from "./ServerApi.ts"
import * as ServerHealth from "./ServerHealth.ts"
import * as ServerLimits from "./ServerLimits.ts"
import * as ServerMetrics from "./ServerMetrics.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export interface SandboxServerOptions {
  /** The default for what is not said. */
  readonly limits?: Partial<ServerLimits.ServerLimits> | undefined
  /** For requests that name none. Absent: they are refused. */
  readonly model?: string | undefined
}

/** What it answers from. @category models */
export type Needs = AgentCatalog | GrantStore | GraphExecutor | IdempotencyKeys | RunStore

/** What the platform gives. @category models */
export type Platform =
  | Etag.Generator
  | FileSystem.FileSystem
  | HttpPlatform.HttpPlatform
  | HttpServer.HttpServer
  | Path.Path

// -----------------------------------------------------------------------------
// layers
// -----------------------------------------------------------------------------

/** Serves until its scope closes. @category layers */
export const layer = (
  options: SandboxServerOptions = {}
): Layer.Layer<RunRoster.RunRoster, never, Needs | Platform> => {
  const limits = ServerLimits.make(options.limits)
  const served = HttpRouter.serve(routes(options, limits), { disableLogger: true, disableListenLog: true })
  return drained.pipe(
    Layer.provideMerge(served),
    Layer.provideMerge(RunRoster.layer(limits)),
    Layer.provide(RateLimiter.layer),
    Layer.provide(RateLimiter.layerStoreMemory)
  )
}

/** The routes alone. @category layers */
export const routes = (options: SandboxServerOptions, limits: ServerLimits.ServerLimits) =>
  Layer.mergeAll(
    HttpApiBuilder.layer(ServerApi.ServerApi, { openapiPath: "/openapi.json" }).pipe(
      Layer.provide([agents, chat(options, limits), runs]),
      Layer.provide([Authentication.layer(limits), ServerApi.layerReadable])
    ),
    HttpApiSwagger.layer(ServerApi.ServerApi, { path: viewerPath }),
    health,
    PrometheusMetrics.layerHttp({ path: "/metrics" }),
    around
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const viewerPath = "/docs"

/** Built after the server, and so closed before it. */
const drained = Layer.effectDiscard(
  Effect.flatMap(RunRoster.RunRoster, ({ drain }) => Effect.acquireRelease(Effect.void, () => drain))
)

const agents = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "agents",
  Effect.fnUntraced(function* (handlers) {
    const list = yield* AgentHandler.make
    return handlers.handle("list", () => list())
  })
)

const chat = (options: SandboxServerOptions, limits: ServerLimits.ServerLimits) =>
  HttpApiBuilder.group(
    ServerApi.ServerApi,
    "chat",
    Effect.fnUntraced(function* (handlers) {
      const catalog = yield* AgentCatalog
      const observe = (end: ObservedEnd) =>
        Effect.flatMap(catalog.list, (known) =>
          ServerMetrics.runEnded(new Set(known.map(({ graphId }) => graphId)), end)
        )
      const run = yield* ChatHandler.make({ limits, model: options.model, observe })
      return handlers.handleRaw("run", ({ headers, query, request }) =>
        run({ request, protocol: query.protocol, idempotencyKey: headers["idempotency-key"] })
      )
    })
  )

const runs = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "runs",
  Effect.fnUntraced(function* (handlers) {
    const { cancel, get, list } = yield* RunHandlers.make
    // Made here, field by field, and plain data: what a schema would do to it again is nothing.
    return handlers
      .handle("list", ({ query }) =>
        Effect.map(list(query.limit), (found) => HttpServerResponse.jsonUnsafe(found))
      )
      .handle("get", ({ params }) =>
        Effect.map(get(params.id), (found) => HttpServerResponse.jsonUnsafe(found))
      )
      .handle("cancel", ({ params }) => cancel(params.id))
  })
)

const health = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const readiness = yield* ServerHealth.make
    yield* router.add("GET", "/health", HttpServerResponse.jsonUnsafe({ status: "ok" }))
    yield* router.add(
      "GET",
      "/health/ready",
      Effect.map(readiness, (found) =>
        HttpServerResponse.jsonUnsafe(found, { status: found.status === "ready" ? 200 : 503 })
      )
    )
  })
)

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
  Problem.make(
    "not_found",
    "RouteNotFound",
    "there is nothing at this path. See /openapi.json for what there is"
  )
)

const broken = Problem.toResponse(
  Problem.make("internal", "Defect", "something is broken here. Whoever runs this host finds it in the log")
)

/** What nobody else has answered: an unknown path, or a defect, of which the caller is told nothing. */
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

const around = HttpRouter.middleware(
  (effect) =>
    Effect.gen(function* () {
      const { method, url } = yield* HttpServerRequest.HttpServerRequest
      const response = yield* Effect.catchCause(effect, answered)
      yield* ServerMetrics.requestAnswered(method, url, response.status)
      return safely(response)
    }),
  { global: true }
)
