/** Report of a pool of waiting sandboxes, and what is wrong with it. Pure. */
import type { NetworkReport } from "./ContainerRuntime.ts"
import type { LimitedBy } from "./PoolPolicy.ts"
import { type ColdReason, reasonOf } from "./PoolUse.ts"
import { named } from "./Remedy.ts"

/** Counts of a pool so far, and its waiting sandboxes. */
export interface PoolReport {
  readonly waiting: ReadonlyArray<{
    readonly image: string
    readonly supervised: boolean
    /** Equal for sandboxes that can serve the same runs. */
    readonly shape: string
    readonly ageSeconds: number
    /** Memory that it used when it had loaded the code of an agent. Absent: it loads none. */
    readonly memoryBytes?: number | undefined
  }>
  /** Shapes that runs asked for lately, or that the pool keeps. The last one asked for is the first. */
  readonly shapes: ReadonlyArray<{
    readonly image: string
    readonly waiting: number
    /** How many would wait without limits. */
    readonly wanted: number
    /** Memory that one is counted as. */
    readonly memoryBytes: number
    /** The limit because of which fewer wait. Absent: none. */
    readonly limitedBy?: LimitedBy | undefined
  }>
  /** Waiting sandboxes that were started. */
  readonly started: number
  /** Runs that got one, and whose program started in it. */
  readonly hits: number
  /** Runs for which none was ready, or the one that they got could not be used. */
  readonly misses: number
  /** Runs that no waiting sandbox can serve, by reason. */
  readonly cold: Readonly<Partial<Record<ColdReason, number>>>
  /** Sandboxes that a run took and could not use. */
  readonly discarded: number
  /** Sandboxes of runs that have ended, which are being removed in the background. */
  readonly removing: number
  /** Network namespaces that are ready for cold runs. Absent: each cold run makes its own. */
  readonly networks?: NetworkReport | undefined
  /** Why the last start of a waiting sandbox failed, unless a later one succeeded. */
  readonly failure?: string | undefined
  /**
   * Runs of a shape that lately could not use the sandbox that they took, since the last one that could. `why` says
   * what to do too.
   */
  readonly unusable?: { readonly image: string; readonly runs: number; readonly why: string } | undefined
}

/** Fewest runs in a row without the use of their sandboxes that are a problem. One may be an accident. */
const unusableMin = 2

/** Fewest runs of which a pool with few hits has a problem. */
const runsMin = 10

/** Smallest share of runs that a useful pool serves. */
const shareMin = 0.1

/** Returns how many runs a pool has served, or let start cold. */
export const runsOf = ({ cold, hits, misses }: PoolReport): number =>
  Object.values(cold).reduce((sum, count) => sum + count, hits + misses)

/** Returns what is wrong with a pool, and what to do; `undefined` if nothing is. */
export const problemOf = (report: PoolReport): string | undefined => {
  const { cold, failure, hits, misses, shapes, unusable, waiting } = report
  if (failure !== undefined && waiting.length === 0)
    return `no sandbox waits now, and the last attempt to start one failed: ${failure}`
  if (unusable !== undefined && unusable.runs >= unusableMin)
    return `${unusable.runs} runs in a row got a waiting sandbox of ${unusable.image}, and started cold: ${unusable.why}`
  const reasons = Object.entries(cold) as ReadonlyArray<[ColdReason, number]>
  const runs = runsOf(report)
  if (runs < runsMin || hits >= runs * shareMin) return undefined
  const few = `${hits === 0 ? "none" : `only ${hits}`} of ${runs} runs`
  const [most] = reasons.toSorted(([, a], [, b]) => b - a)
  return most === undefined || most[1] <= misses
    ? `${few} found a waiting sandbox. ${remedyOf(shapes)}`
    : `${few} could use a waiting sandbox, ${most[1]} of them because ${reasonOf(most[0])}. ` +
        "Turn the pool off, or change what these runs ask for"
}

const remedies: Readonly<Record<LimitedBy, string>> = {
  memoryBytesMax: `Raise ${named("PoolLimits.memoryBytesMax")}`,
  memoryAvailableBytesMin: "Free memory of the host: a sandbox waits only if enough stays available",
  sandboxesMax: `Raise ${named("PoolLimits.sandboxesMax")}, or keep some of their shape`
}

/** Returns what lets more sandboxes wait. Memory first: with too little of it, more places change nothing. */
const remedyOf = (shapes: PoolReport["shapes"]): string => {
  const limits = new Set(shapes.map((shape) => shape.limitedBy))
  const found = (["memoryBytesMax", "memoryAvailableBytesMin"] as const).find((limit) => limits.has(limit))
  return remedies[found ?? "sandboxesMax"]
}
