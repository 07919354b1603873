/**
 * A run's share of a resource that is limited for all runs together, such as memory or connections.
 *
 * Each run has a guaranteed part that no other run can take. More than that comes from a pool that all runs share, so a
 * run that takes as much as it can still leaves every other run its part.
 */
import type { Field, ShardCounters } from "../shards/ShardCounters.ts"

/** Share of one run. */
export interface RunShare {
  /** Takes this amount. Returns false, and takes nothing, if it would be too much. */
  readonly take: (amount: number) => boolean
  readonly give: (amount: number) => void
  readonly held: () => number
  /** Returns everything and refuses to take more, because the run has ended. */
  readonly release: () => void
}

export interface Limits {
  /** Limit for all runs together. */
  readonly totalMax: number
  /** Largest guaranteed part that is useful: a whole request body, or all connections of one run. */
  readonly wholeMax: number
  /** Limit for one run, however much is left (default: no such limit). */
  readonly runMax?: number | undefined
}

/** Guaranteed part of a run. Half of the total is divided among the runs; the other half is for short peaks. */
const guaranteed = ({ totalMax, wholeMax }: Limits, runs: number): number =>
  Math.floor(Math.min(wholeMax, totalMax / 2 / Math.max(1, runs)))

/** Maximum that one run may hold. */
const shareMax = ({ runMax = Infinity, totalMax, wholeMax }: Limits, runs: number): number =>
  Math.floor(Math.min(runMax, Math.max(Math.min(wholeMax, totalMax), totalMax / Math.max(1, runs))))

/** Part of a run's share that one request holds, and returns as a whole. */
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

interface RunShareOptions {
  readonly limits: Limits
  /** Live runs of all shards. */
  readonly runs: () => number
  readonly counters: ShardCounters
  readonly slot: number
  readonly field: Field
  /** Amount that one count in the shared counters stands for. */
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
