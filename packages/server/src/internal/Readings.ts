/** Readings that can be large: a few at one time, and a limited number for each account. */
import { Effect, Semaphore } from "effect"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"

/** Readings at one time. */
const readingsMax = 2

/** Readings for one account, under way or waiting. */
export const perAccountMax = 16

/** Seconds after which a client may try again. */
const retrySeconds = 5

/** Returns how to read as one of a few at a time. `tooMany` refuses a reading beyond those of an account. */
export const make = Effect.fnUntraced(function* (tooMany: ReturnType<typeof Problem.make<"unavailable">>) {
  const readings = yield* Semaphore.make(readingsMax)
  const waiting = new Map<string, number>()

  /** Takes a place of an account, so that one that asks for much does not keep all others waiting. */
  const enter = Effect.gen(function* () {
    const { billingAccountId } = yield* CurrentGrant
    const isIn = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const own = waiting.get(billingAccountId) ?? 0
        if (own < perAccountMax) waiting.set(billingAccountId, own + 1)
        return own < perAccountMax
      }),
      (isIn) =>
        Effect.sync(() => {
          const left = (waiting.get(billingAccountId) ?? 0) - (isIn ? 1 : 0)
          if (left > 0) waiting.set(billingAccountId, left)
          else waiting.delete(billingAccountId)
        })
    )
    if (!isIn) return yield* Problem.retryLater(tooMany, retrySeconds)
  })

  return <A, E, R>(reading: Effect.Effect<A, E, R>) =>
    Effect.scoped(Effect.andThen(enter, readings.withPermits(1)(reading)))
})
