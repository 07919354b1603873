/**
 * The common part of all graph runs of the sandbox, for agents and tasks: admission, events, stops and one conclusion.
 */
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Effect, Schedule, type Scope } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import { type GraphId, sandboxNamespace } from "../graphs/GraphId.ts"
import { GraphObserver } from "../graphs/GraphObserver.ts"
import type { GraphProvider, GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import type { GraphRefused } from "../graphs/GraphRun.ts"
import { Repositories } from "../Repositories.ts"
import { type RepositoryUnavailable } from "../RepositoryUse.ts"
import { type InClone, type RepositoryDelivery } from "../RepositoryUse.ts"
import * as GrantConnections from "../grants/GrantConnections.ts"
import { GrantStore } from "../grants/GrantStore.ts"
import * as Conclusion from "./Conclusion.ts"
import * as GraphEnd from "./GraphEnd.ts"
import * as GraphLife from "../graphs/GraphLife.ts"
import * as GraphTrace from "./GraphTrace.ts"
import type { Admitted } from "./Admission.ts"
import * as UsageRecovery from "../UsageRecovery.ts"

/** Interface between the work and its run. */
export interface GraphWork {
  readonly tell: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
  /** Marks the run ID as owned by this run. */
  readonly claimed: () => void
  /** Runs in a clone of the repository that the request names, if it names one. */
  readonly inClone: InClone<RepositoryDelivery, RepositoryUnavailable, never> | undefined
}

/** Time between two recoveries of the usage of dead processes. */
const recoveryInterval = "10 minutes"

/** Length after which no more text is kept for a run that fails. */
const textCharsMax = 1024 * 1024

/** Creates a provider. Interruption of `live` must end the run and wait until all its resources are removed. */
export const provider = Effect.fnUntraced(function* <A extends Admitted>(
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
  const observer = yield* GraphObserver
  const grants = yield* GrantStore
  yield* UsageRecovery.recover.pipe(
    Effect.catchCause((cause) =>
      Effect.logWarning("the usage of dead processes could not be recovered", cause)
    ),
    Effect.repeat(Schedule.spaced(recoveryInterval)),
    Effect.forkScoped
  )

  const run = Effect.fnUntraced(function* (request: GraphRunRequest, context: RunContext) {
    const { repository } = request
    const token = observer.observe === undefined ? undefined : crypto.randomUUID()
    const conclusion = yield* Conclusion.make(request, context, store, observer, token)

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
      let kept: RepositoryDelivery | undefined
      const salvaged = (delivery: RepositoryDelivery) =>
        Effect.sync(() => {
          kept = delivery
        })
      // A repository is touched only once the request has been admitted.
      const inClone = () =>
        repository && repositories.inClone({ ...repository, runId: context.runId, salvaged })
      const ended = yield* Effect.raceFirst(
        Effect.flatMap(admit(request, context), (admitted) =>
          live(observedAs(admitted, request, context, token), { ...work, inClone: inClone() })
        ).pipe(
          Effect.scoped,
          GrantConnections.asUser(grants, {
            grantId: context.grantId,
            billingAccountId: request.caller.billingAccountId,
            runId: context.runId
          }),
          Effect.catchTags({
            GraphRefused: (refused) => Effect.succeed(GraphEnd.refused(refused)),
            RepositoryUnavailable: (error) => Effect.succeed(GraphEnd.noRepository(error)),
            SandboxError: (error) => Effect.sync(() => GraphEnd.failed(error, text))
          })
        ),
        Effect.map(life.stopped, (why) => GraphEnd.stopped(why, text))
      )
      // The work of a run without a result is kept after that run has ended.
      const outcome = { ...ended, delivery: ended.delivery ?? kept }
      yield* work.tell(GraphEnd.unspoken(outcome, text !== ""))
      return yield* conclusion.conclude(outcome)
    })

    const started = yield* GraphLife.make(
      context.runId,
      (life) => GraphTrace.around(request, context, lived(life)),
      (cause) => GraphTrace.logged(request, context, conclusion.broken(cause))
    )
    return { ...started, isObserved: true as const }
  })

  return {
    providerId: sandboxNamespace,
    canHandle,
    check: (request, context) => Effect.asVoid(Effect.scoped(admit(request, context))),
    run
  } satisfies GraphProvider as GraphProvider
})

/** Marks the run of an admitted request as one whose usage the observer must hear. */
const observedAs = <A extends Admitted>(
  admitted: A,
  { caller }: GraphRunRequest,
  { grantId, ingressRequestId, threadId }: RunContext,
  token: string | undefined
): A => {
  const { llm } = admitted.spec
  if (token === undefined || llm === undefined) return admitted
  const observed = {
    token,
    virtualKeyId: caller.virtualKeyId,
    grantId,
    requestId: caller.requestId,
    ingressRequestId,
    ...(threadId === undefined ? {} : { threadId })
  }
  return { ...admitted, spec: { ...admitted.spec, llm: { ...llm, observed } } }
}
