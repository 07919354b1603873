/**
 * The port through which a run gets its containers.
 *
 * A container is created, then started and *held*: its entrypoint reports how it is really held, and nothing of argv
 * has run until `proceed`. Core only knows this interface. `@cogni/sandbox-docker` provides the real one;
 * `layerMemory` (in `MemoryContainerRuntime.ts`) keeps containers in a map. Both pass `ContainerRuntimeContract`.
 */
import { Context, type Duration, type Effect, type Scope, type Stream } from "effect"
import type { Command, CommandExit, Files, SignalName } from "./Executor.ts"
import type { HeldIdentity, Posture, User } from "./Posture.ts"
import type { Role } from "./ResourceLabels.ts"
import type { RunId } from "./RunId.ts"
import type { OutputChunk, Peak } from "./RunResult.ts"
import type {
  CommandRefused,
  ContainerFailed,
  FileRefused,
  ImageNotFound,
  PostureMismatch,
  ProxyFailed,
  RuntimeUnavailable
} from "./SandboxError.ts"
import type { Limits, Network } from "./SandboxSpec.ts"

export type ContainerError = RuntimeUnavailable | ImageNotFound | ContainerFailed

/**
 * The first process of a supervised container, which runs the commands that come to it. In every image that is built on
 * the runtime's.
 */
export const supervisor = "/usr/local/bin/cogni-supervisor"

/** A directory of the host, or a volume of the engine, seen from inside. */
export interface Mount {
  readonly type: "directory" | "volume"
  readonly source: string
  readonly target: string
  readonly readOnly: boolean
  /** The directory that must be there, or the agent does not start. */
  readonly held?: HeldIdentity | undefined
}

/** A small memory-backed volume that two containers of one run share. */
export interface VolumeSpec {
  readonly runId: RunId
  readonly role: Role
  readonly owner: User
  readonly bytesMax: number
  readonly filesMax: number
  /** The run's own limit, from which the labels say when a leftover is over. */
  readonly runtimeSecondsMax: number
  /** Tells volumes of the same run and role apart. */
  readonly index?: number | undefined
}

/** What a container is asked to be. Whatever is not here is not up for choice. */
export interface ContainerSpec {
  readonly runId: RunId
  /**
   * An `agent` is held until its posture is known, and starts with its image's entrypoint. A `relay` reads what an agent
   * has left: it starts with its own argv, and fails when the engine does not hold it as asked. The others are images
   * of ours.
   */
  readonly role: "agent" | "proxy" | "gateway" | "relay"
  readonly image: string
  readonly argv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  readonly user: User
  readonly mounts: ReadonlyArray<Mount>
  readonly network: Network
  readonly limits: Pick<
    Limits,
    | "memoryBytesMax"
    | "processesMax"
    | "cpusMax"
    | "temporaryBytesMax"
    | "filesOpenMax"
    | "workspaceBytesMax"
    | "runtimeSecondsMax"
  >
  /** Of an `agent` whose argv is {@link supervisor}: it takes commands for as long as it lives. */
  readonly supervised?: boolean | undefined
  /** Sent on stdin at the start and then closed: the way in for what must not be in the engine's configuration. */
  readonly stdin?: string | undefined
}

/** How a container ended. An exit code is a value, never an error. */
export interface ContainerExit {
  readonly exitCode: number
  /** The kernel killed a process of it for want of memory: the first, or any other. */
  readonly oomKilled: boolean
  /** The kernel refused it a process. */
  readonly processesRefused: boolean
  readonly peak: Peak
}

/** A command for a container that is supervised. */
export type ExecSpec = Command

/** How a command ended, and what the kernel did to its container meanwhile. */
export interface ExecExit extends CommandExit {
  /** The kernel killed a process of the container for want of memory while this command ran. */
  readonly oomKilled: boolean
  /** The kernel refused the container a process meanwhile. */
  readonly processesRefused: boolean
}

/** A command that runs in a container. */
export interface Exec {
  /** For one reader. A command that nobody listens to waits, once it has written some hundred kilobytes. */
  readonly output: Stream.Stream<OutputChunk, ContainerError>
  /** Settles when its own process has ended, and `output` with it. Fails where it could not be started. */
  readonly exit: Effect.Effect<ExecExit, ContainerError | CommandRefused>
  /** To its process and all that came of it. */
  readonly signal: (name: SignalName) => Effect.Effect<void, ContainerError>
}

export interface Container {
  readonly id: string
  /**
   * Start. A container of role `agent` is then held: this succeeds when its entrypoint has reported and the report,
   * the engine's configuration and (on a local engine) the host's view agree with the spec.
   */
  readonly start: Effect.Effect<Posture | undefined, ContainerError | PostureMismatch>
  /** Let the agent's first instruction happen. Fails when the way to the model does not answer from inside. */
  readonly proceed: Effect.Effect<void, ContainerError | ProxyFailed>
  /** All output from the first instruction on, with back-pressure. For one reader; ends with the container. */
  readonly output: Stream.Stream<OutputChunk, ContainerError>
  /** Settles when the container has ended, confirmed by the engine. */
  readonly exit: Effect.Effect<ContainerExit, ContainerError>
  /** Write to its standard input, once it is started and if its role is `gateway`; settles when the engine has taken it. */
  readonly send: (bytes: Uint8Array) => Effect.Effect<void>
  /** SIGTERM, and SIGKILL after the grace. Of a container that has ended: nothing. */
  readonly stop: (grace: Duration.Duration) => Effect.Effect<void, ContainerError>
  /** Nothing inside runs while this effect does, and goes on after it, however it ends. */
  readonly whilePaused: <A, E>(effect: Effect.Effect<A, E>) => Effect.Effect<A, E | ContainerError>
  /**
   * Run a command, if the container is supervised. Closing the scope kills what still runs of it, children that have
   * left its session or its group too, and settles when they are gone.
   */
  readonly exec: (spec: ExecSpec) => Effect.Effect<Exec, ContainerError | CommandRefused, Scope.Scope>
  /** Files of its workspace, if it is supervised: every path is resolved inside, never on the host. */
  readonly files: Files<ContainerError | FileRefused>
}

export class ContainerRuntime extends Context.Service<
  ContainerRuntime,
  {
    /** Create a container, not started. Closing the scope removes it, whatever state it is in. */
    readonly acquire: (spec: ContainerSpec) => Effect.Effect<Container, ContainerError, Scope.Scope>
    /** Create a volume; its name is the mount's `source`. Closing the scope removes it. */
    readonly acquireVolume: (spec: VolumeSpec) => Effect.Effect<string, ContainerError, Scope.Scope>
    /** Whether a directory of this host, and a socket that lives in it, can be mounted into a container. */
    readonly sharesHost: Effect.Effect<boolean, ContainerError>
    /** Names of what still carries a run's label: containers, volumes, networks. */
    readonly leftovers: (runId: RunId) => Effect.Effect<ReadonlyArray<string>, ContainerError>
  }
>()("@cogni/sandbox-core/ContainerRuntime") {}
