/**
 * What the operator of a server asks it: readiness, metrics, and the description of its API.
 *
 * At an address of its own, because none of it asks for a grant: everyone who reaches the address learns how many
 * runs there are, and can make the server ask its store and its engine.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { Context, Effect, type FileSystem, Layer, type Path, type Scope } from "effect"
import { type Etag, type HttpPlatform, HttpRouter, type HttpServer, HttpServerResponse } from "effect/http"
import { HttpApiSwagger, OpenApi } from "effect/http-api"
import { PrometheusMetrics } from "effect/observability"
import * as Surroundings from "./Surroundings.ts"
import type { RunRoster } from "./RunRoster.ts"
import * as ServerApi from "../ServerApi.ts"
import * as ServerHealth from "../ServerHealth.ts"

export interface OperatorServerOptions {
  /** Further names in `Host` that it answers to. */
  readonly hostNames?: ReadonlyArray<string> | undefined
}

/** What the platform gives to a server. */
export type Platform =
  | Etag.Generator
  | FileSystem.FileSystem
  | HttpPlatform.HttpPlatform
  | HttpServer.HttpServer
  | Path.Path

/** Serves until its scope closes, of the server whose roster it is given. */
export const layer = ({ hostNames = [] }: OperatorServerOptions = {}): Layer.Layer<
  never,
  never,
  Platform | RunRoster | RunStore
> =>
  Layer.effectDiscard(
    // Layers of one build are shared, and so would be the router of the other server: each would answer for both.
    Effect.updateContext(
      Layer.build(served(hostNames)),
      (context: Context.Context<Platform | RunRoster | RunStore | Scope.Scope>) =>
        Context.omit(Layer.CurrentMemoMap)(context)
    )
  )

const served = (hostNames: ReadonlyArray<string>) =>
  HttpRouter.serve(
    Layer.mergeAll(
      health,
      description,
      HttpApiSwagger.layer(ServerApi.ServerApi, { path: "/docs" }),
      PrometheusMetrics.layerHttp({ path: "/metrics" }),
      Surroundings.layer(hostNames)
    ),
    { disableLogger: true, disableListenLog: true }
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

const description = HttpRouter.use((router) =>
  router.add(
    "GET",
    "/openapi.json",
    Effect.sync(() => HttpServerResponse.jsonUnsafe(OpenApi.fromApi(ServerApi.ServerApi)))
  )
)
