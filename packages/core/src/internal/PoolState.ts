/** State of a pool of waiting sandboxes, and the steps that take something out of it. */
import { Effect, Fiber, type Queue, type Scope } from "effect"
import * as MonotonicTime from "../MonotonicTime.ts"
import * as PoolPolicy from "../PoolPolicy.ts"
import type { PoolReport } from "../PoolReport.ts"
import type { ColdReason } from "../PoolUse.ts"
import type { RunStarts } from "../RunStarts.ts"
import * as PoolMetrics from "./PoolMetrics.ts"
import type { Makers, Plan, WaitingEntry } from "./WaitingEntry.ts"

/** Time for the engine to say whether a sandbox can be used. After it, the next one is taken. */
const lookSecondsMax = 2

/** Time after the start of a run within which its program prints something, in milliseconds. */
export const quietMillis = 30

/** The longest that background work waits for starts of runs, in milliseconds. */
export const quietWaitMillisMax = 500

/** Time after the start of a run of an agent within which it calls its model, if its code was loaded, in milliseconds. */
export const loadQuietMillis = 1500

/** The longest that loading code waits for runs of agents, in milliseconds. */
export const loadWaitMillisMax = 3000

/** Most removals in the background. With more, runs wait for their own. */
const removalsMax = 16

/** A shape that runs asked for. */
export interface Known extends Plan {
  readonly demand: PoolPolicy.Demand
  /** Why its last sandbox could not be started. */
  readonly failure?: string | undefined
  /** Why the last of its sandboxes that had to go was removed, so that the same is logged once. */
  readonly removedWhy?: string | undefined
  /** Its runs that could not use the sandbox that they took, since the last one that could. */
  readonly unusable?: { readonly runs: number; readonly why: string; readonly atMillis: number } | undefined
}

/** State of a pool. Changed only in steps that nothing interrupts. */
export interface PoolState {
  readonly makers: Makers | undefined
  readonly limits: PoolPolicy.PoolLimits
  readonly memoryAvailableBytes: Effect.Effect<number | undefined>
  readonly known: Map<string, Known>
  readonly entries: Map<string, WaitingEntry>
  readonly wake: Queue.Queue<void>
  /** The starts of runs in sandboxes of the pool, for which its background work waits. */
  readonly starts: RunStarts
  /** The starts of those whose code is loaded. Loading it for the next one would use the same processors. */
  readonly loadedStarts: RunStarts
  readonly scope: Scope.Scope
  readonly counts: { started: number; hits: number; misses: number; discarded: number; removing: number }
  readonly cold: Partial<Record<ColdReason, number>>
  sweptMillis: number
}

/** Notes that a run starts. Returns the effect that notes that it has started, or failed to. */
export const noteStart = (
  { loadedStarts, starts }: Pick<PoolState, "loadedStarts" | "starts">,
  { preload }: Pick<Plan["shape"], "preload">
) =>
  preload === undefined
    ? starts.note
    : Effect.zipWith(starts.note, loadedStarts.note, (one, other) => Effect.andThen(one, other))

/** Reads what the policy decides on. */
export const factsOf = Effect.fnUntraced(function* ({ entries, known, memoryAvailableBytes }: PoolState) {
  return {
    nowMillis: yield* MonotonicTime.nowMillis,
    memoryAvailableBytes: yield* memoryAvailableBytes,
    demand: new Map([...known].map(([key, { demand }]) => [key, demand])),
    waiting: [...entries.values()]
  } satisfies PoolPolicy.PoolFacts
})

/** Returns the shapes of which sandboxes wait or should, the one that was asked for last first. */
export const shapesOf = (
  { known, limits }: Pick<PoolState, "known" | "limits">,
  facts: PoolPolicy.PoolFacts
): PoolReport["shapes"] => {
  const limited = PoolPolicy.limitedBy(facts, limits)
  return [...known.values()].toReversed().flatMap(({ demand, key, shape: { image } }) => {
    const wanted = PoolPolicy.wanted(demand, facts.nowMillis, limits)
    const waiting = facts.waiting.filter((one) => one.key === key).length
    const limitedBy = limited.get(key)
    return waiting === 0 && wanted === 0
      ? []
      : [
          {
            image,
            waiting,
            wanted,
            memoryBytes: PoolPolicy.bytesOf(demand),
            ...(limitedBy === undefined ? {} : { limitedBy })
          }
        ]
  })
}

