/**
 * How many sandboxes wait for runs: a pure function from facts to the next step.
 *
 * A shape keeps as many waiting sandboxes as runs of it arrived at most within the time that one sandbox takes to be
 * ready: its peak arrival rate times the time to refill. So a burst that has been seen once is served the next time.
 */

/** Limits of a pool. */
export interface PoolLimits {
  /** Waiting sandboxes of all shapes (default 8). */
  readonly sandboxesMax: number
  /**
   * Memory of all waiting sandboxes together, in bytes (default 1 GiB). One counts as {@link sandboxBytes}. If it has
   * loaded the code of an agent, it counts as what the kernel counts for it.
   */
  readonly memoryBytesMax: number
  /**
   * With less available memory on the host, no sandbox waits (default 1 GiB). One is started only with
   * {@link startBytesMore} more than that, so that no sandbox is started and removed again at once.
   */
  readonly memoryAvailableBytesMin: number
  /** A shape that no run has asked for within this time has no waiting sandboxes (default 600). */
  readonly demandSecondsMax: number
  /** A sandbox that has waited this long is replaced (default 1800). */
  readonly ageSecondsMax: number
}

/** Memory that a waiting sandbox is counted as: its three small processes, and what the kernel needs for it. */
export const sandboxBytes = 16 * 1024 * 1024

/** Memory that a sandbox with the code of an agent is counted as until one of its shape was measured. */
export const loadedBytes = 512 * 1024 * 1024

/** Memory that must be available beyond the bound to start a sandbox. More, if it loads the code of an agent. */
export const startBytesMore = 4 * sandboxBytes

export const defaults: PoolLimits = {
  sandboxesMax: 8,
  memoryBytesMax: 1024 * 1024 * 1024,
  memoryAvailableBytesMin: 1024 * 1024 * 1024,
  demandSecondsMax: 600,
  ageSecondsMax: 1800
}

/** Most arrivals of one shape that are remembered. */
const arrivalsMax = 1000

/** Shortest time within which arrivals are counted together: callers of a burst do not start at the same moment. */
const windowMillisMin = 1000

/** Demand for one shape. */
export interface Demand {
  /** Times of the runs that asked for it, oldest first. */
  readonly arrivals: ReadonlyArray<number>
  /** How long its last sandbox took to be ready, in milliseconds; 0 if none was made yet. */
  readonly refillMillis: number
  /** Sandboxes that wait whatever the demand. */
  readonly kept: number
  /** Whether its sandboxes load the code of an agent. */
  readonly loads: boolean
  /** Memory that the last ones used with that code. */
  readonly measured: ReadonlyArray<{ readonly bytes: number; readonly atMillis: number }>
  /** Starts that failed since the last one that succeeded. */
  readonly failures: number
  /** None is started before this time. Other shapes are not affected. */
  readonly pausedUntilMillis: number
}

export const noDemand: Demand = {
  arrivals: [],
  refillMillis: 0,
  kept: 0,
  loads: false,
  measured: [],
  failures: 0,
  pausedUntilMillis: 0
}

/** Returns the memory that a sandbox of a shape is counted as. */
export const bytesOf = ({ loads, measured }: Pick<Demand, "loads" | "measured">): number =>
  !loads
    ? sandboxBytes
    : measured.length === 0
      ? loadedBytes
      : Math.max(sandboxBytes, ...measured.map(({ bytes }) => bytes))

/** How many measurements count. An old one does not forever keep sandboxes away. */
const measuredMax = 8

/** Returns the measurements that count. A load is measured again from time to time: one may need more than any other. */
export const measuredAt = (
  { measured }: Pick<Demand, "measured">,
  nowMillis: number,
  { demandSecondsMax }: Pick<PoolLimits, "demandSecondsMax">
): Demand["measured"] => measured.filter(({ atMillis }) => atMillis > nowMillis - demandSecondsMax * 1000)

/** Longest pause that the number of failed starts of a shape alone asks for. */
const pauseSecondsMax = 60

/** A pause is at least this many times as long as the start that failed. Other shapes are started meanwhile. */
const pauseFactor = 5

/** Notes a failed start, and how long it took. Each pause is twice as long as the one before it. */
export const failed = (demand: Demand, nowMillis: number, tookMillis = 0): Demand => {
  const failures = demand.failures + 1
  const pauseMillis = Math.min(pauseSecondsMax, 2 ** failures) * 1000
  return {
    ...demand,
    failures,
    pausedUntilMillis: nowMillis + Math.max(pauseMillis, pauseFactor * tookMillis)
  }
}

/** Notes a start that succeeded, and the memory that the sandbox uses with its loaded code. The most of the last counts. */
export const started = (
  demand: Demand,
  refillMillis: number,
  memory?: Demand["measured"][number]
): Demand => ({
  ...demand,
  refillMillis,
  measured: memory === undefined ? demand.measured : [...demand.measured, memory].slice(-measuredMax),
  // Whether its loaded code works is known only when it has served a run.
  failures: demand.loads ? demand.failures : 0,
  pausedUntilMillis: 0
})

