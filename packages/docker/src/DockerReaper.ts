/**
 * Removes the resources that a killed host process left behind: on demand, and when `DockerContainerRuntime.layer`
 * starts.
 *
 * A resource is orphaned when its owner is dead. An owner on another machine or from another boot cannot be checked:
 * its resource is orphaned once it has expired. Only `removeAll` removes resources of a living owner. The small files
 * that sandboxes of this host mount as their `/etc/hosts` go in the same way, and are not reported.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { label } from "@cogni/sandbox-core/ResourceLabels"
import type { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { Context, Duration, Effect, Fiber, Layer, type Scope } from "effect"
import * as DockerApi from "./DockerApi.ts"
import * as HostOwner from "./HostOwner.ts"
import * as HostsFile from "./internal/container/HostsFile.ts"
import * as ReapMetrics from "./internal/ReapMetrics.ts"

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
    /** Returns what `reap` would remove, or with `all` what `removeAll` would, and removes nothing. */
    readonly preview: (options: { readonly all: boolean }) => Effect.Effect<ReapReport, ContainerError>
    /**
     * Removes the orphaned resources at the start of a service. Settles after 5 s at the latest, and goes on until the
     * scope closes. Never fails, so that a slow or missing engine prevents no start: a failure is a warning.
     */
    readonly reapAtStart: Effect.Effect<void, never, Scope.Scope>
    /** Removes every labelled resource of this engine, including those of living owners. */
    readonly removeAll: Effect.Effect<ReapReport, ContainerError>
  }
>()("@cogni/sandbox-docker/DockerReaper") {}

/** How many seconds a start waits for the removal of leftovers, which then goes on in the background. */
const startSecondsMax = 5

/** Names in a warning, so that it stays one line. */
const namesShownMax = 5

const nextTime = `The next start tries again, as does ${named("DockerReaper")}`

/** Logs a failure as a warning: the resources stay until the next start. */
const orWarn = (reap: Effect.Effect<ReapReport, ContainerError>): Effect.Effect<void> =>
  Effect.matchEffect(reap, {
    onFailure: ({ message }) =>
      Effect.logWarning(`resources of dead host processes could not be removed: ${message}. ${nextTime}`),
    onSuccess: ({ failed }) => {
      const shown = failed.slice(0, namesShownMax).map(({ name, reason }) => `${name} (${reason})`)
      return failed.length === 0
        ? Effect.void
        : Effect.logWarning(
            `${failed.length} resources of dead host processes could not be removed: ${shown.join("; ")}. ${nextTime}`
          )
    }
  })

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
            Effect.matchEffect({
              onSuccess: () => {
                removed.push(one.name)
                return ReapMetrics.found(kind, "removed")
              },
              onFailure: (error) => {
                failed.push({ name: one.name, reason: error.message })
                return ReapMetrics.found(kind, "failed")
              }
            })
          ),
        { concurrency: 4, discard: true }
      )
    }
    return { removed, failed, living: found.length - over.length } satisfies ReapReport
  })

  const isOrphaned =
    (now: Date) =>
    ({ labels }: DockerApi.Labelled) =>
      HostOwner.isOrphaned(labels[label.owner], labels[label.expiresAt], now)

  // The files last, when no container of their owners is left.
  const reap = Effect.suspend(() => remove(isOrphaned(new Date()))).pipe(Effect.tap(HostsFile.sweep()))

  return DockerReaper.of({
    reap,
    preview: ({ all }) =>
      Effect.map(api.labelled(label.run), (found) => {
        const over = all ? found : found.filter(isOrphaned(new Date()))
        return { removed: over.map(({ name }) => name), failed: [], living: found.length - over.length }
      }),
    reapAtStart: Effect.gen(function* () {
      const reaping = yield* Effect.forkScoped(orWarn(reap), { startImmediately: true })
      yield* Effect.timeoutOption(Fiber.await(reaping), Duration.seconds(startSecondsMax))
    }),
    removeAll: Effect.tap(
      remove(() => true),
      HostsFile.sweep()
    )
  })
})

/** Requires a `DockerApi`. Returns a new layer on each call, so that each of two engines gets its own reaper. */
export const layerApi = (): Layer.Layer<DockerReaper, never, DockerApi.DockerApi> =>
  Layer.effect(DockerReaper, make)

export const layer = (options?: DockerApi.Options): Layer.Layer<DockerReaper, RuntimeUnavailable> =>
  Layer.provide(layerApi(), DockerApi.layer(options))
