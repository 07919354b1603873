/** Port that brings a run's socket from the gateway into its sandbox. */
import type { Effect, Scope } from "effect"
import { basename } from "node:path"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import * as HostDisk from "../HostDisk.ts"
import { type LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import { socketPath } from "@cogni/sandbox-core/SandboxPlace"

export const failure = "the socket cannot be created"

/** Directory for the socket if the run has no directory. */
export const temporaryDirectory = HostDisk.temporaryDirectory(failure, "cogni-sandbox-socket-")

export const socketName = basename(socketPath)

/** A socket that is carried into one sandbox. */
export interface CarriedSocket {
  /** Mounts of the agent's container. */
  readonly mounts: ReadonlyArray<Mount>
  /** Path of the sandbox's socket on this host, if it is on this host. */
  readonly hostSocketPath?: string | undefined
  /** Directory on this host in which the gateway must listen, on a socket named `socketName`. */
  readonly directory: string
  /** Connects the sandbox's socket to the gateway, which must already listen. Settles when the sandbox can connect. */
  readonly open: Effect.Effect<void, LlmProxyError>
  /** Never succeeds. Fails if the carrier breaks while the run still needs it. */
  readonly failure: Effect.Effect<never, LlmProxyError>
}

export interface SocketCarrier {
  /** Name for people and the audit. */
  readonly name: "host directory" | "container"
  /**
   * `runDirectory` is the run's directory on the host, if it has one. `socketMount` is an empty directory that the
   * sandbox has for the socket already; only the carrier with host directories can use it.
   */
  readonly acquire: (
    runDirectory?: string,
    socketMount?: Mount
  ) => Effect.Effect<CarriedSocket, LlmProxyError, Scope.Scope>
}
