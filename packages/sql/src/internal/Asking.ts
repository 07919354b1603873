/**
 * How a database is asked: for so long and not longer, and again where that may help.
 *
 * A detached fiber, because what a run does at its end must not be interrupted, and such a region cannot be timed out.
 */
import { StoreUnavailable } from "@cogni/sandbox-core/SandboxError"
import { Duration, Effect, Fiber, Schedule } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import { explain, isPassing } from "../Database.ts"

/** For one question, with the wait for a connection. */
export const callSecondsMax = 10

/** From the first attempt until no further one is made. */
export const againSecondsMax = 3

/** In the words of a run. */
export const unavailable = (error: SqlError): StoreUnavailable => new StoreUnavailable(explain(error))

const slow = () =>
  new StoreUnavailable({
    detail: `did not answer within ${callSecondsMax} s`,
    remedy: "Look at the database, and at the way to it, then try again"
  })

const bounded = <A, E>(question: Effect.Effect<A, E>): Effect.Effect<A, E | StoreUnavailable> =>
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

/** Once. */
export const once = <A, E>(
  question: Effect.Effect<A, E | SqlError>
): Effect.Effect<A, Exclude<E, SqlError> | StoreUnavailable> =>
  bounded(question).pipe(
    Effect.catchIf(isSqlError, (error) => Effect.fail(unavailable(error)))
  ) as Effect.Effect<A, Exclude<E, SqlError> | StoreUnavailable>

/** Again while that may help; the question has to mean the same when it is asked twice. */
export const again = <A>(question: Effect.Effect<A, SqlError>): Effect.Effect<A, StoreUnavailable> =>
  bounded(question).pipe(
    Effect.retry({
      schedule: Schedule.exponential("100 millis").pipe(
        Schedule.upTo({ duration: Duration.seconds(againSecondsMax) })
      ),
      while: (error) => error._tag === "SqlError" && isPassing(error)
    }),
    Effect.catchTag("SqlError", (error) => Effect.fail(unavailable(error)))
  )

const isSqlError = (error: unknown): error is SqlError =>
  typeof error === "object" && error !== null && "_tag" in error && error._tag === "SqlError"
