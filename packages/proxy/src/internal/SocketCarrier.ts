/**
 * How a run's socket gets from the gateway into its sandbox.
 */
import type { Effect, Scope } from "effect"
import type * as net from "node:net"
import type { Mount } from "@cogni/sandbox-core/ContainerRuntime"
import type { LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import type { RunId } from "@cogni/sandbox-core/RunId"

export interface CarryRequest {
  readonly runId: RunId
  /** The run's own directory on the host, where it has one. */
  readonly directory?: string | undefined
  readonly runtimeSecondsMax: number
}

/** A socket on its way into one sandbox. */
export interface CarriedSocket {
  /** For the agent's container. */
  readonly mounts: ReadonlyArray<Mount>
  /** Where it lies on this host, if it does. */
  readonly hostSocketPath?: string | undefined
  /** Have this server listen where the socket leads; it stops with the scope. */
  readonly listen: (server: net.Server) => Effect.Effect<void, LlmProxyError, Scope.Scope>
  /** Settles when a connection from inside reaches the server. */
  readonly ready: Effect.Effect<void, LlmProxyError>
  /** Never succeeds; fails when the way breaks while the run still needs it. */
  readonly failure: Effect.Effect<never, LlmProxyError>
}

export interface SocketCarrier {
  /** For people and the audit. */
  readonly name: "host directory" | "container"
  readonly acquire: (request: CarryRequest) => Effect.Effect<CarriedSocket, LlmProxyError, Scope.Scope>
}
