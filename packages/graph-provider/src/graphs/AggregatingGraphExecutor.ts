/**
 * One executor for the graphs of several providers, selected by the namespace of a graph ID.
 *
 * A provider can be third-party code, so the grammar of events is enforced here. Whatever a provider does, there is
 * exactly one `done`, and a usage report before it.
 */
import { Context, Effect, Layer, Result, Stream } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import * as EventGrammar from "../events/EventGrammar.ts"
import {
  type GraphFinal,
  GraphRefused,
  type GraphProvider,
  type GraphRunRequest,
  type RunContext
} from "./GraphProvider.ts"
import * as GraphEnd from "../internal/GraphEnd.ts"
import * as GraphLife from "../internal/GraphLife.ts"
import { ofUnknown } from "../events/UsageFact.ts"

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

/** Creates an executor. The first provider that can handle a graph runs it. */
export const make = (providers: ReadonlyArray<GraphProvider>): GraphExecutor["Service"] => {
  const providerOf = ({ graphId }: GraphRunRequest) =>
    providers.find((provider) => provider.canHandle(graphId))

  const refuse = (request: GraphRunRequest, context: RunContext) => {
    const refused = namespaceUnknown(request.graphId, providers)
    const end = GraphEnd.make(request, context, GraphEnd.refused(refused), undefined)
    return GraphLife.make(
      context.runId,
      () => Effect.succeed(end),
      () => Effect.succeed(end)
    )
  }

  return GraphExecutor.of({
    canHandle: (graphId) => providers.some((provider) => provider.canHandle(graphId)),
    check: (request, context) =>
      providerOf(request)?.check(request, context) ??
      Effect.fail(namespaceUnknown(request.graphId, providers)),
    run: Effect.fn("GraphExecutor.run")(function* (request, context) {
      const provider = providerOf(request)
      if (provider === undefined) return yield* refuse(request, context)
      const run = yield* provider.run(request, context)
      let hasBroken = false
      const events = kept(run.events, request, context, () => {
        hasBroken = true
      })
      // After a reader has seen the error, `final` must report it as well.
      const final = Effect.map(run.final, (how): GraphFinal =>
        hasBroken ? { ...how, ...broke, ok: false } : how
      )
      return { ...run, events, final }
    })
  })
}

export const layer = (providers: ReadonlyArray<GraphProvider>): Layer.Layer<GraphExecutor> =>
  Layer.succeed(GraphExecutor, make(providers))

const broke = {
  error: "internal",
  reason: "ProviderBroke",
  message: "the graph provider ended without a result; see the host's log"
} as const

/** Enforces the grammar, also if the provider's stream ends early or has a defect. */
const kept = (
  events: Stream.Stream<AiEvent>,
  { caller, graphId }: GraphRunRequest,
  { attempt, runId }: RunContext,
  onBroken: () => void = () => undefined
): Stream.Stream<AiEvent> =>
  Stream.suspend(() => {
    const { billingAccountId, virtualKeyId } = caller
    const fact = ofUnknown({ runId, attempt, graphId, billingAccountId, virtualKeyId })
    let state: EventGrammar.Grammar = EventGrammar.initial
    const isAllowed = (event: AiEvent): boolean => {
      const next = EventGrammar.next(state, event)
      if (Result.isSuccess(next)) state = next.success
      return Result.isSuccess(next)
    }
    const rest = Stream.suspend(() => {
      if (state.phase === "speaking") onBroken()
      return Stream.fromIterable(EventGrammar.complete(state, fact, broke))
    })
    return events.pipe(
      Stream.filter(isAllowed),
      Stream.takeUntil(({ type }) => type === "done"),
      Stream.catchCause((cause) =>
        Stream.fromEffectDrain(Effect.logError("a graph provider failed with a defect", cause))
      ),
      Stream.concat(rest)
    )
  })
