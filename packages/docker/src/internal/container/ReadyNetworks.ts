/**
 * Network namespaces that are ready for cold runs: how many, and which run gets one.
 *
 * `PoolPolicy` decides how many, by image, as for waiting sandboxes. One is started at a time, and hardly
 * any while runs start, because both need the processors. A run never waits for one, and none serves two runs.
 */
import * as MonotonicTime from "@cogni/sandbox-core/MonotonicTime"
import type { ContainerError, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as PoolPolicy from "@cogni/sandbox-core/PoolPolicy"
import type { PostureMismatch } from "@cogni/sandbox-core/SandboxReason"
import { Effect, Exit, Queue, Scope } from "effect"
import { type NetworkHolder, unreadable } from "./NetworkHolder.ts"
import * as NetworkMetrics from "./NetworkMetrics.ts"

type Keep = NonNullable<ContainerRuntime["Service"]["readyNetworks"]>

/** A namespace that one run may join. */
export interface ReadyNetwork {
  readonly holder: NetworkHolder
  /** Removes the holder. Never fails. */
  readonly remove: Effect.Effect<void>
}

interface Entry extends PoolPolicy.Waiting, ReadyNetwork {}

interface State {
  readonly limits: PoolPolicy.PoolLimits
  readonly memoryAvailableBytes: Effect.Effect<number | undefined>
  readonly entries: Map<string, Entry>
  readonly demand: Map<string, PoolPolicy.Demand>
  readonly wake: Queue.Queue<void>
  readonly counts: { hits: number; misses: number; failure?: string | undefined }
  sweptMillis: number
  /** Whether this process can use such networks at all. `undefined`: not known yet. */
  isPossible: boolean | undefined
}

/** Operations on the engine. */
export interface Makers {
  /** Starts a holder of this image, which the scope removes. */
  readonly start: (
    image: string
  ) => Effect.Effect<NetworkHolder, ContainerError | PostureMismatch, Scope.Scope>
  readonly imageId: (image: string) => Effect.Effect<string | undefined, ContainerError>
  /** Whether the engine is on this host. */
  readonly sharesHost: Effect.Effect<boolean, ContainerError>
  /** Waits until no run starts, for a limited time. */
  readonly quiet: Effect.Effect<void>
}

/** Most images whose demand is remembered: callers choose images. */
const imagesMax = 64

/** How often the holders are looked at without another reason. */
const roundSeconds = 5

/** Longest start of a holder. */
const startSecondsMax = 120

export const make = (makers: Makers) => {
  let current: State | undefined
  /** Takes a namespace for a run of an image. `undefined`: none is ready. Never waits. */
  const take = (image: string): Effect.Effect<ReadyNetwork | undefined> =>
    Effect.gen(function* () {
      if (current === undefined) return undefined
      const { counts, demand, entries, limits, wake } = current
      const before = demand.get(image) ?? PoolPolicy.noDemand
      // The map is in the order of the last arrival.
      demand.delete(image)
      demand.set(image, PoolPolicy.arrived(before, yield* MonotonicTime.nowMillis, limits))
      const [oldest] = demand.keys()
      if (demand.size > imagesMax && oldest !== undefined) demand.delete(oldest)
      yield* Queue.offer(wake, undefined)
      const entry = [...entries.values()].find(
        ({ holder, key }) => key === image && holder.whyUnusable() === undefined
      )
      if (entry !== undefined) entries.delete(entry.id)
      counts[entry === undefined ? "misses" : "hits"] += 1
      yield* NetworkMetrics.claimed(entry === undefined ? "miss" : "hit")
      yield* NetworkMetrics.ready(entries.size)
      return entry
    }).pipe(Effect.uninterruptible)

  /** Keeps namespaces ready until the scope closes. Returns a report. */
  const keep: Keep = Effect.fnUntraced(function* ({ limits, memoryAvailableBytes, networksMax }) {
    const state: State = {
      limits: { ...limits, sandboxesMax: networksMax, memoryBytesMax: networksMax * PoolPolicy.sandboxBytes },
      memoryAvailableBytes,
      entries: new Map(),
      demand: new Map(),
      wake: yield* Queue.sliding<void>(1),
      counts: { hits: 0, misses: 0 },
      sweptMillis: 0,
      isPossible: undefined
    }
    // Older than the fiber below, so that nothing is started after this has looked.
    yield* Effect.acquireRelease(
      Effect.sync(() => (current = state)),
      () =>
        Effect.suspend(() => {
          if (current === state) current = undefined
          return Effect.forEach([...state.entries.values()], (entry) => drop(state, entry), {
            concurrency: "unbounded",
            discard: true
          })
        })
    )
    yield* Effect.forkScoped(forever(state, makers))
    return Effect.sync(() => ({ ...state.counts, ready: state.entries.size }))
  })

  /** Notes that a container could not use the network that it got. */
  const noteFailure = Effect.suspend(() => {
    if (current !== undefined) {
      current.counts.hits -= 1
      current.counts.misses += 1
    }
    return NetworkMetrics.claimed("failed")
  })

  return { keep, noteFailure, take }
}

/** Starts and removes holders as the policy says, until the scope closes. */
const forever = (state: State, makers: Makers) =>
  Effect.gen(function* () {
    yield* sweep(state, makers)
    while (yield* round(state, makers));
  }).pipe(
    Effect.catchCause((cause) => Effect.logWarning("the ready networks missed a round", cause)),
    // Also after a defect, which would otherwise repeat at once.
    Effect.andThen(Effect.raceFirst(Queue.take(state.wake), Effect.sleep(`${roundSeconds} seconds`))),
    Effect.forever
  )

/** Removes an entry, unless a run has got it meanwhile. */
const drop = ({ entries }: State, { id, remove }: Entry) =>
  Effect.uninterruptible(
    Effect.suspend(() =>
      entries.delete(id) ? Effect.andThen(NetworkMetrics.ready(entries.size), remove) : Effect.void
    )
  )

/** Removes holders that ended, that others use, or whose image was replaced. */
const sweep = Effect.fnUntraced(function* (state: State, { imageId }: Makers) {
  const nowMillis = yield* MonotonicTime.nowMillis
  if (nowMillis < state.sweptMillis + roundSeconds * 1000) return
  state.sweptMillis = nowMillis
  for (const entry of state.entries.values()) {
    const { holder, key } = entry
    const isRight =
      holder.whyUnusable() === undefined &&
      (yield* Effect.orElseSucceed(imageId(key), () => holder.imageId)) === holder.imageId
    if (!isRight) yield* drop(state, entry)
  }
})

/** Does one step. Returns whether there may be more to do at once. */
const round = Effect.fnUntraced(function* (state: State, makers: Makers) {
  const { demand, entries, limits } = state
  const nowMillis = yield* MonotonicTime.nowMillis
  const memoryAvailableBytes = yield* state.memoryAvailableBytes
  const step = PoolPolicy.next(
    { nowMillis, memoryAvailableBytes, demand, waiting: [...entries.values()] },
    limits
  )
  for (const { id } of step.drop) {
    const entry = entries.get(id)
    if (entry !== undefined) yield* drop(state, entry)
  }
  const [image] = step.starts
  // The memory is read again after each removal.
  if (image === undefined) return step.drop.some(({ reason }) => reason === "memory")
  if (!(yield* isPossible(state, makers))) return false
  yield* makers.quiet
  const beganMillis = yield* MonotonicTime.nowMillis
  yield* Effect.uninterruptibleMask((restore) =>
    Effect.matchEffect(restore(started(makers, image)), {
      onSuccess: (network) => ready(state, image, network, beganMillis),
      onFailure: ({ message }) => failed(state, image, message)
    })
  )
  return true
})

/** Returns whether holders can be used. Asks the engine once, and again only if it did not answer. */
const isPossible = Effect.fnUntraced(function* (state: State, { sharesHost }: Makers) {
  if (state.isPossible !== undefined) return state.isPossible
  const isShared = yield* Effect.option(sharesHost)
  if (isShared._tag === "None") return false
  state.isPossible = isShared.value
  if (!isShared.value) state.counts.failure = "the engine is on another host"
  return isShared.value
})

/** Starts a holder in a scope of its own. If that fails or is interrupted, nothing of it remains. */
const started = Effect.fnUntraced(function* ({ start }: Makers, image: string) {
  const scope = yield* Scope.make()
  const remove = Effect.ignoreCause(Scope.close(scope, Exit.void), { log: "Warn" })
  const holder = yield* Scope.provide(start(image), scope).pipe(
    Effect.catchDefect((defect) => Effect.fail({ message: `it has a defect (${String(defect)})` })),
    Effect.timeoutOrElse({
      duration: `${startSecondsMax} seconds`,
      orElse: () => Effect.fail({ message: `it did not start within ${startSecondsMax} s` })
    }),
    Effect.onError(() => remove)
  )
  return { holder, remove } satisfies ReadyNetwork
})

const ready = Effect.fnUntraced(function* (
  { counts, demand, entries }: State,
  image: string,
  network: ReadyNetwork,
  beganMillis: number
) {
  const sinceMillis = yield* MonotonicTime.nowMillis
  entries.set(network.holder.id, { ...network, id: network.holder.id, key: image, sinceMillis })
  counts.failure = undefined
  const before = demand.get(image)
  if (before !== undefined) demand.set(image, PoolPolicy.started(before, sinceMillis - beganMillis))
  yield* NetworkMetrics.ready(entries.size)
})

const failed = Effect.fnUntraced(function* (state: State, image: string, message: string) {
  const { counts, demand } = state
  const nowMillis = yield* MonotonicTime.nowMillis
  const paused = PoolPolicy.failed(demand.get(image) ?? PoolPolicy.noDemand, nowMillis)
  if (demand.has(image)) demand.set(image, paused)
  if (message === unreadable.message) state.isPossible = false
  if (counts.failure === message) return
  counts.failure = message
  const seconds = (paused.pausedUntilMillis - nowMillis) / 1000
  yield* Effect.logWarning(
    `a network for runs of ${image} could not be made ready: ${message}` +
      (state.isPossible === false ? "" : `. The next attempt is in ${seconds} s`)
  )
})
