/**
 * What one run may hold of something that is limited for all runs together, such as bytes in memory or connections.
 *
 * Each run has a guaranteed part that no other run can take. What it holds beyond that comes from a pool that all runs
 * share, so a run that takes all it can leaves every other run its part.
 */
import type { Field, ShardCounters } from "../shards/ShardCounters.ts"

/** Of one run. */
export interface RunShare {
  /** False where it would be too much. */
  readonly take: (amount: number) => boolean
  readonly give: (amount: number) => void
  readonly held: () => number
  /** Give all of it back, and take nothing any more: the run has ended. */
  readonly release: () => void
}

export interface Limits {
  /** For all runs together. */
  readonly totalMax: number
  /** The most that a guaranteed part needs to be: a whole request body, or all connections of one run. */
  readonly wholeMax: number
  /** The most that one run may hold, however much is left; where it is not said, what is left is its bound. */
  readonly runMax?: number | undefined
}

/** Half of the total is divided among the runs; the other half is for those that need more for a moment. */
export const guaranteed = ({ totalMax, wholeMax }: Limits, runs: number): number =>
  Math.floor(Math.min(wholeMax, totalMax / 2 / Math.max(1, runs)))

/** The most that one run may hold. */
export const shareMax = ({ runMax = Infinity, totalMax, wholeMax }: Limits, runs: number): number =>
  Math.floor(Math.min(runMax, Math.max(Math.min(wholeMax, totalMax), totalMax / Math.max(1, runs))))

/** What one request holds of its run's share, given back as a whole. */
export interface Held {
  readonly take: (amount: number) => boolean
  readonly release: () => void
}

export const holding = (share: Pick<RunShare, "take" | "give">): Held => {
  let held = 0
  return {
    take: (amount) => {
      if (!share.take(amount)) return false
      held += amount
      return true
    },
    release: () => {
      share.give(held)
      held = 0
    }
  }
}

export interface RunShareOptions {
  readonly limits: Limits
  /** Runs of all shards that live now. */
  readonly runs: () => number
  readonly counters: ShardCounters
  readonly slot: number
  readonly field: Field
  /** What one count in the shared numbers stands for. */
  readonly unit: number
}

export const make = ({ counters, field, limits, runs, slot, unit }: RunShareOptions): RunShare => {
  let held = 0
  let claimed = 0
  let ended = false
  const claim = (units: number) => {
    counters.add(slot, field, units - claimed)
    claimed = units
  }
  const beyond = (amount: number) => Math.ceil(Math.max(0, amount - guaranteed(limits, runs())) / unit)
  return {
    take: (amount) => {
      const wanted = held + amount
      if (ended || wanted > shareMax(limits, runs())) return false
      const before = claimed
      const units = beyond(wanted)
      if (units > before) {
        claim(units)
        const poolMax = (limits.totalMax - runs() * guaranteed(limits, runs())) / unit
        if (counters.total(field) > poolMax) {
          claim(before)
          return false
        }
      }
      held = wanted
      return true
    },
    give: (amount) => {
      held = Math.max(0, held - amount)
      claim(Math.min(claimed, beyond(held)))
    },
    held: () => held,
    release: () => {
      ended = true
      held = 0
      claim(0)
    }
  }
}
