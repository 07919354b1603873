/**
 * Releases the resources of a run in separate steps, which are bounded in time, uninterruptible and never fail.
 *
 * A step that fails or hangs is logged and left to the reaper; the next one still runs.
 */
import { Cause, Duration, Effect, Exit, Fiber, Option, Scope } from "effect"

/** How long one release step may take before the next one starts. */
const releaseSecondsMax = 30

/** Runs one release step. */
export const bounded = (name: string, step: Effect.Effect<unknown, unknown>): Effect.Effect<void> =>
  // A detached fiber, because an uninterruptible region cannot be timed out.
  Effect.forkDetach(step, { startImmediately: true }).pipe(
    Effect.flatMap((fiber) =>
      Effect.interruptible(Fiber.await(fiber)).pipe(Effect.timeoutOption(Duration.seconds(releaseSecondsMax)))
    ),
    Effect.flatMap(
      Option.match({
        onNone: () => Effect.logWarning(`${name} took over ${releaseSecondsMax} s; left to the reaper`),
        onSome: (exit) =>
          Exit.isFailure(exit)
            ? Effect.logWarning(`${name} failed; left to the reaper`, Cause.squash(exit.cause))
            : Effect.void
      })
    ),
    Effect.uninterruptible
  )

/**
 * Acquires a resource in a new scope. Closing it is one release step of the surrounding scope.
 *
 * Background work that the acquisition starts belongs to the new scope too, so that all of it is released in the order
 * of acquisition.
 */
export const owned = <A, E, R>(
  name: string,
  acquire: Effect.Effect<A, E, R>
): Effect.Effect<A, E, Exclude<R, Scope.Scope> | Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Scope.make()
    yield* Effect.addFinalizer((exit) => bounded(`release of ${name}`, Scope.close(scope, exit)))
    return yield* Effect.provideService(acquire, Scope.Scope, scope)
  })

/** Runs an effect in a scope, and always closes it. Closing cannot change the outcome. */
export const scoped = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, Exclude<R, Scope.Scope>> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const exit = yield* Effect.exit(restore(Effect.provideService(effect, Scope.Scope, scope)))
      yield* Effect.exit(Scope.close(scope, exit))
      return yield* exit
    })
  )
