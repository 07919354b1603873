/** Fibers that callbacks start: they begin at once, can be awaited, and do not outlive their scope. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Scope } from "effect"
import * as CallbackFibers from "../src/internal/CallbackFibers.ts"

describe("CallbackFibers", () => {
  it.effect("begins a fiber within the callback", () =>
    Effect.gen(function* () {
      const fibers = yield* CallbackFibers.make
      let hasBegun = false
      fibers.fork(
        Effect.andThen(
          Effect.sync(() => void (hasBegun = true)),
          Effect.never
        )
      )
      assert.isTrue(hasBegun)
    })
  )

  it.effect("is empty only when the last fiber has ended", () =>
    Effect.gen(function* () {
      const fibers = yield* CallbackFibers.make
      const ends = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      for (const end of ends) fibers.fork(Deferred.await(end))
      const empty = yield* Effect.forkChild(fibers.awaitEmpty, { startImmediately: true })
      yield* Deferred.succeed(ends[0]!, undefined)
      yield* Effect.replicateEffect(Effect.yieldNow, 20)
      assert.isUndefined(empty.pollUnsafe())
      yield* Deferred.succeed(ends[1]!, undefined)
      yield* Fiber.join(empty)
    })
  )

  it.effect("interrupts the remaining fibers and waits for their finalizers", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const fibers = yield* CallbackFibers.make.pipe(Scope.provide(scope))
      const ended: Array<string> = []
      const endless = (name: string) =>
        Effect.onInterrupt(Effect.never, () =>
          Effect.andThen(
            Effect.yieldNow,
            Effect.sync(() => void ended.push(name))
          )
        )
      fibers.fork(endless("cut off"))
      yield* fibers.interrupt
      assert.deepStrictEqual(ended, ["cut off"])
      fibers.fork(endless("with the scope"))
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(ended, ["cut off", "with the scope"])
    })
  )
})
