/**
 * A started sandbox that waits for a run, and what binds it to one (docs/adr/0038-a-pool-without-identity.md).
 *
 * The engine gives it the name of the run and the run's limits. Its attach stream tells it the rest.
 */
import type { Container, ContainerSpec, WaitingContainer } from "@cogni/sandbox-core/ContainerRuntime"
import { mismatches } from "@cogni/sandbox-core/Posture"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { ContainerFailed, PostureMismatch } from "@cogni/sandbox-core/SandboxError"
import { boundTwice } from "@cogni/sandbox-core/WaitingSandbox"
import { Effect } from "effect"
import type { DockerApi, Inspected } from "../../DockerApi.ts"
import type * as EngineContainer from "./EngineContainer.ts"
import * as Hardening from "./Hardening.ts"

interface Opened extends Effect.Success<ReturnType<typeof EngineContainer.open>>, EngineContainer.Asked {
  readonly nameOf: (runId: RunId, role: "agent") => string
}

/** Starts the sandbox, verifies its posture, and lets it wait. */
export const make = Effect.fnUntraced(function* (
  api: DockerApi["Service"],
  { claim, container, hostConfig, nameOf, spec }: Opened
) {
  const posture = yield* container.start
  const found = posture === undefined ? ["the sandbox did not report its posture"] : mismatches(posture, spec)
  if (posture === undefined || found.length > 0) return yield* new PostureMismatch({ mismatches: found })
  let isBound = false

  const bind = Effect.fnUntraced(function* (run: ContainerSpec) {
    if (isBound) return yield* boundTwice
    isBound = true
    const different = differences(spec, run)
    if (different.length > 0) return yield* otherShape(different)
    const runConfig = Hardening.hostConfig(run)
    // While the sandbox reads its claim and reports, because a rename takes the engine as long.
    const onEngine = Effect.all(
      [
        api.rename(container.id, nameOf(run.runId, "agent")),
        isSameSize(hostConfig, runConfig) ? Effect.void : api.update(container.id, sizeOf(runConfig))
      ],
      { concurrency: 2, discard: true }
    )
    // Compares all of the engine's configuration with that of a cold start.
    return { ...container, start: claim({ spec: run, hostConfig: runConfig }, onEngine) } satisfies Container
  })

  return {
    id: container.id,
    posture,
    unusable: Effect.map(
      Effect.all([api.inspect(container.id), api.imageId(spec.image)], { concurrency: 2 }),
      ([inspected, imageId]) => whyUnusable(inspected, imageId)
    ),
    bind
  } satisfies WaitingContainer
})

/** Returns why a sandbox cannot serve a run. Pure. */
export const whyUnusable = (
  inspected: Pick<Inspected, "Image" | "State"> | undefined,
  imageId: string | undefined
): string | undefined => {
  if (inspected === undefined) return "it was removed"
  if (inspected.State.Status !== "running") return `it is ${inspected.State.Status}`
  if (imageId === undefined) return "its image was removed"
  return inspected.Image === imageId ? undefined : "its image was replaced"
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
  ...(run.network.mode === "none" ? [] : ["network"])
]

const otherShape = (fields: ReadonlyArray<string>) =>
  new ContainerFailed({
    operation: "bind",
    detail: `the waiting sandbox differs from what the run asks for: ${fields.join(", ")}`,
    remedy: "Start this run in a container of its own"
  })
