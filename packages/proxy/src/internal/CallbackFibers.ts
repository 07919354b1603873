/**
 * The one seam where a callback of Node becomes a fiber: a request that has come, a message of another thread.
 *
 * A fiber begins within the callback, so that nothing can come between the two. Those that are left when the scope is
 * closed are interrupted.
 */
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"

export interface CallbackFibers {
  readonly fork: (effect: Effect.Effect<void>) => void
  /** Succeeds when none is left. */
  readonly awaitEmpty: Effect.Effect<void>
  /** Interrupts those there are, and succeeds when they have ended. */
  readonly interrupt: Effect.Effect<void>
}

export const make: Effect.Effect<CallbackFibers, never, Scope.Scope> = Effect.gen(function* () {
  const fibers = yield* FiberSet.make<void>()
  const run = yield* FiberSet.runtime(fibers)()
  return {
    fork: (effect) => void run(effect),
    awaitEmpty: FiberSet.awaitEmpty(fibers),
    interrupt: FiberSet.clear(fibers)
  }
})
