/**
 * The port that creates and controls containers.
 *
 * A container is created, then started and *held*: its entrypoint reports the actual posture, and argv does not run
 * before `proceed`. Core only knows this interface. `@cogni/sandbox-docker` implements it on Docker, and
 * `MemoryContainerRuntime.layer` in memory. Both pass `ContainerRuntimeContract`.
 */
import { Context, type Duration, type Effect, type Scope, type Stream } from "effect"
import type { Files } from "./Executor.ts"
import type { CommandExit, SignalName } from "./ExecutorValues.ts"
import type { Command } from "./ExecutorCommand.ts"
import type { PoolLimits } from "./PoolPolicy.ts"
import type { Posture, User } from "./Posture.ts"
import type { RunId } from "./RunId.ts"
import type { OutputChunk } from "./RunResult.ts"
import type { Peak } from "./RunFigures.ts"
import type {
  CommandRefused,
  ContainerFailed,
  FileRefused,
  ImageNotFound,
  PostureMismatch,
  ProxyFailed,
  RuntimeUnavailable
} from "./SandboxReason.ts"
import type { Limits, Network } from "./SpecFields.ts"
import type { Mount, VolumeSpec } from "./ContainerMount.ts"

export type ContainerError = RuntimeUnavailable | ImageNotFound | ContainerFailed

/** Specification of a container. All other settings are fixed. */
export interface ContainerSpec {
  readonly runId: RunId
  /**
   * An `agent` is held until its posture is known, and starts with its image's entrypoint. A `relay` reads what an
   * agent has left: it starts with its own argv, and fails if the engine does not apply the requested settings. The
   * other roles use our own images.
   */
  readonly role: "agent" | "proxy" | "gateway" | "relay"
  readonly image: string
  readonly argv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  readonly user: User
  readonly mounts: ReadonlyArray<Mount>
  readonly network: Network
  /** The container ends itself a few seconds after the time limit and the grace, if this process does not end it. */
  readonly limits: Pick<
    Limits,
    | "memoryBytesMax"
    | "processesMax"
    | "cpusMax"
    | "temporaryBytesMax"
    | "filesOpenMax"
    | "workspaceBytesMax"
    | "runtimeSecondsMax"
  > &
    Partial<Pick<Limits, "stopGraceSecondsMax">>
  /** True for an `agent` whose argv is the supervisor of `SandboxSpec`: it accepts commands as long as it runs. */
  readonly supervised?: boolean | undefined
  /** Program that a sandbox that waits for this run has loaded. Ignored by a container without a wait. */
  readonly preload?: ReadonlyArray<string> | undefined
  /** Written to stdin of a `proxy` at its start. Keeps data out of the engine's configuration. */
  readonly stdin?: string | undefined
}

/** How a container ended. An exit code is a value, never an error. */
export interface ContainerExit {
  readonly exitCode: number
  /** The kernel killed one of its processes, the first or any other, because memory ran out. */
  readonly oomKilled: boolean
  /** The kernel refused to create another process in it. */
  readonly processesRefused: boolean
  /** It ended itself at its deadline, because the host did not end it in time. */
  readonly deadlinePassed?: boolean | undefined
  /**
   * No process of it is left but its first, which only waits for the host. So it may be removed after its run. Nothing
   * works in its mounts any more.
   */
  readonly isEmpty?: boolean | undefined
  readonly peak: Peak
}

/** A command for a supervised container. */
export interface ExecSpec extends Omit<Command, "stdin"> {
  /** A stream is read while the command runs, at its pace, and interrupted when the command closes its input. */
  readonly stdin?: Uint8Array | Stream.Stream<Uint8Array> | undefined
}

/** How a command ended, and what the kernel did to its container meanwhile. */
export interface ExecExit extends CommandExit {
  /** The kernel killed a process of the container because memory ran out while this command ran. */
  readonly oomKilled: boolean
  /** The kernel refused to create a process in the container meanwhile. */
  readonly processesRefused: boolean
}

/** A command that runs in a container. */
export interface Exec {
  /** For one reader. A command whose output is not read blocks after some hundred kilobytes. */
  readonly output: Stream.Stream<OutputChunk, ContainerError>
  /** Settles when its own process and `output` have ended. Fails if it could not be started. */
  readonly exit: Effect.Effect<ExecExit, ContainerError | CommandRefused>
  /** Sends a signal to its process and all descendants. */
  readonly signal: (name: SignalName) => Effect.Effect<void, ContainerError>
}

export interface Container {
  readonly id: string
  /**
   * Start. A container of role `agent` is then held: this succeeds when its entrypoint has reported its posture, and
   * the report, the engine's configuration and (on a local engine) the host's view agree with the spec.
   */
  readonly start: Effect.Effect<Posture | undefined, ContainerError | PostureMismatch>
  /** Let the agent start. Fails if the model proxy does not answer from inside the sandbox. */
  readonly proceed: Effect.Effect<void, ContainerError | ProxyFailed>
  /** All output from the first instruction on, with back-pressure. For one reader; ends with the container. */
  readonly output: Stream.Stream<OutputChunk, ContainerError>
  /** Settles when the container has ended, confirmed by the engine, or when only its first process is left. */
  readonly exit: Effect.Effect<ContainerExit, ContainerError>
  /** Write to standard input of a started `gateway`. Settles when the engine has accepted the bytes. */
  readonly send: (bytes: Uint8Array) => Effect.Effect<void>
  /** Send SIGTERM (end the input, if supervised), then SIGKILL after the grace. Does nothing if it has ended. */
  readonly stop: (grace: Duration.Duration) => Effect.Effect<void, ContainerError>
  /** Pause the container while the effect runs, and resume it afterwards, however the effect ends. */
  readonly whilePaused: <A, E>(effect: Effect.Effect<A, E>) => Effect.Effect<A, E | ContainerError>
  /**
   * Processor time that its processes have used, in microseconds. While it stays the same, none of them has done
   * anything. `undefined`: unknown. Absent: it always is.
   */
  readonly processorMicros?: Effect.Effect<number | undefined> | undefined
  /**
   * Run a command, if the container is supervised. Closing the scope kills its remaining processes, including children
   * that left its session or process group, and waits until they are gone.
   */
  readonly exec: (spec: ExecSpec) => Effect.Effect<Exec, ContainerError | CommandRefused, Scope.Scope>
  /** Files of its workspace, if it is supervised. Every path is resolved inside, never on the host. */
  readonly files: Files<ContainerError | FileRefused>
}

