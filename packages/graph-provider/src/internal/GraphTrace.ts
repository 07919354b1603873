/** Attributes of a graph run in traces and logs. */
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { Effect, Option } from "effect"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import type { GraphFinal } from "../graphs/GraphRun.ts"
import { agentIdOf } from "./Admission.ts"

/** Adds the run's attributes to every log line. */
export const logged = <A, E, R>(
  request: GraphRunRequest,
  { runId }: RunContext,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.annotateLogs(effect, {
    [Telemetry.attribute.runId]: runId,
    [Telemetry.attribute.agentId]: agentIdOf(request)
  })

/**
 * Adds a span, and its trace ID to every log line, for loggers without support for spans. A run that failed ends as a
 * value, so its span gets `error.type` here.
 */
export const around = <A extends { readonly final: Pick<GraphFinal, "error" | "ok" | "reason"> }, E, R>(
  request: GraphRunRequest,
  context: RunContext,
  effect: Effect.Effect<A, E, R>
) =>
  Effect.flatMap(Effect.option(Effect.currentSpan), (span) =>
    Option.isNone(span)
      ? effect
      : Effect.annotateLogs(effect, Telemetry.attribute.traceId, span.value.traceId)
  ).pipe(
    Effect.tap(({ final }) =>
      final.ok
        ? Effect.void
        : Effect.annotateCurrentSpan(Telemetry.attribute.errorType, final.reason ?? final.error ?? "internal")
    ),
    Effect.withSpan(`${Telemetry.operation.invokeAgent} ${agentIdOf(request)}`, {
      attributes: {
        [Telemetry.attribute.operation]: Telemetry.operation.invokeAgent,
        [Telemetry.attribute.runId]: context.runId,
        [Telemetry.attribute.accountId]: request.caller.billingAccountId,
        ...(context.threadId === undefined ? {} : { [Telemetry.attribute.conversationId]: context.threadId }),
        [Telemetry.attribute.graphId]: request.graphId,
        [Telemetry.attribute.agentId]: agentIdOf(request),
        [Telemetry.attribute.model]: request.model
      }
    }),
    (traced) => logged(request, context, traced)
  )
