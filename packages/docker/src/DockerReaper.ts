/**
 * Removes the resources that a killed host process left behind.
 *
 * A resource is orphaned when its owner is dead. An owner on another machine or from another boot cannot be checked:
 * its resource is orphaned once it has expired. Only `removeAll` removes resources of a living owner.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { label } from "@cogni/sandbox-core/ResourceLabels"
import type { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxError"
import { Context, Effect, Layer } from "effect"
import * as DockerApi from "./DockerApi.ts"
import * as HostOwner from "./HostOwner.ts"

export interface ReapReport {
  /** Names of the removed resources. */
  readonly removed: ReadonlyArray<string>
  /** Names of the orphaned resources that could not be removed, with the reason. */
  readonly failed: ReadonlyArray<{ readonly name: string; readonly reason: string }>
  /** Number of resources that were not removed because they are not orphaned. */
  readonly living: number
}

export class DockerReaper extends Context.Service<
  DockerReaper,
  {
    /** Removes the orphaned resources. */
    readonly reap: Effect.Effect<ReapReport, ContainerError>
    /** Removes every labelled resource of this engine, including those of living owners. */
    readonly removeAll: Effect.Effect<ReapReport, ContainerError>
  }
>()("@cogni/sandbox-docker/DockerReaper") {}

/** Containers first, because they use volumes and networks. */
const order = ["container", "volume", "network"] as const

export const make = Effect.gen(function* () {
  const api = yield* DockerApi.DockerApi
  const removeOne = ({ id, kind }: DockerApi.Labelled) =>
    kind === "container" ? api.remove(id) : kind === "volume" ? api.removeVolume(id) : api.removeNetwork(id)

  const remove = Effect.fnUntraced(function* (isOver: (one: DockerApi.Labelled) => boolean) {
    const found = yield* api.labelled(label.run)
    const over = found.filter(isOver)
    const removed: Array<string> = []
    const failed: Array<ReapReport["failed"][number]> = []
    for (const kind of order) {
      yield* Effect.forEach(
        over.filter((one) => one.kind === kind),
        (one) =>
          removeOne(one).pipe(
            Effect.match({
              onSuccess: () => void removed.push(one.name),
              onFailure: (error) => void failed.push({ name: one.name, reason: error.message })
            })
          ),
        { concurrency: 4, discard: true }
      )
    }
    return { removed, failed, living: found.length - over.length } satisfies ReapReport
  })

  return DockerReaper.of({
    reap: Effect.suspend(() => {
      const now = new Date()
      return remove(({ labels }) => HostOwner.isLeftover(labels[label.owner], labels[label.expiresAt], now))
    }),
    removeAll: remove(() => true)
  })
})

/** Requires a `DockerApi`. Returns a new layer on each call, so that each of two engines gets its own reaper. */
export const layerApi = (): Layer.Layer<DockerReaper, never, DockerApi.DockerApi> =>
  Layer.effect(DockerReaper, make)

export const layer = (options?: DockerApi.Options): Layer.Layer<DockerReaper, RuntimeUnavailable> =>
  Layer.provide(layerApi(), DockerApi.layer(options))
