/**
 * How a database is asked: for a limited time, and again where that may help.
 *
 * A detached fiber, because what a run does at its end must not be interrupted, and such a region cannot be timed out.
 */
import { Duration, Effect, Fiber, Schedule } from "effect"
import { isSqlError, type SqlError } from "effect/sql/SqlError"
import { isPassing } from "../Database.ts"

/** For one question, with the wait for a connection. */
export const callSecondsMax = 10

/** From the first attempt until no further one is made. */
export const againSecondsMax = 3

/** Calls that fail with an error of the caller's own: made of what the database said, or of its silence. */
export const make = <Failure>(
  failed: (error: SqlError) => Failure,
  silent: (words: { readonly detail: string; readonly remedy: string }) => Failure
) => {
  const slow = () =>
    silent({
      detail: `did not answer within ${callSecondsMax} s`,
      remedy: "Look at the database, and at the way to it, then try again"
    })

  const bounded = <A, E>(question: Effect.Effect<A, E>): Effect.Effect<A, E | Failure> =>
    Effect.flatMap(Effect.forkDetach(Effect.interruptible(question), { startImmediately: true }), (fiber) =>
      Effect.interruptible(Fiber.join(fiber)).pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(callSecondsMax),
          // Nobody waits until it has ended: that may be as long again.
          orElse: () => Effect.andThen(Effect.forkDetach(Fiber.interrupt(fiber)), Effect.fail(slow()))
        }),
        // Who asks next must not be overtaken by what this one asked.
        Effect.onInterrupt(() => Fiber.interrupt(fiber))
      )
    )

  return {
    /** Once. */
    once: <A, E>(
      question: Effect.Effect<A, E | SqlError>
    ): Effect.Effect<A, Exclude<E, SqlError> | Failure> =>
      bounded(question).pipe(
        Effect.catchIf(isSqlError, (error) => Effect.fail(failed(error)))
      ) as Effect.Effect<A, Exclude<E, SqlError> | Failure>,

    /** Again while that may help; the question has to mean the same when it is asked twice. */
    again: <A>(question: Effect.Effect<A, SqlError>): Effect.Effect<A, Failure> =>
      bounded(question).pipe(
        Effect.retry({
          schedule: Schedule.exponential("100 millis").pipe(
            Schedule.upTo({ duration: Duration.seconds(againSecondsMax) })
          ),
          while: (error) => isSqlError(error) && isPassing(error)
        }),
        Effect.catchIf(isSqlError, (error) => Effect.fail(failed(error)))
      ) as Effect.Effect<A, Failure>
  }
}
