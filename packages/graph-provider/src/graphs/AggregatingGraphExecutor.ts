/**
 * One executor for the graphs of several providers, selected by the namespace of a graph ID.
 *
 * A provider can be third-party code, so the grammar of events is enforced here. Whatever a provider does, there is
 * exactly one `done`, a usage report before it, and one call of the `GraphObserver`.
 */
import { Cause, Context, Effect, Exit, Layer } from "effect"
import * as UsageFact from "../events/UsageFact.ts"
import * as ProviderRun from "../internal/ProviderRun.ts"
import { GraphObserver } from "./GraphObserver.ts"
import { type GraphProvider, type GraphRunRequest, type RunContext } from "./GraphProvider.ts"
import { GraphRefused } from "./GraphRun.ts"

export class GraphExecutor extends Context.Service<GraphExecutor, Omit<GraphProvider, "providerId">>()(
  "@cogni/sandbox-graph-provider/GraphExecutor"
) {}

/** The refusal of a graph that no provider can handle. */
const namespaceUnknown = (graphId: string, providers: ReadonlyArray<GraphProvider>): GraphRefused => {
  const known = providers.map(({ providerId }) => `${providerId}:`).join(", ")
  return new GraphRefused({
    error: "not_found",
    reason: "GraphNamespaceUnknown",
    detail: `no provider runs ${graphId}. ${known === "" ? "No graphs are available" : `Known namespaces: ${known}`}`
  })
}

/** Type of the executor in the usage fact of a graph that no provider can handle. */
const executorType = "executor"

/** Returns what the host knows about the usage of a run: who ran it, and who pays. */
const ownerOf = (
  { caller, graphId }: GraphRunRequest,
  { attempt, runId }: RunContext,
  type: string
): Required<UsageFact.UsageOwner> => {
  const { billingAccountId, virtualKeyId } = caller
  return { runId, attempt, graphId, billingAccountId, virtualKeyId, executorType: type }
}

/**
 * Creates an executor. The first provider that can handle a graph runs it. The observer hears of every run that its
 * provider does not report itself. Its facts name the provider as `executorType`.
 */
export const make = Effect.fnUntraced(function* (
  providers: ReadonlyArray<GraphProvider>
): Effect.fn.Return<GraphExecutor["Service"], never, GraphObserver> {
  const observer = yield* GraphObserver
  const providerOf = ({ graphId }: GraphRunRequest) =>
    providers.find((provider) => provider.canHandle(graphId))

  return GraphExecutor.of({
    canHandle: (graphId) => providers.some((provider) => provider.canHandle(graphId)),
    check: (request, context) =>
      providerOf(request)?.check(request, context) ??
      Effect.fail(namespaceUnknown(request.graphId, providers)),
    run: Effect.fn("GraphExecutor.run")(function* (request, context) {
      const provider = providerOf(request)
      if (provider === undefined) {
        const refused = namespaceUnknown(request.graphId, providers)
        const fact = UsageFact.ofNothing(ownerOf(request, context, executorType))
        return yield* ProviderRun.refused(refused, fact, request, context, observer)
      }
      const owner = ownerOf(request, context, provider.providerId)
      const started = yield* Effect.exit(provider.run(request, context))
      if (Exit.isFailure(started)) {
        if (Cause.hasInterruptsOnly(started.cause)) return yield* Effect.failCause(started.cause)
        return yield* ProviderRun.broken(started.cause, owner, request, context, observer)
      }
      const run = started.value
      return run.isObserved === true ? run : yield* ProviderRun.make(run, owner, request, context, observer)
    })
  })
})

/** An executor of these providers, each by its service, or as an effect that makes it. */
export const layer = <P extends Effect.Effect<GraphProvider, unknown, unknown>>(
  providers: ReadonlyArray<P>
): Layer.Layer<GraphExecutor, Effect.Error<P>, GraphObserver | Effect.Services<P>> =>
  Layer.effect(
    GraphExecutor,
    Effect.flatMap(
      // Names the error and the services that each has already. Inferred from different services, they would not unite.
      Effect.forEach(
        providers,
        (one) => one as Effect.Effect<GraphProvider, Effect.Error<P>, Effect.Services<P>>
      ),
      make
    )
  )