/** Removes an entry, unless a run has got it meanwhile. */
export const drop = (state: PoolState, entry: WaitingEntry, reason: PoolMetrics.Dropped) =>
  Effect.uninterruptible(
    Effect.suspend(() =>
      state.entries.delete(entry.id)
        ? Effect.all([PoolMetrics.changed(-1), PoolMetrics.drop(reason), entry.remove], { discard: true })
        : Effect.void
    )
  )

/**
 * Removes an entry that a run has taken. If no process is left in it, this happens in the background. The end of the
 * pool waits for it.
 */
export const release = (state: PoolState, entry: WaitingEntry): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { counts } = state
    if (!entry.isEmpty || counts.removing >= removalsMax) return entry.remove
    counts.removing += 1
    const removal = Effect.ensuring(
      entry.remove,
      Effect.sync(() => {
        counts.removing -= 1
      })
    )
    // Also if the pool ends while this waits.
    return inBackground(state, Effect.andThen(Effect.exit(Effect.interruptible(state.starts.quiet)), removal))
  })

/** How long a run waits for the removal of a sandbox that it cannot use. Its processes end at the start of that. */
const endSecondsMax = 2

/** Ends a sandbox that a run cannot use. */
export const endOf = ({ scope }: Pick<PoolState, "scope">, { removeContainer }: WaitingEntry) =>
  Effect.forkIn(Effect.uninterruptible(removeContainer), scope, { startImmediately: true }).pipe(
    Effect.flatMap(Fiber.await),
    Effect.timeoutOption(`${endSecondsMax} seconds`),
    Effect.asVoid
  )

/** Removes something in the background. The end of the pool waits for it. */
const inBackground = ({ scope }: Pick<PoolState, "scope">, removal: Effect.Effect<void>) =>
  // Started at once, because a fiber that is interrupted before its first step would remove nothing.
  Effect.asVoid(Effect.forkIn(Effect.uninterruptible(removal), scope, { startImmediately: true }))

/**
 * Notes it as a failed start if a sandbox has ended that had loaded the code of an agent. Its program may be the
 * reason, and would be the next time. Several that ended together count once: the engine may have ended them.
 */
export const noteEnd = Effect.fnUntraced(function* (
  { known }: Pick<PoolState, "known">,
  { container, key, shape }: WaitingEntry
) {
  const [plan, nowMillis] = [known.get(key), yield* MonotonicTime.nowMillis]
  if (shape.preload === undefined || plan === undefined || !(yield* container.hasEnded)) return
  if (plan.demand.pausedUntilMillis > nowMillis) return
  known.set(key, {
    ...plan,
    failure: "a sandbox with its loaded program ended while it waited. Check the preload of the agent",
    demand: PoolPolicy.failed(plan.demand, nowMillis)
  })
})

/** Logs why an entry must go before a run needs it. Says the same of several entries of a shape once. */
export const noteWhy = (
  { entries, known }: Pick<PoolState, "entries" | "known">,
  { id, key, shape: { image } }: WaitingEntry,
  why: string
) =>
  Effect.suspend(() => {
    const plan = known.get(key)
    if (!entries.has(id) || plan?.removedWhy === why) return Effect.void
    if (plan !== undefined) known.set(key, { ...plan, removedWhy: why })
    return Effect.logWarning(`a waiting sandbox of ${image} is replaced, because no run can get it: ${why}`)
  })

/** Returns why an entry cannot serve a run; `undefined` if it can. */
export const whyUnusable = ({ container }: WaitingEntry) =>
  container.unusable.pipe(
    Effect.catch(({ message }) => Effect.succeed(message)),
    Effect.timeoutOrElse({
      duration: `${lookSecondsMax} seconds`,
      orElse: () => Effect.succeed(`the engine did not say within ${lookSecondsMax} s whether it can be used`)
    })
  )
