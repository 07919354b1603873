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

/** What the platform gives to a server. */
export type Platform =
  | Etag.Generator
  | FileSystem.FileSystem
  | HttpPlatform.HttpPlatform
  | HttpServer.HttpServer
  | Path.Path

/** Serves until its scope closes, of the server whose roster it is given; under these names besides its own. */
export const layer = (
  hostNames: ReadonlyArray<string>
): Layer.Layer<never, never, Platform | RunRoster | RunStore> =>
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
      ServerHealth.liveness,
      readiness,
      HttpRouter.add(
        "GET",
        "/openapi.json",
        Effect.sync(() => HttpServerResponse.jsonUnsafe(OpenApi.fromApi(ServerApi.ServerApi)))
      ),
      HttpApiSwagger.layer(ServerApi.ServerApi, { path: "/docs" }),
      PrometheusMetrics.layerHttp({ path: "/metrics" }),
      Surroundings.layer(hostNames)
    ),
    { disableLogger: true, disableListenLog: true }
  )

const readiness = HttpRouter.use((router) =>
  Effect.flatMap(ServerHealth.make, (asked) =>
    router.add(
      "GET",
      "/health/ready",
      Effect.map(asked, (found) =>
        HttpServerResponse.jsonUnsafe(found, { status: found.status === "ready" ? 200 : 503 })
      )
    )
  )
)
