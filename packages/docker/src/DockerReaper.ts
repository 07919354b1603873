/**
 * What removes the resources that a killed host process left behind.
 *
 * A resource is left over when its owner is dead; when the owner cannot be seen from here (another machine, another
 * boot), when its run must long be over. What a living owner holds is never touched, unless somebody says `removeAll`.
 */
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { label } from "@cogni/sandbox-core/ResourceLabels"
import type { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxError"
import { Context, Effect, Layer } from "effect"
import * as DockerApi from "./DockerApi.ts"
import * as HostOwner from "./HostOwner.ts"

export interface ReapReport {
  /** Names of what was removed. */
  readonly removed: ReadonlyArray<string>
  /** Names of what is left over and could not be removed, with the reason. */
  readonly failed: ReadonlyArray<{ readonly name: string; readonly reason: string }>
  /** How many resources belong to living owners. */
  readonly living: number
}

export class DockerReaper extends Context.Service<
  DockerReaper,
  {
    readonly reap: Effect.Effect<ReapReport, ContainerError>
    /** Every labelled resource of this engine, whoever owns it. */
    readonly removeAll: Effect.Effect<ReapReport, ContainerError>
  }
>()("@cogni/sandbox-docker/DockerReaper") {}

/** Whoever uses a thing goes before the thing. */
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

/** Needs a `DockerApi`. Returns a new layer for each call, so that two engines get a reaper each. */
export const layerApi = (): Layer.Layer<DockerReaper, never, DockerApi.DockerApi> =>
  Layer.effect(DockerReaper, make)

export const layer = (options?: DockerApi.Options): Layer.Layer<DockerReaper, RuntimeUnavailable> =>
  Layer.provide(layerApi(), DockerApi.layer(options))
