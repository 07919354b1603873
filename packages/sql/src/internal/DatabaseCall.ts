/**
 * Database calls with a timeout, and with retries if they may help.
 *
 * Each call runs in a detached fiber: the end of a run is uninterruptible, and such a region cannot time out.
 */
import { Duration, Effect, Fiber, Schedule } from "effect"
import { isSqlError, type SqlError } from "effect/sql/SqlError"
import { isPassing } from "./DatabaseFault.ts"

/** Timeout of one call in seconds, including the wait for a connection. */
export const callSecondsMax = 10

/** Seconds after the first attempt during which a call is retried. */
const againSecondsMax = 3

/** Creates calls that fail with the caller's error type: `failed` for database errors, `silent` for timeouts. */
export const make = <Failure>(
  failed: (error: SqlError) => Failure,
  silent: (words: { readonly detail: string; readonly remedy: string }) => Failure
) => {
  const slow = () =>
    silent({
      detail: `did not answer within ${callSecondsMax} s`,
      remedy: "Check the database and the connection to it, then try again"
    })

  const bounded = <A, E>(question: Effect.Effect<A, E>): Effect.Effect<A, E | Failure> =>
    Effect.flatMap(Effect.forkDetach(Effect.interruptible(question), { startImmediately: true }), (fiber) =>
      Effect.interruptible(Fiber.join(fiber)).pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(callSecondsMax),
          // Does not wait for the interruption, which may take as long again.
          orElse: () => Effect.andThen(Effect.forkDetach(Fiber.interrupt(fiber)), Effect.fail(slow()))
        }),
        // Waits for the interruption, so that this call cannot take effect after the caller's next one.
        Effect.onInterrupt(() => Fiber.interrupt(fiber))
      )
    )

  return {
    /** Makes the call without retries. */
    once: <A, E>(
      question: Effect.Effect<A, E | SqlError>
    ): Effect.Effect<A, Exclude<E, SqlError> | Failure> =>
      bounded(question).pipe(
        Effect.catchIf(isSqlError, (error) => Effect.fail(failed(error)))
      ) as Effect.Effect<A, Exclude<E, SqlError> | Failure>,

    /** Makes the call, and retries it after temporary errors. The call must be idempotent. */
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
