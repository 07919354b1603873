/** A runner in memory with a pool, whose waiting sandboxes can be killed, refused and replaced. */
import {
  ContainerRuntime,
  LlmProxy,
  MemoryContainerRuntime,
  RunStore,
  SandboxRunner,
  Workspace
} from "@cogni/sandbox-core"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import { notLoaded, sourceAt } from "@cogni/sandbox-core/WaitingSandbox"
import { Effect, Layer } from "effect"

const failed = (detail: string) =>
  new SandboxReason.ContainerFailed({ operation: "planted", detail, remedy: "Take it out" })

/** Troubles of waiting sandboxes. A test changes them at any time. */
export interface Troubles {
  /** Starts of waiting sandboxes fail. */
  prepareFails: boolean
  /** Starts of waiting sandboxes of this image fail. */
  missingImage: string | undefined
  /** Starts of waiting sandboxes have a defect. */
  prepareDies: boolean
  /** The runtime refuses containers with fewer processes. */
  processesMin: number
  /** A sandbox cannot be bound to its run, because of this error. */
  bindFails: boolean | ContainerRuntime.ContainerError
  /** The program that a sandbox has loaded is of no use to its run. */
  programFails: boolean
  /** How long it takes to bind a sandbox to its run. */
  bindMillis: number
  /** A bound sandbox does not have the posture that it had. */
  postureDiffers: boolean
  /** Number of times that the image was rebuilt. */
  images: number
  /** How long a waiting sandbox takes to start. */
  prepareMillis: number
  /** Memory of a waiting sandbox that has loaded a program. */
  loadedBytes: number
  /** How long the engine takes to say whether a sandbox can be used. */
  lookMillis: number
  /** How long the engine takes to remove a sandbox that waited. */
  removeMillis: number
}

export interface Seen {
  /** Attempts to start a waiting sandbox. */
  asked: number
  /** IDs of the waiting sandboxes, in the order of their starts. */
  readonly prepared: Array<string>
  /** IDs of the waiting sandboxes that a run was bound to. */
  readonly bound: Array<string>
  /** IDs of the waiting sandboxes that got a run of another loaded program. */
  readonly mixed: Array<string>
  /** Limits that each was created with. */
  readonly limits: Array<{
    readonly memoryBytesMax: number
    readonly processesMax: number
    readonly cpusMax: number
  }>
  /** Waiting sandboxes and directories that exist now. */
  readonly existing: Set<string>
  readonly killed: Set<string>
}

export const makeTroubles = (): Troubles => ({
  prepareFails: false,
  missingImage: undefined,
  prepareDies: false,
  processesMin: 0,
  bindFails: false,
  programFails: false,
  bindMillis: 0,
  postureDiffers: false,
  images: 0,
  loadedBytes: 2 ** 27,
  prepareMillis: 0,
  lookMillis: 0,
  removeMillis: 0
})

export const makeSeen = (): Seen => ({
  asked: 0,
  prepared: [],
  bound: [],
  mixed: [],
  limits: [],
  existing: new Set(),
  killed: new Set()
})

const exists = (seen: Seen, name: string, removal: Effect.Effect<void> = Effect.void) =>
  Effect.acquireRelease(
    Effect.sync(() => seen.existing.add(name)),
    () =>
      Effect.andThen(
        removal,
        Effect.sync(() => seen.existing.delete(name))
      )
  )

const checkLimits =
  ({ processesMin }: Troubles) =>
  ({ limits }: { readonly limits: { readonly processesMax: number } }) =>
    limits.processesMax < processesMin ? Effect.fail(failed("it has too few processes")) : Effect.void

