/**
 * Statistics of measurements. Pure.
 *
 * Twenty lines of our own instead of a benchmark library. Libraries run one task after the other, so a machine that
 * slows down meanwhile favors the first task, and no library analyzes latency under load.
 */

/** In milliseconds. */
export interface Summary {
  readonly count: number
  readonly min: number
  readonly p50: number
  readonly p95: number
  readonly p99: number
}

const round = (value: number) => Math.round(value * 10) / 10

/** Nearest-rank percentile: always a measured value. */
export const percentile = (sorted: ReadonlyArray<number>, share: number): number =>
  sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN

export const summarize = (samples: ReadonlyArray<number>): Summary => {
  const sorted = samples.toSorted((a, b) => a - b)
  const at = (share: number) => round(percentile(sorted, share))
  return {
    count: sorted.length,
    min: round(sorted[0] ?? Number.NaN),
    p50: at(0.5),
    p95: at(0.95),
    p99: at(0.99)
  }
}

/** Rotates the order by round, so that each contender takes every position. */
export const rotate = <A>(all: ReadonlyArray<A>, by: number): ReadonlyArray<A> =>
  all.map((_, index) => all[(index + by) % all.length]!)
