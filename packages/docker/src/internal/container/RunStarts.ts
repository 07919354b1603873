/**
 * The starts of runs that go on, so that work which can wait does not slow them down: a start needs the processors, and
 * so does making a network ready or removing a container.
 */
import { Deferred, Effect, type Scope } from "effect"

export interface RunStarts {
  /** Notes that a run starts. Returns how to note the end of that; the scope does so too. */
  readonly note: Effect.Effect<Effect.Effect<void>, never, Scope.Scope>
  /** Waits until no run starts, for a limited time. */
  readonly quiet: Effect.Effect<void>
}

/** Longest time for which work waits for the starts of runs. */
export const waitSecondsMax = 5

export const make = (): RunStarts => {
  let count = 0
  let ended = Deferred.makeUnsafe<void>()
  const noteEnd = Effect.suspend(() => {
    count -= 1
    if (count > 0) return Effect.void
    const all = ended
    ended = Deferred.makeUnsafe<void>()
    return Effect.asVoid(Deferred.succeed(all, undefined))
  })
  return {
    note: Effect.acquireRelease(
      Effect.sync(() => {
        let isOver = false
        count += 1
        return Effect.suspend(() => {
          if (isOver) return Effect.void
          isOver = true
          return noteEnd
        })
      }),
      (end) => end
    ),
    quiet: Effect.suspend(() =>
      count === 0
        ? Effect.void
        : Effect.asVoid(Effect.timeoutOption(Deferred.await(ended), `${waitSecondsMax} seconds`))
    )
  }
}
