/**
 * What is said of a row of measurements. Pure.
 *
 * Twenty lines of our own and no benchmark library: those run one task after the other, so a machine that slows down
 * meanwhile favours whoever came first, and none of them takes a latency under load apart.
 */

/** Milliseconds. */
export interface Summary {
  readonly count: number
  readonly min: number
  readonly p50: number
  readonly p95: number
  readonly p99: number
}

const round = (value: number) => Math.round(value * 10) / 10

/** Nearest rank: always a value that was measured. */
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

/** Whoever is first in a round is last in a later one, so that no place in it is anybody's own. */
export const rotate = <A>(all: ReadonlyArray<A>, by: number): ReadonlyArray<A> =>
  all.map((_, index) => all[(index + by) % all.length]!)
