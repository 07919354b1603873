/**
 * What every run of a graph has in common, whoever does the work: admitted or refused, told while it goes on, stopped
 * when its reader wants, and concluded once.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import { Effect, Result } from "effect"
import type { AiEvent } from "../AiEvent.ts"
import type { GraphRefused, GraphRunRequest, RunContext } from "../GraphProvider.ts"
import * as Conclusion from "./Conclusion.ts"
import * as GraphEnd from "./GraphEnd.ts"
import * as GraphLife from "./GraphLife.ts"
import * as GraphTrace from "./GraphTrace.ts"

/** What the work may do. */
export interface GraphWork {
  readonly tell: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
  /** The run's id is its own from here on. */
  readonly claimed: () => void
  /** The beginning of what was told of an answer, for a run that does not end with one. */
  readonly textSoFar: () => string
}

/** How much of what was said is held for a run that fails. */
const textCharsMax = 1024 * 1024

/** `live` never fails; interrupting it ends the run, and waits until nothing of it is left. */
export const run = Effect.fnUntraced(function* <A, R>(
  request: GraphRunRequest,
  context: RunContext,
  store: RunStore["Service"],
  admit: (request: GraphRunRequest, context: RunContext) => Effect.Effect<A, GraphRefused>,
  live: (admitted: A, work: GraphWork) => Effect.Effect<GraphEnd.Outcome, never, R>
) {
  const conclusion = yield* Conclusion.make(request, context, store)

  const lived = Effect.fnUntraced(function* (life: GraphLife.Life) {
    let text = ""
    const work: GraphWork = {
      tell: (events) => {
        for (const event of events) {
          if (event.type === "text_delta" && text.length < textCharsMax) text += event.delta
        }
        conclusion.told(events)
        return life.emit(events)
      },
      claimed: conclusion.claimed,
      textSoFar: () => text
    }
    const outcome = yield* Effect.raceFirst(
      Effect.flatMap(Effect.result(admit(request, context)), (admitted) =>
        Result.isFailure(admitted)
          ? Effect.succeed(GraphEnd.refused(admitted.failure))
          : live(admitted.success, work)
      ),
      Effect.map(life.stopped, (why) => GraphEnd.stopped(why, text))
    )
    yield* work.tell(GraphEnd.unspoken(outcome, text !== ""))
    return yield* conclusion.conclude(outcome)
  })

  return yield* GraphLife.make(
    context.runId,
    (life) => GraphTrace.around(request, context, lived(life)),
    (cause) => GraphTrace.logged(request, context, conclusion.broken(cause))
  )
})
