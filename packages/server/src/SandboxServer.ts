/**
 * The server: its routes, what goes around them, and how it stops.
 *
 * The platform's HTTP server is given by whoever composes it. When its scope closes it takes no more runs, lets those
 * under way end, and cancels what is left; only then does it stop to listen.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import type { GraphExecutor } from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { AgentCatalog } from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import type { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import type { ObservedEnd } from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { RateLimiter } from "effect/persistence"
import * as Authentication from "./internal/Authentication.ts"
import type { IdempotencyKeys } from "./IdempotencyKeys.ts"
import * as AgentHandler from "./internal/AgentHandler.ts"
import * as ChatHandler from "./internal/ChatHandler.ts"
import * as RunHandlers from "./internal/RunHandlers.ts"
import * as Surroundings from "./internal/Surroundings.ts"
import * as OperatorServer from "./internal/OperatorServer.ts"
import * as RunRoster from "./internal/RunRoster.ts"
import * as ServerApi from "./ServerApi.ts"
import * as ServerHealth from "./ServerHealth.ts"
import * as ServerLimits from "./ServerLimits.ts"
import * as ServerMetrics from "./internal/ServerMetrics.ts"

export interface SandboxServerOptions {
  /** The default for what is not said. */
  readonly limits?: Partial<ServerLimits.ServerLimits> | undefined
  /** For requests that name none. Absent: they are refused. */
  readonly model?: string | undefined
  /** Names in `Host` that it answers to besides the address it listens at and the local ones. */
  readonly hostNames?: ReadonlyArray<string> | undefined
}

/** What it answers from. */
export type Needs = AgentCatalog | GrantStore | GraphExecutor | IdempotencyKeys | RunStore

/** What the platform gives. */
export type Platform = OperatorServer.Platform

/**
 * Serves until its scope closes. With a second platform it answers at that address as well what its operator asks it,
 * until the last run has ended.
 */
export const layer = <E = never, R = never>(
  options: SandboxServerOptions = {},
  operatorPlatform?: Layer.Layer<Platform, E, R>
): Layer.Layer<RunRoster.RunRoster, E, Needs | Platform | R> => {
  const limits = ServerLimits.make(options.limits)
  const operator: Layer.Layer<never, E, RunRoster.RunRoster | RunStore | R> =
    operatorPlatform === undefined
      ? Layer.empty
      : Layer.provide(OperatorServer.layer(options.hostNames ?? []), operatorPlatform)
  // Whatever is beside the server is made before it, and ends after it.
  return drained.pipe(
    Layer.provideMerge(
      HttpRouter.serve(routes(options, limits), { disableLogger: true, disableListenLog: true })
    ),
    Layer.provideMerge(operator),
    Layer.provideMerge(RunRoster.layer(limits)),
    Layer.provide(RateLimiter.layer),
    Layer.provide(RateLimiter.layerStoreMemory)
  )
}

/** The routes alone. */
export const routes = (options: SandboxServerOptions, limits: ServerLimits.ServerLimits) =>
  Layer.mergeAll(
    HttpApiBuilder.layer(ServerApi.ServerApi).pipe(
      Layer.provide([agents, chat(options, limits), runs]),
      Layer.provide([Authentication.layer(limits), ServerApi.layerReadable])
    ),
    ServerHealth.liveness,
    Surroundings.layer(options.hostNames ?? [])
  )

/** Built after the server, and so closed before it. */
const drained = Layer.effectDiscard(
  Effect.flatMap(RunRoster.RunRoster, ({ drain }) => Effect.acquireRelease(Effect.void, () => drain))
)

const agents = HttpApiBuilder.group(
  ServerApi.ServerApi,
  "agents",
  Effect.fnUntraced(function* (handlers) {
    const list = yield* AgentHandler.make
    return handlers.handle("list", () => list)
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
