/**
 * The worker of a host: takes durable runs from Temporal, and gives them to the keepers of the host.
 *
 * It holds nothing of a run, so it can be killed at any point.
 */
import { Effect, type Scope } from "effect"
import type { KeeperError } from "./HostKeeper.ts"
import type { HostWorkerOptions } from "./internal/HostWorker.ts"
import { loaded } from "./internal/Sdk.ts"
import type { TemporalFailed } from "./TemporalServer.ts"

/** The offer of a worker, and its server. */
export type RunWorkerOptions = HostWorkerOptions

/**
 * Polls until it is drained or interrupted. An interruption gives the runs back: the next worker of this host follows
 * them.
 */
export const serve = (
  options: RunWorkerOptions
): Effect.Effect<void, TemporalFailed | KeeperError, Scope.Scope> =>
  Effect.flatMap(
    loaded(() => import("./internal/HostWorker.ts")),
    (HostWorker) => HostWorker.serve(options)
  )