/** Notes that one of its sandboxes served a run. */
export const served = (demand: Demand): Demand => ({ ...demand, failures: 0 })

/** Adds an arrival, and forgets those that are too old. */
export const arrived = (
  demand: Demand,
  nowMillis: number,
  limits: Pick<PoolLimits, "demandSecondsMax">
): Demand => ({
  ...demand,
  arrivals: [
    ...demand.arrivals.filter((at) => at > nowMillis - limits.demandSecondsMax * 1000),
    nowMillis
  ].slice(-arrivalsMax),
  measured: measuredAt(demand, nowMillis, limits)
})

/** Returns the most arrivals within any window of this length. */
export const peakWithin = (arrivals: ReadonlyArray<number>, windowMillis: number): number => {
  let from = 0
  let peak = 0
  for (const [to, at] of arrivals.entries()) {
    while (at - arrivals[from]! > windowMillis) from += 1
    peak = Math.max(peak, to - from + 1)
  }
  return peak
}

/** Returns how many sandboxes of a shape should wait, without regard to other shapes. */
export const wanted = (
  { arrivals, kept, refillMillis }: Demand,
  nowMillis: number,
  { demandSecondsMax }: Pick<PoolLimits, "demandSecondsMax">
): number => {
  const recent = arrivals.filter((at) => at > nowMillis - demandSecondsMax * 1000)
  return Math.max(kept, peakWithin(recent, Math.max(windowMillisMin, refillMillis)))
}

/** A sandbox that waits. */
export interface Waiting {
  readonly id: string
  /** Key of its shape. */
  readonly key: string
  readonly sinceMillis: number
}

export interface PoolFacts {
  readonly nowMillis: number
  /** Memory that is available on the host; `undefined` if that is unknown. */
  readonly memoryAvailableBytes: number | undefined
  readonly demand: ReadonlyMap<string, Demand>
  readonly waiting: ReadonlyArray<Waiting>
}

/** Why a waiting sandbox is removed: `memory` if its shape wants it, and the pool or the host lacks memory. */
export type DropReason = "age" | "demand" | "memory"

export interface Step {
  readonly drop: ReadonlyArray<{ readonly id: string; readonly reason: DropReason }>
  /** Keys of the shapes that have too few sandboxes, and of which one can be started. The first comes first. */
  readonly starts: ReadonlyArray<string>
}

/**
 * Time after the last run of its shape in which a sandbox that has loaded its code keeps its place, in seconds.
 * Otherwise two agents in turns would push each other out, and load again for each run.
 */
const turnSecondsMin = 10

/** A part of a shape's demand, up to a number of sandboxes, and the time that decides its rank. */
interface Claimed {
  readonly key: string
  readonly count: number
  readonly atMillis: number
}

/**
 * Divides the places and the memory of the pool among the shapes: first those to keep, then by demand, where the shape
 * that was asked for last comes first. A sandbox that has loaded its code keeps its place for some time after the last
 * run of its shape. A shape that cannot be started holds no more places than it has sandboxes.
 */
export const shares = (
  { demand, nowMillis, waiting }: PoolFacts,
  limits: PoolLimits
): ReadonlyMap<string, number> => {
  let left = Math.floor(limits.sandboxesMax)
  let leftBytes = limits.memoryBytesMax
  const lastOf = (one: Demand) => one.arrivals.at(-1) ?? 0
  const heldOf = (key: string) => waiting.filter((other) => other.key === key).length
  const ordered = [...demand].toSorted(([, a], [, b]) => lastOf(b) - lastOf(a))
  const claims = ordered.flatMap(([key, one]): ReadonlyArray<Claimed> => {
    const [count, atMillis] = [wanted(one, nowMillis, limits), lastOf(one)]
    const isInTurn = one.loads && nowMillis < atMillis + turnSecondsMin * 1000
    const held = isInTurn ? Math.min(count, heldOf(key)) : 0
    return [
      { key, count: held, atMillis: atMillis + turnSecondsMin * 1000 },
      { key, count, atMillis }
    ]
  })
  const given = new Map<string, number>()
  const give = ({ count, key }: Pick<Claimed, "count" | "key">) => {
    const one = demand.get(key)!
    const before = given.get(key) ?? 0
    const most = one.pausedUntilMillis > nowMillis ? heldOf(key) : Number.POSITIVE_INFINITY
    const places = Math.min(left, Math.floor(leftBytes / bytesOf(one)))
    const more = Math.min(places, Math.max(0, Math.min(count, most) - before))
    given.set(key, before + more)
    left -= more
    leftBytes -= more * bytesOf(one)
  }
  for (const [key, { kept }] of ordered) give({ key, count: kept })
  for (const claim of claims.toSorted((a, b) => b.atMillis - a.atMillis)) give(claim)
  return given
}

