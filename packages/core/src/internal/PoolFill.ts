/** Fills a pool of waiting sandboxes, and removes those that must go, as `PoolPolicy` says. */
import { Effect, Queue } from "effect"
import * as MonotonicTime from "../MonotonicTime.ts"
import * as PoolPolicy from "../PoolPolicy.ts"
import { named } from "../Remedy.ts"
import * as PoolMetrics from "./PoolMetrics.ts"
import * as PoolState from "./PoolState.ts"
import * as WaitingEntry from "./WaitingEntry.ts"

/** How often a pool looks at its sandboxes and at the memory without another reason. */
const roundSeconds = 5

/**
 * Starts and removes sandboxes as the policy says, one at a time, until the scope closes. Each step waits for a moment
 * in which no run is being started in a sandbox of the pool.
 */
export const forever = (state: PoolState.PoolState, makers: WaitingEntry.Makers) => {
  const loads = loadTurns(state)
  return Effect.gen(function* () {
    do {
      yield* state.starts.quiet
      yield* sweep(state)
    } while (yield* round(state, makers, loads))
  }).pipe(
    Effect.catchCause((cause) =>
      Effect.andThen(loads.end, Effect.logWarning("the pool of waiting sandboxes missed a round", cause))
    ),
    // Also after a defect, which would otherwise repeat at once.
    Effect.andThen(
      Effect.raceAllFirst([Queue.take(state.wake), loads.come, Effect.sleep(`${roundSeconds} seconds`)])
    ),
    Effect.forever
  )
}

/** Whether a sandbox loads code when it is started. */
const isLoad = ({ shape }: Pick<WaitingEntry.Plan, "shape">) => shape.preload !== undefined

/**
 * Lets a load wait for its turn: it takes processors that a run with loaded code needs until it calls its model.
 * Sandboxes that load none are started meanwhile. The limit of the wait counts from its beginning, whatever starts
 * meanwhile.
 */
const loadTurns = ({ loadedStarts }: Pick<PoolState.PoolState, "loadedStarts">) => {
  let endMillis: number | undefined
  return {
    /** Returns whether code may be loaded now, and whether a load has waited since an earlier step. */
    look: Effect.gen(function* () {
      const nowMillis = yield* MonotonicTime.nowMillis
      const hasWaited = endMillis !== undefined
      endMillis ??= nowMillis + PoolState.loadWaitMillisMax
      return { hasWaited, mayLoad: nowMillis >= endMillis || (yield* loadedStarts.isQuiet) }
    }),
    /** Waits until code may be loaded, if a load waits for that. */
    come: Effect.gen(function* () {
      if (endMillis === undefined) return yield* Effect.never
      const leftMillis = endMillis - (yield* MonotonicTime.nowMillis)
      yield* Effect.timeoutOption(loadedStarts.quiet, Math.max(0, leftMillis))
    }),
    /** Lets the next load wait again. */
    end: Effect.sync(() => {
      endMillis = undefined
    })
  }
}

/** Removes sandboxes that ended, or whose image was replaced. At most once in a while, because it asks the engine. */
const sweep = Effect.fnUntraced(function* (state: PoolState.PoolState) {
  const nowMillis = yield* MonotonicTime.nowMillis
  if (nowMillis < state.sweptMillis + roundSeconds * 1000) return
  state.sweptMillis = nowMillis
  yield* Effect.forEach(
    [...state.entries.values()],
    (entry) =>
      Effect.flatMap(PoolState.whyUnusable(entry), (why) =>
        why === undefined
          ? Effect.void
          : PoolState.noteEnd(state, entry).pipe(
              Effect.andThen(PoolState.noteWhy(state, entry, why)),
              Effect.andThen(PoolState.drop(state, entry, "unusable"))
            )
      ),
    { discard: true }
  )
})

/**
 * Returns what is started now. A load that has waited goes before all others when its turn has come, so that none of
 * them keeps it waiting.
 */
const chosen = Effect.fnUntraced(function* (
  { known, limits }: Pick<PoolState.PoolState, "known" | "limits">,
  step: PoolPolicy.Step,
  facts: PoolPolicy.PoolFacts,
  loads: ReturnType<typeof loadTurns>
) {
  const plansOf = (keys: ReadonlyArray<string>) => keys.flatMap((key) => known.get(key) ?? [])
  const wanted = plansOf(step.starts)
  const load = wanted.find(isLoad)
  if (load === undefined) {
    yield* loads.end
    return wanted[0]
  }
  const { hasWaited, mayLoad } = yield* loads.look
  return mayLoad
    ? hasWaited
      ? load
      : wanted[0]
    : plansOf(PoolPolicy.startsMeanwhile(step, facts, limits))[0]
})