/** Specification of a sandbox that waits for a run. It contains nothing of any run, and its network is `none`. */
type WaitingSpec = Pick<ContainerSpec, "image" | "mounts" | "preload" | "supervised" | "user"> & {
  /** Random. Names the sandbox until a run has it. */
  readonly waitingId: RunId
  /** It ends itself after this time, if no run has got it. */
  readonly waitSecondsMax: number
  readonly limits: Omit<ContainerSpec["limits"], "runtimeSecondsMax" | "stopGraceSecondsMax">
}

/**
 * A started sandbox of verified posture that waits for one run. If its specification has a program to load, that has
 * loaded its code and is stopped.
 */
type WaitingContainer = {
  readonly id: string
  readonly posture: Posture
  /** Memory that it uses, as the kernel counts it. `undefined`: unknown. */
  readonly memoryBytes?: number | undefined
  /** Whether it is known to have ended, without asking the engine. */
  readonly hasEnded: Effect.Effect<boolean>
  /** Why no run may get it: it has ended, or its image was replaced. `undefined` if one may. */
  readonly unusable: Effect.Effect<string | undefined, ContainerError>
  /**
   * Give it to a run. Succeeds at most once. `start` of the container then binds the limits of memory, processes,
   * processors and time, argv and environment, and returns the posture that is reported after that. It fails if the
   * container is unusable, or if the run already has a container. Only `proceed` lets the agent start, as with any
   * container. If `whyUnbound` of the runtime allows it, the workspace of the run may be another directory.
   */
  readonly bind: (spec: ContainerSpec) => Effect.Effect<Container, ContainerError, Scope.Scope>
}

/** How many network namespaces are ready: the policy of waiting sandboxes decides it. */
export interface NetworkOptions {
  readonly limits: PoolLimits
  readonly networksMax: number
  readonly memoryAvailableBytes: Effect.Effect<number | undefined>
}

/** Network namespaces so far. */
export interface NetworkReport {
  readonly ready: number
  /** Containers that got one. */
  readonly hits: number
  /** Containers for which none was ready. */
  readonly misses: number
  /** Why the last one could not be made ready, unless a later one was. */
  readonly failure?: string | undefined
}

export class ContainerRuntime extends Context.Service<
  ContainerRuntime,
  {
    /**
     * Fail if this runtime refuses every container of such limits, whatever the state of its engine. A run asks before
     * anything is made for it, or taken from a pool, and a pool before it is made. Absent: it refuses none.
     */
    readonly checkLimits?:
      | ((spec: Pick<ContainerSpec, "limits" | "role">) => Effect.Effect<void, ContainerFailed>)
      | undefined
    /**
     * Create a container without starting it. Closing the scope removes it, whatever its state. If its exit has said
     * that it is empty, this may go on in the background, and the end of the runtime waits for it.
     */
    readonly acquire: (spec: ContainerSpec) => Effect.Effect<Container, ContainerError, Scope.Scope>
    /**
     * Start a sandbox that waits for a run. Closing the scope removes it, whether or not a run has got it. Absent: this
     * runtime has no waiting sandboxes.
     */
    readonly prepare?:
      | ((
          spec: WaitingSpec
        ) => Effect.Effect<WaitingContainer, ContainerError | PostureMismatch, Scope.Scope>)
      | undefined
    /**
     * Why `bind` of a waiting sandbox cannot give it a directory of this host as its workspace; `undefined` if it can.
     * Absent: this runtime cannot.
     */
    readonly whyUnbound?: Effect.Effect<string | undefined> | undefined
    /**
     * Keep network namespaces ready for the containers of agents that `acquire` creates, until the scope closes. Each
     * serves one container. Returns a report. Absent: this runtime makes each namespace at the start of its container.
     */
    readonly readyNetworks?:
      | ((options: NetworkOptions) => Effect.Effect<Effect.Effect<NetworkReport>, never, Scope.Scope>)
      | undefined
    /** Create a volume; its name is the mount's `source`. Closing the scope removes it. */
    readonly acquireVolume: (spec: VolumeSpec) => Effect.Effect<string, ContainerError, Scope.Scope>
    /** Whether a directory of this host, with the sockets in it, can be mounted into a container. */
    readonly sharesHost: Effect.Effect<boolean, ContainerError>
    /**
     * Names of the containers, volumes and networks that still carry a run's label. Waits for those that are being
     * removed in the background.
     */
    readonly leftovers: (runId: RunId) => Effect.Effect<ReadonlyArray<string>, ContainerError>
  }
>()("@cogni/sandbox-core/ContainerRuntime") {}