/** A runtime in memory with these troubles. */
export const runtime = (
  troubles: Troubles,
  seen: Seen,
  program?: MemoryContainerRuntime.Program
): Layer.Layer<ContainerRuntime.ContainerRuntime> =>
  Layer.effect(
    ContainerRuntime.ContainerRuntime,
    Effect.map(MemoryContainerRuntime.make({ program }), (inner) =>
      ContainerRuntime.ContainerRuntime.of({
        ...inner,
        checkLimits: checkLimits(troubles),
        acquire: (spec) => Effect.andThen(checkLimits(troubles)(spec), inner.acquire(spec)),
        prepare: (spec) =>
          Effect.gen(function* () {
            seen.asked += 1
            seen.limits.push(spec.limits)
            yield* checkLimits(troubles)(spec)
            if (troubles.prepareMillis > 0) yield* Effect.sleep(troubles.prepareMillis)
            if (troubles.prepareDies) return yield* Effect.die(new Error("it has a defect"))
            if (spec.image === troubles.missingImage) return yield* failed("its image does not exist")
            if (troubles.prepareFails || inner.prepare === undefined)
              return yield* failed("it does not start")
            const waiting = yield* inner.prepare(spec)
            yield* exists(
              seen,
              waiting.id,
              Effect.suspend(() =>
                troubles.removeMillis === 0 ? Effect.void : Effect.sleep(troubles.removeMillis)
              )
            )
            seen.prepared.push(waiting.id)
            const { images } = troubles
            const isKilled = Effect.sync(() => seen.killed.has(waiting.id))
            const unlessKilled = Effect.filterOrFail(
              isKilled,
              (killed) => !killed,
              () => failed("it was killed")
            )
            return {
              ...waiting,
              ...(spec.preload === undefined ? {} : { memoryBytes: troubles.loadedBytes }),
              hasEnded: isKilled,
              unusable: Effect.suspend(() =>
                troubles.lookMillis === 0 ? Effect.void : Effect.sleep(troubles.lookMillis)
              ).pipe(
                Effect.andThen(isKilled),
                Effect.map((killed) =>
                  killed ? "it has ended" : images === troubles.images ? undefined : "its image was replaced"
                )
              ),
              bind: (run) =>
                Effect.gen(function* () {
                  if (troubles.bindMillis > 0) yield* Effect.sleep(troubles.bindMillis)
                  yield* checkLimits(troubles)(run)
                  if (troubles.bindFails !== false)
                    return yield* troubles.bindFails === true
                      ? failed("its program could not be bound")
                      : troubles.bindFails
                  if (troubles.programFails) return yield* notLoaded("it was made to go on")
                  yield* unlessKilled
                  if (images !== troubles.images) return yield* failed("its image was replaced")
                  if (String(spec.preload) !== String(run.preload)) seen.mixed.push(waiting.id)
                  const container = yield* waiting.bind(run)
                  seen.bound.push(waiting.id)
                  return {
                    ...container,
                    start: Effect.gen(function* () {
                      yield* unlessKilled
                      const posture = yield* container.start
                      return posture === undefined || !troubles.postureDiffers
                        ? posture
                        : { ...posture, noNewPrivileges: false }
                    })
                  }
                })
            }
          })
      })
    )
  )

/** Workspaces in memory whose prepared directories are counted. */
const workspaces = (seen: Seen) =>
  Layer.effect(
    Workspace.Workspace,
    Effect.map(Workspace.makeMemory(), (inner) =>
      Workspace.Workspace.of({
        ...inner,
        prepare: (request) =>
          Effect.gen(function* () {
            const prepared = yield* inner.prepare!(request)
            yield* exists(seen, sourceAt(prepared, SandboxPlace.target) ?? "none")
            return prepared
          })
      })
    )
  )

/** A runner with a pool. */
export const layer = (options: {
  readonly troubles?: Troubles | undefined
  readonly seen?: Seen | undefined
  readonly program?: MemoryContainerRuntime.Program | undefined
  readonly pool?: SandboxPool.PoolOptions | undefined
}) => {
  const seen = options.seen ?? makeSeen()
  return SandboxRunner.layer.pipe(
    Layer.provideMerge(SandboxPool.layer(options.pool)),
    Layer.provideMerge(
      Layer.mergeAll(
        runtime(options.troubles ?? makeTroubles(), seen, options.program),
        workspaces(seen),
        RunStore.layerMemory,
        LlmProxy.layerMemory()
      )
    )
  )
}

export const report = Effect.flatMap(SandboxPool.SandboxPool, (pool) => pool.report)
