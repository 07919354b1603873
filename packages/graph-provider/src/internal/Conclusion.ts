/** Concludes a graph run: builds its last events from its outcome, completes its record, and calls its observer. */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { Cause, Effect } from "effect"
import * as EventGrammar from "../events/EventGrammar.ts"
import type { GraphObserver } from "../graphs/GraphObserver.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import * as EventsDigest from "./EventsDigest.ts"
import * as GraphEnd from "./GraphEnd.ts"
import type { LifeEnd } from "../graphs/GraphLife.ts"
import * as Observation from "./Observation.ts"

const { beside } = Observation

export const make = Effect.fnUntraced(function* (
  request: GraphRunRequest,
  context: RunContext,
  store: RunStore["Service"],
  observer: GraphObserver["Service"],
  /** Token under which the run is marked as unsettled, if it is. */
  token: string | undefined
) {
  const { runId } = context
  const observed = yield* Observation.make(observer, request, context)
  const digest = EventsDigest.make()
  let isClaimed = false

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
      ...GraphEnd.answered(end),
      ...(delivery === undefined ? {} : { ...delivery.annotations, relay: delivery.record })
    }
    return beside("the record of a run could not be completed", store.annotate(runId, annotations))
  }

  const concluded = Effect.fnUntraced(function* (outcome: GraphEnd.Outcome) {
    const isOurs = outcome.isOnRecord && (isClaimed || outcome.isClaimed === true)
    const end = GraphEnd.make(request, context, outcome, isOurs ? yield* trafficOf(outcome) : undefined)
    digest.add(EventGrammar.ending(end.ending))
    if (isOurs) yield* write(outcome, end)
    const isAccepted = yield* observed(end)
    // Another run may own this ID. The token settles only the run of this call.
    if (isAccepted && token !== undefined)
      yield* beside("the usage of a run was reported, but may be reported again", store.settle(runId, token))
    return end
  })

  const conclude = Observation.once(concluded)

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
