/** Concludes a graph run: builds its last events from its outcome, completes its record, and calls its observer. */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { Cause, Clock, Effect, Fiber } from "effect"
import * as EventGrammar from "../events/EventGrammar.ts"
import { GraphObserver } from "../graphs/GraphObserver.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import * as EventsDigest from "./EventsDigest.ts"
import * as GraphEnd from "./GraphEnd.ts"
import type { LifeEnd } from "./GraphLife.ts"

/** Time that the end of a run waits for its record, and for its observer. */
const patience = "30 seconds"

/** Guards a side effect of the end: it never fails, never has a defect, and is limited in time. */
const beside = <A, E>(what: string, effect: Effect.Effect<A, E>): Effect.Effect<A | undefined> =>
  Effect.timeout(effect, patience).pipe(
    Effect.catchCause((cause) => Effect.as(Effect.logWarning(what, cause), undefined))
  )

export const make = Effect.fnUntraced(function* (
  request: GraphRunRequest,
  context: RunContext,
  store: RunStore["Service"]
) {
  const { runId } = context
  const startedAt = yield* Clock.currentTimeMillis
  const observe = yield* GraphObserver
  const digest = EventsDigest.make()
  let isClaimed = false
  let concluding: Fiber.Fiber<LifeEnd> | undefined

  /** Returns the calls that the proxy saw, from the run record if the outcome does not contain them. */
  const trafficOf = ({ traffic }: GraphEnd.Outcome) =>
    traffic === undefined
      ? Effect.map(
          beside("the usage of a run could not be read", store.describe(runId)),
          (record) => record?.llm
        )
      : Effect.succeed(traffic)

  const write = ({ delivery }: GraphEnd.Outcome, end: LifeEnd) => {
    const annotations = {
      graph: GraphEnd.annotation(request, context, end, digest.value()),
      ...(delivery === undefined ? {} : { relay: delivery.record })
    }
    return beside("the record of a run could not be completed", store.annotate(runId, annotations))
  }

  const concluded = Effect.fnUntraced(function* (outcome: GraphEnd.Outcome) {
    const isOurs = outcome.isOnRecord && (isClaimed || outcome.isClaimed === true)
    const end = GraphEnd.make(request, context, outcome, isOurs ? yield* trafficOf(outcome) : undefined)
    digest.add(EventGrammar.ending(end.ending))
    if (isOurs) yield* write(outcome, end)
    const observed = {
      request: { graphId: request.graphId, model: request.model },
      context,
      final: end.final,
      facts: end.ending.facts,
      durationMs: (yield* Clock.currentTimeMillis) - startedAt
    }
    yield* beside("an observer of runs failed", observe(observed))
    return end
  })

  /** Runs once, in a fiber without interruption: a scope that closes meanwhile must not repeat it. */
  const conclude = (outcome: GraphEnd.Outcome) =>
    Effect.uninterruptible(
      Effect.gen(function* () {
        concluding ??= yield* Effect.forkDetach(concluded(outcome), { startImmediately: true })
        return yield* Fiber.join(concluding)
      })
    )

  return {
    /** Records events that the reader receives. */
    told: digest.add,
    /** Marks the run ID as owned by this run: its record may be changed from now on. */
    claimed: () => {
      isClaimed = true
    },
    /** Concludes the run. No error in it prevents the end. */
    conclude,
    /** Concludes a run whose work was interrupted or had a defect. */
    broken: (cause: Cause.Cause<never>) =>
      Cause.hasInterruptsOnly(cause)
        ? conclude(GraphEnd.stopped("reader_left", ""))
        : Effect.andThen(
            Effect.logError("a graph run failed with a defect", cause),
            conclude(GraphEnd.broken("the executor failed; see its log"))
          )
  }
})
