/**
 * The port through which a graph executor runs a graph.
 *
 * A run never fails as an effect; how it went is in its events and, on every path, in `final`. What may not start at
 * all is known from `check`, before anything is made. What a run is part of is handed to it and captured once, when
 * `run` is called.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { LlmBudget, ToolName } from "@cogni/sandbox-core/SandboxSpec"
import { type Effect, Schema, type Scope, type Stream } from "effect"
import { Message, Personality } from "../agents/Agent.ts"
import { AiErrorCode, type AiEvent } from "../events/AiEvent.ts"
import { GraphId } from "./GraphId.ts"
import { GraphPatch } from "../events/GraphPatch.ts"
import { RepositoryRequest } from "../Repositories.ts"

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** Who asks, and who pays. */
const LlmCaller = Schema.Struct({
  billingAccountId: Identifier,
  virtualKeyId: Identifier,
  requestId: Identifier,
  traceId: Identifier,
  sessionId: Schema.optionalKey(Identifier),
  userId: Schema.optionalKey(Identifier),
  maskContent: Schema.optionalKey(Schema.Boolean)
})

/** The most messages, and characters of all of them together, that a request may have. */
const messagesMax = 1000

/** Messages of a graph, oldest first. */
const Messages = Schema.NonEmptyArray(Message)
  .check(Schema.isMaxLength(messagesMax))
  .annotate({ description: "a conversation, the oldest message first; the last one is what is asked" })

const RuntimeSeconds = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 86_400 }))

export const GraphRunRequest = Schema.Struct({
  graphId: GraphId,
  messages: Messages,
  model: Identifier,
  caller: LlmCaller,
  /** Tools of the host that the agent may call. None, unless named. */
  toolIds: Schema.optionalKey(Schema.Array(ToolName).check(Schema.isMaxLength(64))),
  /** One of an agent's characters, where it has some. */
  personality: Schema.optionalKey(Personality),
  /** Cloned before the run, and what the agent committed sent on after it. */
  repository: Schema.optionalKey(RepositoryRequest),
  /** How long the agent may take. Absent: what the agent and the host say. */
  runtimeSecondsMax: Schema.optionalKey(RuntimeSeconds),
  budget: Schema.optionalKey(LlmBudget)
})

export type GraphRunRequest = typeof GraphRunRequest.Type

/** What a run is part of: handed to it, never read from events. */
export const RunContext = Schema.Struct({
  runId: RunId,
  attempt: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 })),
  ingressRequestId: Identifier,
  /** By whose word it runs. Looked up when the run starts, and never believed from a request. */
  grantId: Identifier,
  threadId: Schema.optionalKey(Identifier)
})

export type RunContext = typeof RunContext.Type

/** How a graph's run went. */
export const GraphFinal = Schema.Struct({
  ok: Schema.Boolean,
  runId: RunId,
  requestId: Identifier,
  usage: Schema.optionalKey(Schema.Struct({ promptTokens: Schema.Int, completionTokens: Schema.Int })),
  finishReason: Schema.optionalKey(Schema.String),
  error: Schema.optionalKey(AiErrorCode),
  /** The run's finer reason beside the coarse code, such as `OomKilled`. */
  reason: Schema.optionalKey(Schema.String),
  /** What happened and what to do. */
  message: Schema.optionalKey(Schema.String),
  /** The answer; of a run that failed, what there was of one. */
  content: Schema.optionalKey(Schema.String),
  /** The branch that holds what the agent committed, and the pull request for it. */
  branch: Schema.optionalKey(Schema.String),
  pullRequestUrl: Schema.optionalKey(Schema.String),
  /** Of graphs that return what they changed. */
  patch: Schema.optionalKey(GraphPatch)
})

export type GraphFinal = typeof GraphFinal.Type

/** Why a run may not start. */
export class GraphRefused extends Schema.TaggedError<GraphRefused>()("GraphRefused", {
  error: AiErrorCode,
  /** The tag of what refused it, such as `GrantExpired`. */
  reason: Schema.String,
  detail: Schema.String,
  /** When asking again may go better, where that is known. */
  retrySeconds: Schema.optionalKey(Schema.Int)
}) {
  override get message(): string {
    return this.detail
  }
}

/** One run under way. Closing its scope ends it. */
export interface GraphRun {
  readonly runId: RunId
  /**
   * For one reader. Who stops reading ends the run; a reader that takes nothing for long while events wait is taken
   * for gone.
   */
  readonly events: Stream.Stream<AiEvent>
  /** Settles on every path, also when nobody reads the events. */
  readonly final: Effect.Effect<GraphFinal>
  /** Settles when nothing is left but to read what waits: the scope may be closed, and no event is lost. */
  readonly closed: Effect.Effect<void>
  /** End the run; its events still say how it ended. Returns at once. */
  readonly cancel: Effect.Effect<void>
}

export interface GraphProvider {
  readonly providerId: string
  readonly canHandle: (graphId: GraphId) => boolean
  /** Whether the run may start, as of now; nothing is made. `run` asks again. */
  readonly check: (request: GraphRunRequest, context: RunContext) => Effect.Effect<void, GraphRefused>
  readonly run: (request: GraphRunRequest, context: RunContext) => Effect.Effect<GraphRun, never, Scope.Scope>
}
