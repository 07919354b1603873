/**
 * How a run lets go: every step on its own, bounded in time, never interrupted, never failing.
 *
 * A step that fails or hangs is logged and left to the reaper; the next one happens all the same.
 */
import { Cause, Duration, Effect, Exit, Fiber, Option, Scope } from "effect"

/** How long one release step may take before the next goes ahead. */
export const releaseSecondsMax = 30

/** One such step. */
export const bounded = (name: string, step: Effect.Effect<unknown, unknown>): Effect.Effect<void> =>
  // A detached fiber, because a region that must not be interrupted cannot be timed out either.
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
 * Acquire in a scope of its own, whose closing is one such step of the surrounding scope.
 *
 * What the acquisition starts in the background belongs to that inner scope too, so the place of the whole in the
 * order of release is where it was acquired.
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

/** Run in a scope, and close it whatever happens. Closing cannot change the outcome. */
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
