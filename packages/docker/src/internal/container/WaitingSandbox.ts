/**
 * A started sandbox that waits for a run, and what binds it to one (docs/adr/0040-a-pool-without-identity.md).
 *
 * The engine gives it the limits of the run, and after the start of the agent its name, because a rename takes the
 * engine longer than everything else. Its attach stream tells it the rest.
 */
import type { Container, ContainerError, ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import { mismatches, type Posture } from "@cogni/sandbox-core/Posture"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { PostureMismatch, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import {
  boundTwice,
  isSamePreload,
  nameInUse,
  otherShape,
  unusable,
  type WaitingContainer
} from "@cogni/sandbox-core/WaitingSandbox"
import { Effect } from "effect"
import type { DockerApi, Inspected } from "../../DockerApi.ts"
import * as DirectoryBinder from "./DirectoryBinder.ts"
import type * as EngineContainer from "./EngineContainer.ts"
import type * as Hardening from "./Hardening.ts"
import type * as MountProgram from "./MountProgram.ts"
import * as RunName from "./RunName.ts"

interface Opened extends Effect.Success<ReturnType<typeof EngineContainer.open>>, EngineContainer.Asked {
  readonly binder: Pick<DirectoryBinder.DirectoryBinder, "bind">
  /** Fails if the runtime would refuse a cold run of a spec. */
  readonly checkLimits: (spec: ContainerSpec) => Effect.Effect<void, ContainerError>
  /** Returns the security settings of a cold run of a spec. */
  readonly hardened: (spec: ContainerSpec) => Hardening.HostConfig
  readonly nameOf: (runId: RunId, role: "agent") => string
  /** Notes which run has the sandbox, until that is removed. `undefined`: the run has another one of this process. */
  readonly noteRun: (runId: RunId) => { readonly noteStart: Effect.Effect<void> } | undefined
}

/** Starts the sandbox, verifies its posture, and lets it wait. */
export const make = Effect.fnUntraced(function* (
  api: DockerApi["Service"],
  {
    binder,
    checkLimits,
    claim,
    container,
    endedNow,
    fail,
    hardened,
    hostConfig,
    inspectAgain,
    load,
    nameOf,
    noteRun,
    spec,
    troubled,
    used
  }: Opened
) {
  // No program that is not ours runs before the posture is verified, also not one that only loads its code.
  const started = yield* verified(spec, yield* container.start)
  const posture = spec.preload === undefined ? started : yield* verified(spec, yield* load(spec.preload))
  let isBound = false
  const { image } = spec
  const waitingName = nameOf(spec.runId, "agent")
  const whyNot = Effect.map(
    Effect.all([inspectAgain, api.named([waitingName])], { concurrency: 2 }),
    ([inspected, named]) =>
      // First, because it can be why the container has ended.
      troubled() ?? whyStopped(inspected) ?? whyMisnamed({ id: container.id, image, named })
  )

  const bind = Effect.fnUntraced(function* (run: ContainerSpec) {
    if (isBound) return yield* boundTwice
    isBound = true
    const different = differences(spec, run)
    if (different.length > 0) return yield* otherShape(different)
    yield* checkLimits(run)
    const name = nameOf(run.runId, "agent")
    const noted = noteRun(run.runId)
    if (noted === undefined) return yield* nameInUse(name)
    const scope = yield* Effect.scope
    const directory = DirectoryBinder.directoryOf(spec.mounts, run.mounts)
    // The engine knows nothing of a directory that is bound.
    const mounts = run.mounts.map((mount) => (mount === directory?.asked ? directory.empty : mount))
    const bindDirectory =
      directory && ((processId: number) => binder.bind(jobOf(container.id, processId, spec, directory.asked)))
    const onEngine = {
      // Says at once which image has the name now, and whether the name of the run is free.
      named: inTime(
        Effect.flatMap(api.named([waitingName, name]), (named) => {
          const why = whyMisnamed({ id: container.id, image, named })
          if (why !== undefined) return Effect.fail(unusable(why))
          return named.every(({ Id }) => Id === container.id) ? Effect.void : Effect.fail(nameInUse(name))
        })
      ),
      inspected: (runConfig: Hardening.HostConfig) => {
        const resized = isSameSize(hostConfig, runConfig)
          ? Effect.void
          : api.update(container.id, sizeOf(runConfig))
        return inTime(
          Effect.tap(Effect.andThen(resized, inspectAgain), (inspected) => {
            const why = whyStopped(inspected)
            return why === undefined ? Effect.void : Effect.fail(unusable(why))
          })
        )
      }
    }
    // If another process has started a run of this ID meanwhile, this one ends.
    const renamed = RunName.give(api, { id: container.id, name, fail })
    return {
      ...container,
      // Compares all of the engine's configuration with that of a cold start.
      start: claim({ spec: run, hostConfig: () => hardened({ ...run, mounts }) }, onEngine, bindDirectory),
      proceed: noted.noteStart.pipe(
        Effect.andThen(container.proceed),
        Effect.andThen(Effect.forkIn(renamed, scope)),
        Effect.asVoid
      )
    } satisfies Container
  })

  return {
    id: container.id,
    posture,
    memoryBytes: spec.preload === undefined ? undefined : used(),
    hasEnded: Effect.sync(endedNow),
    unusable: whyNot,
    bind
  } satisfies WaitingContainer
})

const jobOf = (
  containerId: string,
  processId: number,
  { mounts, preload }: Pick<ContainerSpec, "mounts" | "preload">,
  { held, source, target }: Mount
): MountProgram.Job => ({
  processId,
  containerId,
  path: source,
  // Without an identity, no directory is the right one.
  device: held?.device ?? "",
  inode: held?.inode ?? "",
  target,
  hasInputs: mounts.some((mount) => mount.target === `${target}/.cogni`),
  hasLoaded: preload !== undefined
})

/** Returns the reported posture, or fails with its mismatches. */
const verified = (spec: ContainerSpec, posture: Posture | undefined) => {
  const found = posture === undefined ? ["the sandbox did not report its posture"] : mismatches(posture, spec)
  return posture === undefined || found.length > 0
    ? Effect.fail(PostureMismatch.of(found))
    : Effect.succeed(posture)
}

/** Time for the engine to do its part of a claim. After it, the run starts cold. */
const engineSecondsMax = 5

const tooSlow = new RuntimeUnavailable({
  detail: `did not give a waiting sandbox to its run within ${engineSecondsMax} s`,
  remedy: "Check its load and its log"
})

/** Bounds the part of a claim that the engine does. */
export const inTime = <A>(onEngine: Effect.Effect<A, ContainerError>): Effect.Effect<A, ContainerError> =>
  Effect.timeoutOrElse(onEngine, {
    duration: `${engineSecondsMax} seconds`,
    orElse: () => Effect.fail(tooSlow)
  })

/** Returns why a container cannot serve a run, from what the engine says about it. Pure. */
export const whyStopped = (
  inspected: Pick<Inspected, "ExecIDs" | "State"> | undefined
): string | undefined => {
  if (inspected === undefined) return "it was removed"
  if (inspected.State.Status !== "running") return `it is ${inspected.State.Status}`
  // Its starter could have changed it, and could still read what the run does.
  return (inspected.ExecIDs ?? []).length > 0
    ? "another program was started in it while it waited"
    : undefined
}

/** Returns why a container of an image cannot serve a run, from the containers that have some names. Pure. */
export const whyMisnamed = ({
  id,
  image,
  named
}: {
  readonly id: string
  readonly image: string
  readonly named: ReadonlyArray<{ readonly Id: string; readonly Image: string }>
}): string | undefined => {
  const own = named.find(({ Id }) => Id === id)
  if (own === undefined) return "it was renamed"
  return own.Image === image ? undefined : "its image was replaced or removed"
}

/** Settings that the engine can change while a container runs. */
const sizeOf = ({ CpuPeriod, CpuQuota, Memory, MemorySwap, PidsLimit }: Hardening.HostConfig) => ({
  CpuPeriod,
  CpuQuota,
  Memory,
  MemorySwap,
  PidsLimit
})

const isSameSize = (one: Hardening.HostConfig, other: Hardening.HostConfig): boolean =>
  JSON.stringify(sizeOf(one)) === JSON.stringify(sizeOf(other))

/** Returns what a run asks for that the posture check does not compare, and that a sandbox cannot change. Pure. */
export const differences = (waiting: ContainerSpec, run: ContainerSpec): ReadonlyArray<string> => [
  ...(run.role === "agent" ? [] : ["role"]),
  ...(run.image === waiting.image ? [] : ["image"]),
  ...((run.supervised === true) === (waiting.supervised === true) ? [] : ["supervised"]),
  ...(run.user.userId === waiting.user.userId && run.user.groupId === waiting.user.groupId ? [] : ["user"]),
  ...(isSamePreload(waiting, run) ? [] : ["preload"]),
  ...(run.network.mode === "none" ? [] : ["network"])
]
