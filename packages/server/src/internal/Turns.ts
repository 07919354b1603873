/**
 * Lets work that many do at the same moment happen a little at a time, so that timers and the runs of this process come
 * in between: the event loop would otherwise do all of it first.
 */
import { Effect } from "effect"

/** Pieces of work in one turn of the event loop. */
const perTurnMax = 8

/** Returns an effect that ends when it is one's turn. */
export const make = (max: number = perTurnMax): Effect.Effect<void> => {
  const waiting = new Set<() => void>()
  let taken = 0
  const next = () => {
    taken = 0
    for (const go of waiting) {
      if (taken === max) break
      waiting.delete(go)
      taken += 1
      go()
    }
    if (taken > 0) setImmediate(next)
  }
  return Effect.callback<void>((resume) => {
    const go = () => resume(Effect.void)
    if (taken === 0) setImmediate(next)
    if (taken < max && waiting.size === 0) {
      taken += 1
      return go()
    }
    waiting.add(go)
    return Effect.sync(() => void waiting.delete(go))
  })
}