/** The limit because of which fewer sandboxes of a shape wait than its demand asks for. */
export type LimitedBy = "sandboxesMax" | "memoryBytesMax" | "memoryAvailableBytesMin"

/** Returns the limit that keeps sandboxes of a shape from waiting; `undefined` if none does. */
export const limitedBy = (facts: PoolFacts, limits: PoolLimits): ReadonlyMap<string, LimitedBy> => {
  const given = shares(facts, limits)
  const roomy = shares(facts, { ...limits, memoryBytesMax: Number.MAX_SAFE_INTEGER })
  return new Map(
    [...facts.demand].flatMap(([key, one]): ReadonlyArray<[string, LimitedBy]> => {
      const share = given.get(key)!
      if (share < roomy.get(key)!) return [[key, "memoryBytesMax"]]
      const isPaused = one.pausedUntilMillis > facts.nowMillis
      if (share < wanted(one, facts.nowMillis, limits)) return isPaused ? [] : [[key, "sandboxesMax"]]
      const waits = facts.waiting.filter((other) => other.key === key).length
      return waits < share && spareBytesOf(facts, limits) < startBytesOf(one)
        ? [[key, "memoryAvailableBytesMin"]]
        : []
    })
  )
}

/** Available memory of the host beyond the bound. */
const spareBytesOf = ({ memoryAvailableBytes }: PoolFacts, { memoryAvailableBytesMin }: PoolLimits) =>
  (memoryAvailableBytes ?? Infinity) - memoryAvailableBytesMin

/** Returns how much of that must be there to start a sandbox. */
const startBytesOf = (one: Demand) => startBytesMore + bytesOf(one) - sandboxBytes

/**
 * Returns the sandbox to remove so that as few as possible are lost: the smallest that frees enough memory, or else the
 * largest, and of equal ones the oldest.
 */
const leastLoss = (
  waiting: ReadonlyArray<Waiting>,
  missingBytes: number,
  demand: PoolFacts["demand"]
): Waiting | undefined => {
  const ordered = waiting
    .map((one) => ({ one, bytes: bytesOf(demand.get(one.key) ?? noDemand) }))
    .toSorted((a, b) => a.bytes - b.bytes || a.one.sinceMillis - b.one.sinceMillis)
  const most = ordered.at(-1)?.bytes ?? 0
  return ordered.find(({ bytes }) => bytes >= Math.min(missingBytes, most))?.one
}

/** Returns what a pool does next. If memory is low, one sandbox after the other is removed, so that few are lost. */
export const next = (facts: PoolFacts, limits: PoolLimits): Step => {
  const given = shares(facts, limits)
  const isOld = ({ sinceMillis }: Waiting) => facts.nowMillis - sinceMillis >= limits.ageSecondsMax * 1000
  const kept = new Map<string, number>()
  const left: Array<Waiting> = []
  const drop: Array<Step["drop"][number]> = []
  // The youngest stay.
  for (const one of facts.waiting.toSorted((a, b) => b.sinceMillis - a.sinceMillis)) {
    const count = kept.get(one.key) ?? 0
    if (isOld(one)) drop.push({ id: one.id, reason: "age" })
    else if (count >= (given.get(one.key) ?? 0))
      drop.push({
        id: one.id,
        reason: limitedBy(facts, limits).get(one.key) === "memoryBytesMax" ? "memory" : "demand"
      })
    else {
      kept.set(one.key, count + 1)
      left.push(one)
    }
  }
  const spareBytes = spareBytesOf(facts, limits)
  const lost = spareBytes < 0 ? leastLoss(left, -spareBytes, facts.demand) : undefined
  if (lost !== undefined) drop.push({ id: lost.id, reason: "memory" })
  const starts = [...given].flatMap(([key, share]) =>
    (kept.get(key) ?? 0) < share && spareBytes >= startBytesOf(facts.demand.get(key)!) ? [key] : []
  )
  return { drop, starts }
}

/**
 * Returns those of `starts` that may be started while the first load of them waits. They load no code. If the load
 * comes before them, they leave the memory to it that it needs.
 */
export const startsMeanwhile = (
  { starts }: Pick<Step, "starts">,
  facts: PoolFacts,
  limits: PoolLimits
): ReadonlyArray<string> => {
  const demandOf = (key: string) => facts.demand.get(key) ?? noDemand
  const loadRank = starts.findIndex((key) => demandOf(key).loads)
  const load = starts[loadRank]
  const keptBytes = load === undefined ? 0 : startBytesOf(demandOf(load))
  const spareBytes = spareBytesOf(facts, limits)
  return starts.filter((key, rank) => {
    const one = demandOf(key)
    return !one.loads && (rank < loadRank || spareBytes >= keptBytes + startBytesOf(one))
  })
}