/** Does one step. Returns whether there may be more to do at once. */
const round = Effect.fnUntraced(function* (
  state: PoolState.PoolState,
  makers: WaitingEntry.Makers,
  loads: ReturnType<typeof loadTurns>
) {
  const { entries, limits } = state
  const facts = yield* PoolState.factsOf(state)
  const { nowMillis } = facts
  const step = PoolPolicy.next(facts, limits)
  for (const { id, reason } of step.drop) {
    const entry = entries.get(id)
    if (entry !== undefined) yield* PoolState.drop(state, entry, reason)
  }
  const plan = yield* chosen(state, step, facts, loads)
  // The memory is read again after each removal.
  if (plan === undefined) return step.drop.some(({ reason }) => reason === "memory")
  if (isLoad(plan)) yield* loads.end
  yield* Effect.uninterruptibleMask((restore) =>
    restore(startOf(state, makers, plan)).pipe(
      Effect.catchDefect((defect) => Effect.fail({ message: `it has a defect (${String(defect)})` })),
      Effect.matchEffect({
        onSuccess: (entry) => started(state, entry),
        onFailure: ({ message }) => failed(state, plan.key, message, nowMillis)
      })
    )
  )
  return true
})

/** Starts a sandbox. Gives up if loading its code leaves too little memory on the host. */
const startOf = (state: PoolState.PoolState, makers: WaitingEntry.Makers, plan: WaitingEntry.Plan) =>
  WaitingEntry.start(makers, plan, isLoad(plan) ? isLow(state) : Effect.never)

/** How often the memory of the host is read while a sandbox loads code. */
const memorySeconds = 1

/** Fails when the host is low on memory. */
const isLow = Effect.fnUntraced(function* ({ limits, memoryAvailableBytes }: PoolState.PoolState) {
  for (;;) {
    yield* Effect.sleep(`${memorySeconds} seconds`)
    const bytes = yield* memoryAvailableBytes
    if (bytes !== undefined && bytes < limits.memoryAvailableBytesMin)
      return yield* Effect.fail({ message: "the host is low on memory while its code is loaded" })
  }
})

const started = (state: PoolState.PoolState, entry: WaitingEntry.WaitingEntry) =>
  Effect.suspend(() => {
    const { counts, entries, known, limits } = state
    entries.set(entry.id, entry)
    counts.started += 1
    const plan = known.get(entry.key)
    if (plan !== undefined) {
      const { memoryBytes: bytes } = entry.container
      const memory = bytes === undefined ? undefined : { bytes, atMillis: entry.sinceMillis }
      const demand = PoolPolicy.started(plan.demand, entry.startMillis, memory)
      known.set(entry.key, { ...plan, failure: tooLarge(demand, limits), demand })
    }
    return Effect.andThen(PoolMetrics.changed(1), PoolMetrics.started("ready"))
  })

/** Returns why a shape can have no sandbox: its loaded code takes more memory than the pool may use. */
const tooLarge = (demand: PoolPolicy.Demand, { memoryBytesMax }: PoolPolicy.PoolLimits) => {
  const bytes = PoolPolicy.bytesOf(demand)
  return bytes <= memoryBytesMax
    ? undefined
    : `with its loaded code, a sandbox uses ${bytes} bytes, more than the ${memoryBytesMax} that the pool may use. Raise ${named("PoolLimits.memoryBytesMax")}`
}

const failed = Effect.fnUntraced(function* (
  state: PoolState.PoolState,
  key: string,
  message: string,
  beganMillis: number
) {
  const nowMillis = yield* MonotonicTime.nowMillis
  const plan = state.known.get(key)
  const demand = PoolPolicy.failed(plan?.demand ?? PoolPolicy.noDemand, nowMillis, nowMillis - beganMillis)
  if (plan !== undefined) state.known.set(key, { ...plan, failure: message, demand })
  yield* PoolMetrics.started("failed")
  if (plan?.failure === message) return
  const seconds = (demand.pausedUntilMillis - nowMillis) / 1000
  yield* Effect.logWarning(
    `a waiting sandbox of ${plan?.shape.image ?? "an image"} could not be started: ${message}. ` +
      `The next attempt is in ${seconds} s`
  )
})
