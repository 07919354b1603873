/** Time for durations, which the time of day cannot measure: that can be set back or forth while something waits. */
import { Clock, Effect } from "effect"

/**
 * Whole milliseconds since some moment before the start of this process. Says nothing about the date. Whole, because
 * messages and reports show differences of it.
 */
export const nowMillis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, (nanos) =>
  Math.floor(Number(nanos) / 1e6)
)
