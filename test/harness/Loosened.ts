/** A container like a sandbox's, without one defense. A probe must detect the difference. */
import type { ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { label } from "@cogni/sandbox-core/ResourceLabels"
import * as RunId from "@cogni/sandbox-core/RunId"
import { DockerApi } from "@cogni/sandbox-docker/DockerApi"
import { hostConfig } from "../../packages/docker/src/internal/container/Hardening.ts"
import { Effect } from "effect"
import { docker } from "./Docker.ts"
import * as Engine from "./Engine.ts"
import * as Images from "./Images.ts"
import * as Pace from "./Pace.ts"

const MiB = 1024 ** 2

/** Limits that are small enough to be measured from inside. */
export const limits = {
  runtimeSecondsMax: Pace.runSecondsMax,
  memoryBytesMax: 192 * MiB,
  processesMax: 48,
  temporaryBytesMax: 8 * MiB,
  workspaceBytesMax: 64 * MiB,
  filesOpenMax: 256,
  cpusMax: 0.5
}

export interface Loosened {
  readonly script: string
  /** Settings that remove the defense. */
  readonly without: {
    readonly hostConfig?: Record<string, unknown>
    readonly user?: string
    /** Runs the script, its last argument, in place of bash. */
    readonly firstProcess?: ReadonlyArray<string>
  }
}

/** Runs the script with `bash -c`; returns its output. */
export const run = Effect.fnUntraced(function* (
  { script, without }: Loosened,
  mounts: ContainerSpec["mounts"] = []
) {
  const api = yield* DockerApi
  const runId = yield* RunId.generate
  const spec: ContainerSpec = {
    runId,
    role: "agent",
    image: Images.runtime,
    argv: [],
    env: {},
    user: { userId: 1000, groupId: 1000 },
    mounts,
    network: { mode: "none" },
    limits
  }
  const id = yield* Effect.acquireRelease(
    api.create({
      name: `cogni-${runId}-loosened`,
      image: Images.runtime,
      entrypoint: without.firstProcess ?? ["bash", "-c"],
      argv: [script],
      env: [],
      user: without.user ?? "1000:1000",
      labels: { "dev.cogni.test": label.run },
      hostConfig: {
        ...hostConfig(spec, Engine.runtime),
        LogConfig: { Type: "json-file" },
        ...without.hostConfig
      }
    }),
    (created) => Effect.orDie(api.remove(created))
  )
  yield* api.start(id)
  yield* docker("wait", id)
  return yield* docker("logs", id)
}, Effect.scoped)
