/**
 * What every run of a graph has in common, whoever does the work: admitted or refused, told while it goes on, stopped
 * when its reader wants, and concluded once.
 */
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Effect, type Scope } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import type { GraphRefused, GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import type { RepositoryUnavailable } from "../Repositories.ts"
import * as Conclusion from "./Conclusion.ts"
import * as GraphEnd from "./GraphEnd.ts"
import * as GraphLife from "./GraphLife.ts"
import * as GraphTrace from "./GraphTrace.ts"

/** What the work may do. */
export interface GraphWork {
  readonly tell: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
  /** The run's id is its own from here on. */
  readonly claimed: () => void
}

/** How much of what was said is held for a run that fails. */
const textCharsMax = 1024 * 1024

/** Interrupting `live` ends the run, and waits until nothing of it is left. */
export const run = Effect.fnUntraced(function* <A, R>(
  request: GraphRunRequest,
  context: RunContext,
  store: RunStore["Service"],
  /** What it holds is held until the work is over. */
  admit: (request: GraphRunRequest, context: RunContext) => Effect.Effect<A, GraphRefused, Scope.Scope>,
  live: (
    admitted: A,
    work: GraphWork
  ) => Effect.Effect<GraphEnd.Outcome, SandboxError | RepositoryUnavailable, R>
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
      claimed: conclusion.claimed
    }
    const outcome = yield* Effect.raceFirst(
      Effect.flatMap(admit(request, context), (admitted) => live(admitted, work)).pipe(
        Effect.scoped,
        Effect.catchTags({
          GraphRefused: (refused) => Effect.succeed(GraphEnd.refused(refused)),
          RepositoryUnavailable: (error) => Effect.succeed<GraphEnd.Outcome>({ _tag: "NoRepository", error }),
          SandboxError: (error) =>
            Effect.sync((): GraphEnd.Outcome => ({ _tag: "Failed", error, textSoFar: text }))
        })
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
