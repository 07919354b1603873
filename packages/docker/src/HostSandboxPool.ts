/** A pool of waiting sandboxes that watches the memory of this host. */
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { ContainerFailed, InvalidSpec } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import type { Workspace } from "@cogni/sandbox-core/Workspace"
import { Effect, Layer } from "effect"
import * as HostMemory from "./internal/host/HostMemory.ts"
import * as PoolReports from "./internal/host/PoolReports.ts"

interface HostPoolOptions extends Omit<SandboxPool.PoolOptions, "memoryAvailableBytes"> {
  /** Directory into which the pool writes what it did, for `DockerDoctor`. Default: nothing is written. */
  readonly reports?: string | undefined
}

/** A pool for the runs of this process. Provide it to the layer of the runner. */
export const layer = ({ reports, ...options }: HostPoolOptions = {}): Layer.Layer<
  never,
  InvalidSpec | ContainerFailed,
  ContainerRuntime | Workspace
> => {
  const pool = SandboxPool.layer({ ...options, memoryAvailableBytes: HostMemory.availableBytes })
  if (reports === undefined) return pool
  const written = Effect.flatMap(SandboxPool.SandboxPool, ({ report }) =>
    PoolReports.written(reports, report)
  )
  return Layer.provideMerge(Layer.effectDiscard(written), pool)
}
