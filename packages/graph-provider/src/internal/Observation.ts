/** Tells an observer about the end of a run. Nothing here can fail a run or hold it for long. */
import { Clock, Effect, Fiber } from "effect"
import type { GraphObserver, ObservedEnd } from "../graphs/GraphObserver.ts"
import type { RunContext } from "../graphs/GraphProvider.ts"
import type { LifeEnd } from "../graphs/GraphLife.ts"

/** Time that the end of a run waits for each of its side effects. */
export const patience = "30 seconds"

/** Guards a side effect of the end: it never fails, never has a defect, and is limited in time. */
export const beside = <A, E>(what: string, effect: Effect.Effect<A, E>): Effect.Effect<A | undefined> =>
  Effect.timeout(effect, patience).pipe(
    Effect.catchCause((cause) => Effect.as(Effect.logWarning(what, cause), undefined))
  )

/** Starts the clock of a run. Returns how to tell the observer its end. Succeeds with true if that was accepted. */
export const make = Effect.fnUntraced(function* (
  { observe }: GraphObserver["Service"],
  { graphId, model }: ObservedEnd["request"],
  context: RunContext
) {
  const startedAt = yield* Clock.currentTimeMillis
  return Effect.fnUntraced(function* ({ ending, final }: LifeEnd) {
    if (observe === undefined) return true
    const durationMs = (yield* Clock.currentTimeMillis) - startedAt
    const accepted = beside(
      "an observer of runs failed",
      Effect.as(
        Effect.suspend(() =>
          observe({ request: { graphId, model }, context, final, facts: ending.facts, durationMs })
        ),
        true
      )
    )
    return (yield* accepted) === true
  })
})

/** Concludes a run once, in a fiber without interruption: a scope that closes meanwhile must not repeat it. */
export const once = <Outcome>(conclude: (outcome: Outcome) => Effect.Effect<LifeEnd>) => {
  let concluding: Fiber.Fiber<LifeEnd> | undefined
  return (outcome: Outcome): Effect.Effect<LifeEnd> =>
    Effect.uninterruptible(
      Effect.gen(function* () {
        concluding ??= yield* Effect.forkDetach(conclude(outcome), { startImmediately: true })
        return yield* Fiber.join(concluding)
      })
    )
}
