/**
 * The starts of runs that go on, so that work which can wait does not slow them down. A container or network that is
 * made or removed at the same time needs the same processors and the same engine.
 *
 * Every wait is bounded, so that the work is also done while runs start all the time.
 */
import { Effect, Latch } from "effect"
import * as MonotonicTime from "./MonotonicTime.ts"

export interface RunStarts {
  /** Notes that a run starts. Returns the effect that notes that it has started, or failed to. */
  readonly note: Effect.Effect<Effect.Effect<void>>
  /** Waits until no run starts, for a limited time. */
  readonly quiet: Effect.Effect<void>
  /** Returns whether no run starts now. */
  readonly isQuiet: Effect.Effect<boolean>
}

export const make = ({
  quietMillis = 0,
  waitMillisMax
}: {
  /** Time after the start of a run that counts as part of it, in milliseconds (default 0). */
  readonly quietMillis?: number
  /** The longest that work waits, in milliseconds. */
  readonly waitMillisMax: number
}): RunStarts => {
  const latch = Latch.makeUnsafe(true)
  let count = 0
  let endedMillis = -Infinity
  const note = Effect.sync(() => {
    count += 1
    latch.closeUnsafe()
    let isOver = false
    return Effect.map(MonotonicTime.nowMillis, (nowMillis) => {
      if (isOver) return
      isOver = true
      count -= 1
      endedMillis = nowMillis
      if (count === 0) latch.openUnsafe()
    })
  })
  const leftMillis = Effect.map(MonotonicTime.nowMillis, (nowMillis) => endedMillis + quietMillis - nowMillis)
  const becomesQuiet = Effect.gen(function* () {
    for (;;) {
      yield* latch.await
      const millis = yield* leftMillis
      if (millis <= 0) return
      yield* Effect.sleep(millis)
    }
  })
  return {
    note,
    quiet: Effect.asVoid(Effect.timeoutOption(becomesQuiet, waitMillisMax)),
    isQuiet: Effect.map(leftMillis, (millis) => count === 0 && millis <= 0)
  }
}
