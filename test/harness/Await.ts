/**
 * Waits in tests: for a fiber on the test clock, and in real time for other threads and processes.
 */
import { Effect, type Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as Pace from "./Pace.ts"

/** Less than the time limit of a test, so that the failure says what did not happen. */
const waitMillisMax = Pace.hangMillis / 2
const turnsMax = 100

/** Repeats a check until it succeeds, in real time on any clock. Dies with `what` if it hangs. */
export const until = Effect.fnUntraced(function* <E, R>(what: string, check: Effect.Effect<boolean, E, R>) {
  const begun = performance.now()
  for (let asked = 0; !(yield* check); asked++) {
    if (performance.now() - begun > waitMillisMax)
      return yield* Effect.die(new Error(`timed out after ${waitMillisMax / 1000} s: ${what}`))
    // Most checks need a few turns of the event loop; those of a program need longer.
    yield* Effect.promise(
      () =>
        new Promise<void>((resolve) => (asked < turnsMax ? setImmediate(resolve) : setTimeout(resolve, 20)))
    )
  }
})

/** Advances the test clock, one second at a time, until the fiber has ended. Returns its exit. */
export const ended = Effect.fnUntraced(function* <A, E>(
  fiber: Fiber.Fiber<A, E>,
  secondsMax = 600
): Effect.fn.Return<Exit.Exit<A, E>> {
  for (let second = 0; second < secondsMax && fiber.pollUnsafe() === undefined; second++) {
    yield* TestClock.adjust("1 second")
  }
  return yield* Fiber.await(fiber)
})

/** Runs an effect to its end while the test clock advances. */
export const play = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(Effect.forkChild(effect), (fiber) => Effect.flatten(ended(fiber)))
