/**
 * Liveness and metrics alone, for a program that serves no runs. Like the operator's routes of a server, they need no
 * grant: anyone who reaches the address can see the number of runs.
 */
import { Layer } from "effect"
import { HttpRouter } from "effect/http"
import * as MetricsRoute from "./internal/MetricsRoute.ts"
import type { Platform } from "./internal/OperatorServer.ts"
import * as RequestSpans from "./internal/RequestSpans.ts"
import * as Surroundings from "./internal/Surroundings.ts"
import * as ServerHealth from "./ServerHealth.ts"

/** Serves `/health` and `/metrics` until its scope closes. `hostNames` are valid in addition to its address. */
export const layer = (hostNames: ReadonlyArray<string> = []): Layer.Layer<never, never, Platform> =>
  HttpRouter.serve(Layer.mergeAll(ServerHealth.liveness, MetricsRoute.layer, Surroundings.layer(hostNames)), {
    disableLogger: true,
    disableListenLog: true
  }).pipe(Layer.provide(RequestSpans.layer))
