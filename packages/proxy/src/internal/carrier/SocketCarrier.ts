/** How a run's socket gets from the gateway into its sandbox. */
import type { Effect, Scope } from "effect"
import { basename } from "node:path"
import type { Mount } from "@cogni/sandbox-core/ContainerRuntime"
import * as HostDisk from "../HostDisk.ts"
import { type LlmProxyError, socketPath } from "@cogni/sandbox-core/LlmProxy"

export const failure = "the socket cannot be made"

/** For the socket of a run that has no directory of its own. */
export const temporaryDirectory = HostDisk.temporaryDirectory(failure, "cogni-sandbox-socket-")

export const socketName = basename(socketPath)

/** A socket on its way into one sandbox. */
export interface CarriedSocket {
  /** For the agent's container. */
  readonly mounts: ReadonlyArray<Mount>
  /** Where it lies on this host, if it does. */
  readonly hostSocketPath?: string | undefined
  /** Where on this host the gateway has to listen, with a socket of this name. */
  readonly directory: string
  /** Once the gateway listens: let the sandbox's socket lead there. Settles when a connection from inside arrives. */
  readonly open: Effect.Effect<void, LlmProxyError>
  /** Never succeeds; fails when the way breaks while the run still needs it. */
  readonly failure: Effect.Effect<never, LlmProxyError>
}

export interface SocketCarrier {
  /** For people and the audit. */
  readonly name: "host directory" | "container"
  /** `runDirectory` is the run's own on the host, where it has one. */
  readonly acquire: (runDirectory?: string) => Effect.Effect<CarriedSocket, LlmProxyError, Scope.Scope>
}
