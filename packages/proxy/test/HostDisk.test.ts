import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import * as HostDisk from "../src/internal/HostDisk.ts"

describe("HostDisk.use", () => {
  it.effect("waits for the end of an operation that is interrupted, so that nothing appears later", () =>
    Effect.gen(function* () {
      const step = Promise.withResolvers<void>()
      const begun = yield* Deferred.make<void>()
      let isMade = false
      const making = HostDisk.use("a file cannot be made", async () => {
        Deferred.doneUnsafe(begun, Effect.void)
        await step.promise
        isMade = true
      })
      const fiber = yield* Effect.forkChild(making)
      yield* Deferred.await(begun)
      const interrupting = yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
      assert.isUndefined(interrupting.pollUnsafe())
      step.resolve()
      yield* Fiber.join(interrupting)
      assert.isTrue(isMade)
    })
  )
})
