/** Report of a pool of waiting sandboxes, and what is wrong with it. Pure. */
import type { NetworkReport } from "./ContainerRuntime.ts"
import { type ColdReason, reasonOf } from "./PoolUse.ts"

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
  /** Waiting sandboxes that were started. */
  readonly started: number
  /** Runs that got one and used it. */
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
}

/** Fewest runs of which a pool with few hits has a problem. */
const runsMin = 10

/** Smallest share of runs that a useful pool serves. */
const shareMin = 0.1

/** Returns how many runs have asked a pool. */
export const runsOf = ({ cold, hits, misses }: PoolReport): number =>
  Object.values(cold).reduce((sum, count) => sum + count, hits + misses)

/** Returns what is wrong with a pool, and what to do; `undefined` if nothing is. */
export const problemOf = (report: PoolReport): string | undefined => {
  const { cold, failure, hits, misses, waiting } = report
  if (failure !== undefined && waiting.length === 0)
    return `waiting sandboxes cannot be started, so every run starts cold: ${failure}`
  const reasons = Object.entries(cold) as ReadonlyArray<[ColdReason, number]>
  const runs = runsOf(report)
  if (runs < runsMin || hits >= runs * shareMin) return undefined
  const few = `${hits === 0 ? "none" : `only ${hits}`} of ${runs} runs`
  const [most] = reasons.toSorted(([, a], [, b]) => b - a)
  return most === undefined || most[1] <= misses
    ? `${few} found a waiting sandbox. Raise sandboxesMax of the pool, or keep some of their image`
    : `${few} could use a waiting sandbox, ${most[1]} of them because ${reasonOf(most[0])}. ` +
        "Turn the pool off, or change what these runs ask for"
}
