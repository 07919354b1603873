/**
 * The common part of all graph runs of the sandbox, for agents and tasks: admission, events, stops and one conclusion.
 */
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Effect, type Scope } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import { type GraphId, sandboxNamespace } from "../graphs/GraphId.ts"
import type { GraphProvider, GraphRefused, GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import {
  type InClone,
  Repositories,
  type RepositoryDelivery,
  type RepositoryUnavailable
} from "../Repositories.ts"
import * as Conclusion from "./Conclusion.ts"
import * as GraphEnd from "./GraphEnd.ts"
import * as GraphLife from "./GraphLife.ts"
import * as GraphTrace from "./GraphTrace.ts"

/** Interface between the work and its run. */
export interface GraphWork {
  readonly tell: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
  /** Marks the run ID as owned by this run. */
  readonly claimed: () => void
  /** Runs in a clone of the repository that the request names, if it names one. */
  readonly inClone: InClone<RepositoryDelivery, RepositoryUnavailable, never> | undefined
}

/** Length after which no more text is kept for a run that fails. */
const textCharsMax = 1024 * 1024

/** Creates a provider. Interruption of `live` must end the run and wait until all its resources are removed. */
export const provider = Effect.fnUntraced(function* <A>(
  canHandle: (graphId: GraphId) => boolean,
  /** Its resources are held until the work is over. */
  admit: (request: GraphRunRequest, context: RunContext) => Effect.Effect<A, GraphRefused, Scope.Scope>,
  live: (
    admitted: A,
    work: GraphWork
  ) => Effect.Effect<GraphEnd.Outcome, SandboxError | RepositoryUnavailable>
) {
  const store = yield* RunStore
  const repositories = yield* Repositories

  const run = Effect.fnUntraced(function* (request: GraphRunRequest, context: RunContext) {
    const { repository } = request
    const conclusion = yield* Conclusion.make(request, context, store)

    const lived = Effect.fnUntraced(function* (life: GraphLife.Life) {
      let text = ""
      const work: Omit<GraphWork, "inClone"> = {
        tell: (events) => {
          for (const event of events) {
            if (event.type === "text_delta" && text.length < textCharsMax) text += event.delta
          }
          conclusion.told(events)
          return life.emit(events)
        },
        claimed: conclusion.claimed
      }
      // A repository is touched only once the request has been admitted.
      const inClone = () => repository && repositories.inClone({ ...repository, runId: context.runId })
      const outcome = yield* Effect.raceFirst(
        Effect.flatMap(admit(request, context), (admitted) =>
          live(admitted, { ...work, inClone: inClone() })
        ).pipe(
          Effect.scoped,
          Effect.catchTags({
            GraphRefused: (refused) => Effect.succeed(GraphEnd.refused(refused)),
            RepositoryUnavailable: (error) => Effect.succeed(GraphEnd.noRepository(error)),
            SandboxError: (error) => Effect.sync(() => GraphEnd.failed(error, text))
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

  return {
    providerId: sandboxNamespace,
    canHandle,
    check: (request, context) => Effect.asVoid(Effect.scoped(admit(request, context))),
    run
  } satisfies GraphProvider as GraphProvider
})
