/**
 * Routes for the operator of a server: readiness, metrics, and the API's documentation.
 *
 * They have a separate address, because they need no grant: anyone who reaches the address can see the number of runs,
 * and can make the server query its store and its engine.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { Context, Effect, type FileSystem, Layer, type Path, type Scope } from "effect"
import { type Etag, type HttpPlatform, HttpRouter, type HttpServer, HttpServerResponse } from "effect/http"
import { HttpApiSwagger, OpenApi } from "effect/http-api"
import * as MetricsRoute from "./MetricsRoute.ts"
import * as RequestSpans from "./RequestSpans.ts"
import * as Surroundings from "./Surroundings.ts"
import type { RunRoster } from "./RunRoster.ts"
import * as ServerApi from "../ServerApi.ts"
import * as ServerHealth from "../ServerHealth.ts"

/** Services of the platform that a server requires. */
export type Platform =
  | Etag.Generator
  | FileSystem.FileSystem
  | HttpPlatform.HttpPlatform
  | HttpServer.HttpServer
  | Path.Path

/** Serves the operator's routes until its scope closes. `hostNames` are valid in addition to its address. */
export const layer = (
  hostNames: ReadonlyArray<string>
): Layer.Layer<never, never, Platform | RunRoster | RunStore> =>
  Layer.effectDiscard(
    // Without a separate build, both servers would share one router, and each would serve the routes of both.
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
      MetricsRoute.layer,
      Surroundings.layer(hostNames, { contentPolicy: Surroundings.documentationPolicy })
    ),
    { disableLogger: true, disableListenLog: true }
  ).pipe(Layer.provide(RequestSpans.layer))

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
