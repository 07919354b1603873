/**
 * The port through which a graph executor runs a graph.
 *
 * Only the port and its words: what implements it comes with the executor. A run never fails as an effect; how it went
 * is in its events and, on every path, in `final`. What a run is part of is handed to it and captured once.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { type Effect, Schema, type Scope, type Stream } from "effect"
import { Message } from "./Agent.ts"
import { AiErrorCode, type AiEvent } from "./AiEvent.ts"
import { GraphId } from "./ExecutionGrant.ts"

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** Who asks, and who pays. @category models */
export const LlmCaller = Schema.Struct({
  billingAccountId: Identifier,
  virtualKeyId: Identifier,
  requestId: Identifier,
  traceId: Identifier,
  sessionId: Schema.optionalKey(Identifier),
  userId: Schema.optionalKey(Identifier),
  maskContent: Schema.optionalKey(Schema.Boolean)
})

/** @category models */
export type LlmCaller = typeof LlmCaller.Type

/** @category models */
export const GraphRunRequest = Schema.Struct({
  graphId: GraphId,
  messages: Schema.NonEmptyArray(Message),
  model: Identifier,
  caller: LlmCaller,
  stateKey: Schema.optionalKey(Identifier)
})

/** @category models */
export type GraphRunRequest = typeof GraphRunRequest.Type

/** What a run is part of: handed to it, never read from events. @category models */
export const RunContext = Schema.Struct({
  runId: RunId,
  attempt: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)),
  ingressRequestId: Identifier,
  threadId: Schema.optionalKey(Identifier)
})

/** @category models */
export type RunContext = typeof RunContext.Type

/** How a graph's run went. @category models */
export const GraphFinal = Schema.Struct({
  ok: Schema.Boolean,
  runId: RunId,
  requestId: Identifier,
  usage: Schema.optionalKey(Schema.Struct({ promptTokens: Schema.Int, completionTokens: Schema.Int })),
  finishReason: Schema.optionalKey(Schema.String),
  error: Schema.optionalKey(AiErrorCode),
  content: Schema.optionalKey(Schema.String)
})

/** @category models */
export type GraphFinal = typeof GraphFinal.Type

/** One run under way. Closing its scope ends it. @category models */
export interface GraphRun {
  readonly events: Stream.Stream<AiEvent>
  /** Settles on every path, also when nobody reads the events. */
  readonly final: Effect.Effect<GraphFinal>
}

/** @category models */
export interface GraphProvider {
  readonly providerId: string
  readonly canHandle: (graphId: GraphId) => boolean
  readonly run: (request: GraphRunRequest, context: RunContext) => Effect.Effect<GraphRun, never, Scope.Scope>
}
