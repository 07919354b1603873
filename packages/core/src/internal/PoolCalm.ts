/**
 * Lets the background work of a pool wait while runs start in its sandboxes. A container that is created or removed at
 * the same time needs the same processors and the same engine, and would make these starts several times slower.
 *
 * The wait is bounded, so that a pool whose sandboxes are always taken is refilled too.
 */
import { Clock, Effect, Latch } from "effect"

/** Time after the start of a run within which its program prints something, in milliseconds. */
export const quietMillis = 30

/** The longest that background work waits, in milliseconds. */
export const calmMillisMax = 500

export interface PoolCalm {
  /** Notes that a run starts in a waiting sandbox. Returns the effect that notes that it has started, or failed to. */
  readonly starting: Effect.Effect<Effect.Effect<void>>
  /** Waits until no run is starting. Can be interrupted also in a region that cannot. */
  readonly wait: Effect.Effect<void>
}

export const make: Effect.Effect<PoolCalm> = Effect.sync(() => {
  const latch = Latch.makeUnsafe(true)
  let count = 0
  let endedMillis = -Infinity
  const starting = Effect.sync(() => {
    count += 1
    latch.closeUnsafe()
    let isOver = false
    return Effect.map(Clock.currentTimeMillis, (nowMillis) => {
      if (isOver) return
      isOver = true
      count -= 1
      endedMillis = nowMillis
      if (count === 0) latch.openUnsafe()
    })
  })
  const calm = Effect.gen(function* () {
    for (;;) {
      yield* latch.await
      const leftMillis = endedMillis + quietMillis - (yield* Clock.currentTimeMillis)
      if (leftMillis <= 0) return
      yield* Effect.sleep(leftMillis)
    }
  })
  const wait = Effect.interruptible(Effect.asVoid(Effect.timeoutOption(calm, calmMillisMax)))
  return { starting, wait }
})
