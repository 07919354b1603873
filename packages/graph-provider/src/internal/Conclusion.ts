/**
 * The end of a graph's run: from what became of it to its last events, its record, and whoever counts.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { Cause, Clock, Effect } from "effect"
import type { AiEvent } from "../AiEvent.ts"
import * as EventGrammar from "../EventGrammar.ts"
import { GraphObserver } from "../GraphObserver.ts"
import type { GraphRunRequest, RunContext } from "../GraphProvider.ts"
import * as AgentSpeech from "./AgentSpeech.ts"
import * as GraphEnd from "./GraphEnd.ts"
import type { LifeEnd } from "./GraphLife.ts"

export interface Conclusion {
  /** Its reader is told these. */
  readonly told: (events: ReadonlyArray<AiEvent>) => void
  /** The run's id is its own from here on: its record may be written to. */
  readonly claimed: () => void
  /** Nothing that goes wrong in it stands in the way of the end. */
  readonly conclude: (outcome: GraphEnd.Outcome) => Effect.Effect<LifeEnd>
  /** The same, where the work itself was interrupted, or broke. */
  readonly broken: (cause: Cause.Cause<never>) => Effect.Effect<LifeEnd>
}

/** How long the end of a run waits for its record. */
const recordPatience = "30 seconds"

export const make = Effect.fnUntraced(function* (
  request: GraphRunRequest,
  context: RunContext,
  store: RunStore["Service"]
) {
  const { runId } = context
  const startedAt = yield* Clock.currentTimeMillis
  const observe = yield* GraphObserver
  const digest = AgentSpeech.makeDigest()
  let isClaimed = false

  /** What the proxy saw; of the record, where the end itself does not say. */
  const trafficOf = (outcome: GraphEnd.Outcome) => {
    const known = GraphEnd.trafficOf(outcome)
    return known === undefined
      ? Effect.match(Effect.timeout(store.get(runId), recordPatience), {
          onFailure: () => undefined,
          onSuccess: (record) => record?.llm
        })
      : Effect.succeed(known)
  }

  const write = (outcome: GraphEnd.Outcome, end: LifeEnd) => {
    const delivery = outcome._tag === "Ended" ? outcome.delivery : undefined
    return store
      .annotate(runId, {
        graph: GraphEnd.annotation(request, context, end, digest.value()),
        ...(delivery === undefined ? {} : { relay: delivery.record })
      })
      .pipe(
        Effect.timeout(recordPatience),
        Effect.catch((error) => Effect.logWarning("the record of the run is not whole", error.message))
      )
  }

  const conclude: Conclusion["conclude"] = Effect.fnUntraced(function* (outcome) {
    const isOurs = isClaimed && GraphEnd.isOnRecord(outcome)
    const end = GraphEnd.make(request, context, outcome, isOurs ? yield* trafficOf(outcome) : undefined)
    digest.add(EventGrammar.ending(end.ending))
    if (isOurs) yield* write(outcome, end)
    yield* observe({
      request: { graphId: request.graphId, model: request.model },
      context,
      final: end.final,
      facts: end.ending.facts,
      durationMs: (yield* Clock.currentTimeMillis) - startedAt
    }).pipe(Effect.catchCause((cause) => Effect.logWarning("an observer of runs failed", cause)))
    return end
  })

  return {
    told: digest.add,
    claimed: () => {
      isClaimed = true
    },
    conclude,
    broken: (cause) =>
      Cause.hasInterruptsOnly(cause)
        ? conclude({ _tag: "Stopped", why: "reader_left", textSoFar: "" })
        : Effect.andThen(
            Effect.logError("a graph's run broke", cause),
            conclude({ _tag: "Broken", message: "the executor failed; its log says why" })
          )
  } satisfies Conclusion
})
