/** The end of a graph's run: from what became of it to its last events, its record, and whoever counts. */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { Cause, Clock, Effect, Fiber } from "effect"
import * as EventGrammar from "../events/EventGrammar.ts"
import { GraphObserver } from "../graphs/GraphObserver.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import * as EventsDigest from "./EventsDigest.ts"
import * as GraphEnd from "./GraphEnd.ts"
import type { LifeEnd } from "./GraphLife.ts"

/** How long the end of a run waits for its record, and for whoever counts. */
const patience = "30 seconds"

/** What is told beside the end never fails, never breaks, and never takes for ever. */
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

  /** What the proxy saw; of the record, where the end itself does not say. */
  const trafficOf = ({ traffic }: GraphEnd.Outcome) =>
    traffic === undefined
      ? Effect.map(
          beside("what a run has used cannot be read", store.describe(runId)),
          (record) => record?.llm
        )
      : Effect.succeed(traffic)

  const write = ({ delivery }: GraphEnd.Outcome, end: LifeEnd) => {
    const annotations = {
      graph: GraphEnd.annotation(request, context, end, digest.value()),
      ...(delivery === undefined ? {} : { relay: delivery.record })
    }
    return beside("the record of the run is not whole", store.annotate(runId, annotations))
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

  /** Once, in a fiber that nobody interrupts: a scope that closes meanwhile must not have it done again. */
  const conclude = (outcome: GraphEnd.Outcome) =>
    Effect.uninterruptible(
      Effect.gen(function* () {
        concluding ??= yield* Effect.forkDetach(concluded(outcome), { startImmediately: true })
        return yield* Fiber.join(concluding)
      })
    )

  return {
    /** Its reader is told these. */
    told: digest.add,
    /** The run's id is its own from here on: its record may be written to. */
    claimed: () => {
      isClaimed = true
    },
    /** Nothing that goes wrong in it stands in the way of the end. */
    conclude,
    /** The same, where the work itself was interrupted, or broke. */
    broken: (cause: Cause.Cause<never>) =>
      Cause.hasInterruptsOnly(cause)
        ? conclude(GraphEnd.stopped("reader_left", ""))
        : Effect.andThen(
            Effect.logError("a graph's run broke", cause),
            conclude(GraphEnd.broken("the executor failed; its log says why"))
          )
  }
})
