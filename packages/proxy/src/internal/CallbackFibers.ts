/**
 * The only place where a Node callback starts a fiber, such as for a request or for a message from another thread.
 *
 * A fiber starts within the callback, so that nothing can run in between. Closing the scope interrupts the fibers that
 * remain.
 */
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"

export interface CallbackFibers {
  readonly fork: (effect: Effect.Effect<void>) => void
  /** Succeeds when no fiber is left. */
  readonly awaitEmpty: Effect.Effect<void>
  /** Interrupts all fibers, and succeeds when they have ended. */
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
