/** A sandbox that waits for a run, and what every implementation of it shares. Pure. */
import type { Effect } from "effect"
import type { ContainerError, ContainerRuntime, ContainerSpec } from "./ContainerRuntime.ts"
import { ContainerFailed, type PostureMismatch } from "./SandboxReason.ts"
import type { WorkspaceRequest } from "./Workspace.ts"

type Prepare = NonNullable<ContainerRuntime["Service"]["prepare"]>

/** Specification of a sandbox that waits for a run. */
export type WaitingSpec = Parameters<Prepare>[0]

/** A started sandbox that waits for one run. */
export type WaitingContainer = Effect.Success<ReturnType<Prepare>>

/** Directories of a sandbox that waits for a run. */
export type PreparedDirectories = NonNullable<WorkspaceRequest["prepared"]>

/** A directory of the host that a run may have as its workspace. */
export type ExaminedDirectory = NonNullable<WorkspaceRequest["examined"]>

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

/** Operations that fail because of what a run asks for: its name, its directory, or its limits. */
const faultsOfRun = { name: "claim", mount: "mount", limits: "update" } as const

/** Returns whether a waiting sandbox is at fault for an error, and neither its run nor an engine that is slow. */
export const isOfSandbox = (error: ContainerError | PostureMismatch): boolean =>
  error._tag === "PostureMismatch" ||
  (error._tag === "ContainerFailed" &&
    !(Object.values(faultsOfRun) as Array<string>).includes(error.operation))

/** The error of a second run that would get the same waiting sandbox. */
export const boundTwice = new ContainerFailed({
  operation: "bind",
  detail: "another run has this sandbox",
  remedy: "Use a sandbox for one run only"
})

/** The error of a run whose ID already names a container. */
export const nameInUse = (name: string): ContainerFailed =>
  new ContainerFailed({
    operation: faultsOfRun.name,
    detail: `the name ${name} is in use`,
    remedy: "Use a fresh run ID, or wait until the other run of this ID has ended"
  })

/** The error of a run whose waiting sandbox cannot be used. */
export const unusable = (
  why: string,
  remedy = "Check its image, and what else changes, signals or removes containers of this engine"
): ContainerFailed =>
  new ContainerFailed({
    operation: "bind",
    detail: `the waiting sandbox cannot be used: ${why}`,
    remedy
  })

/** The error of a run whose directory cannot be bound into its waiting sandbox. */
export const notMounted = (why: string): ContainerFailed =>
  new ContainerFailed({
    operation: faultsOfRun.mount,
    detail: why,
    remedy: "Start this run in a container of its own"
  })

/** The error of a run that asks for something that the waiting sandbox does not have, and cannot get. */
export const otherShape = (fields: ReadonlyArray<string>): ContainerFailed =>
  new ContainerFailed({
    operation: "bind",
    detail: `the waiting sandbox differs from what the run asks for: ${fields.join(", ")}`,
    remedy: "Start this run in a container of its own"
  })

/** Time for a sandbox to load a program, in seconds: longer than the 120 that `cogni-waiter` gives the program. */
export const loadSecondsMax = 130

const loading = "load"

/** Returns whether an error is that of {@link notLoaded}. */
export const isNotLoaded = (error: ContainerError | PostureMismatch): boolean =>
  error._tag === "ContainerFailed" && error.operation === loading

/** The error of a waiting sandbox whose program is of no use before its run. */
export const notLoaded = (why: string): ContainerFailed =>
  new ContainerFailed({
    operation: loading,
    detail: why,
    remedy:
      "Check the preload of the agent. It must be in the image, and write, start and leave nothing before its run"
  })

/** Whether a sandbox has loaded the program that a run asks for. */
export const isSamePreload = (
  one: Pick<ContainerSpec, "preload">,
  other: Pick<ContainerSpec, "preload">
): boolean => JSON.stringify(one.preload ?? []) === JSON.stringify(other.preload ?? [])

/** Returns the host directory that is mounted at a place of the sandbox. */
export const sourceAt = (
  { mounts }: Pick<PreparedDirectories, "mounts">,
  place: string
): string | undefined => mounts.find((mount) => mount.target === place)?.source
