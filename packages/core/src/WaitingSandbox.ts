/** A sandbox that waits for a run, and what every implementation of it shares. Pure. */
import type { Effect, Scope } from "effect"
import type { Container, ContainerError, ContainerSpec, Mount } from "./ContainerRuntime.ts"
import type { Posture, User } from "./Posture.ts"
import type { RunId } from "./RunId.ts"
import { ContainerFailed, type HostFailed } from "./SandboxError.ts"

/** Specification of a sandbox that waits for a run. It contains nothing of any run, and its network is `none`. */
export interface WaitingSpec extends Pick<ContainerSpec, "image" | "mounts" | "supervised" | "user"> {
  /** Random. Names the sandbox until a run has it. */
  readonly waitingId: RunId
  /** It ends itself after this time, if no run has got it. */
  readonly waitSecondsMax: number
  readonly limits: Omit<ContainerSpec["limits"], "runtimeSecondsMax" | "stopGraceSecondsMax">
}

/** A started sandbox of verified posture that waits for one run. */
export interface WaitingContainer {
  readonly id: string
  readonly posture: Posture
  /** Whether it is known to have ended, without asking the engine. */
  readonly hasEnded: Effect.Effect<boolean>
  /** Why no run may get it: it has ended, or its image was replaced. `undefined` if one may. */
  readonly unusable: Effect.Effect<string | undefined, ContainerError>
  /**
   * Give it to a run. Succeeds at most once. `start` of the container then binds the limits of memory, processes,
   * processors and time, argv and environment, and returns the posture that is reported after that. It fails if the
   * container is unusable, or if the run already has a container. Only `proceed` lets the agent start, as with any
   * container.
   */
  readonly bind: (spec: ContainerSpec) => Effect.Effect<Container, ContainerError, Scope.Scope>
}

/**
 * Directories of a sandbox that waits for a run: a workspace, inputs and a place for a socket, all of them empty and
 * already mounted.
 */
export interface PreparedDirectories {
  /** Every mount of the sandbox. */
  readonly mounts: ReadonlyArray<Mount>
  readonly user: User
  /** Whether `.cogni` in the workspace belongs to the agent. */
  readonly memory: boolean
  /** Remove whatever others left in the workspace: a run starts cold in it. */
  readonly clean: Effect.Effect<void, HostFailed>
}

/** Returns the specification of a waiting sandbox as that of a container without a run and without a program. */
export const asContainer = ({ waitSecondsMax, waitingId, ...spec }: WaitingSpec): ContainerSpec => ({
  ...spec,
  runId: waitingId,
  role: "agent",
  argv: [],
  env: {},
  network: { mode: "none" },
  limits: { ...spec.limits, runtimeSecondsMax: waitSecondsMax }
})

/** The error of a second run that would get the same waiting sandbox. */
export const boundTwice = new ContainerFailed({
  operation: "bind",
  detail: "another run has this sandbox",
  remedy: "Use a sandbox for one run only"
})

/** The error of a run whose ID already names a container. */
export const nameInUse = (name: string): ContainerFailed =>
  new ContainerFailed({
    operation: "bind",
    detail: `the name ${name} is in use`,
    remedy: "Use a fresh run ID, or wait until the other run of this ID has ended"
  })

/** The error of a run whose waiting sandbox cannot be used. */
export const unusable = (why: string): ContainerFailed =>
  new ContainerFailed({
    operation: "bind",
    detail: `the waiting sandbox cannot be used: ${why}`,
    remedy: "Start this run in a container of its own"
  })

/** Returns the host directory that is mounted at a place of the sandbox. */
export const sourceAt = (
  { mounts }: Pick<PreparedDirectories, "mounts">,
  place: string
): string | undefined => mounts.find((mount) => mount.target === place)?.source
