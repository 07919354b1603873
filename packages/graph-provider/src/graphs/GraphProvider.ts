/**
 * Port through which a graph executor runs a graph.
 *
 * A run never fails as an effect: its outcome is in its events and, on every path, in `final`. `check` reports whether
 * a run may start, before any resource is created. The context of a run is passed to `run`, and captured once, when it
 * is called.
 */
import { PackagePatterns } from "@cogni/sandbox-core/PackagePattern"
import { RunId } from "@cogni/sandbox-core/RunId"
import { LlmBudget, ToolName } from "@cogni/sandbox-core/SandboxSpec"
import { type Effect, Schema, type Scope, type Stream } from "effect"
import { Message, Personality } from "../agents/Agent.ts"
import { AiErrorCode, type AiEvent } from "../events/AiEvent.ts"
import { GraphId } from "./GraphId.ts"
import { GraphPatch } from "../events/GraphPatch.ts"
import { RepositoryRequest } from "../Repositories.ts"

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** The caller and the account that pays. */
const LlmCaller = Schema.Struct({
  billingAccountId: Identifier,
  virtualKeyId: Identifier,
  requestId: Identifier,
  traceId: Identifier,
  sessionId: Schema.optionalKey(Identifier),
  userId: Schema.optionalKey(Identifier),
  maskContent: Schema.optionalKey(Schema.Boolean)
})

const messagesMax = 1000

const Messages = Schema.NonEmptyArray(Message)
  .check(Schema.isMaxLength(messagesMax))
  .annotate({ description: "a conversation, oldest message first; the last message is the request" })

const RuntimeSeconds = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 86_400 }))

export const GraphRunRequest = Schema.Struct({
  graphId: GraphId,
  messages: Messages,
  model: Identifier,
  caller: LlmCaller,
  /** Host tools that the agent may call. Default: none. */
  toolIds: Schema.optionalKey(Schema.Array(ToolName).check(Schema.isMaxLength(64))),
  /** Packages that the sandbox may install, such as `npm:@types/*`. Default: none. */
  packages: Schema.optionalKey(PackagePatterns),
  /** One of the agent's personalities, if it has any. */
  personality: Schema.optionalKey(Personality),
  /** Repository to clone before the run, and to deliver the agent's commits to after it. */
  repository: Schema.optionalKey(RepositoryRequest),
  /** Time limit of the agent. Default: the limits of the agent and the host. */
  runtimeSecondsMax: Schema.optionalKey(RuntimeSeconds),
  budget: Schema.optionalKey(LlmBudget),
  /**
   * Remembers the thread of the context: its files, its history and its agent's session. `messages` is then only the
   * new message of the user. Default: false.
   */
  remember: Schema.optionalKey(Schema.Boolean)
})

export type GraphRunRequest = typeof GraphRunRequest.Type

/** The context of a run: passed to it, never read from events. */
export const RunContext = Schema.Struct({
  runId: RunId,
  attempt: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1000 })),
  ingressRequestId: Identifier,
  /** The grant that permits the run. Looked up when the run starts; the request is not trusted. */
  grantId: Identifier,
  threadId: Schema.optionalKey(Identifier)
})

export type RunContext = typeof RunContext.Type

/** The outcome of a graph run. */
export const GraphFinal = Schema.Struct({
  ok: Schema.Boolean,
  runId: RunId,
  requestId: Identifier,
  usage: Schema.optionalKey(Schema.Struct({ promptTokens: Schema.Int, completionTokens: Schema.Int })),
  finishReason: Schema.optionalKey(Schema.String),
  error: Schema.optionalKey(AiErrorCode),
  /** The specific reason beside the coarse code, such as `OomKilled`. */
  reason: Schema.optionalKey(Schema.String),
  /** Description of the failure, and what to do. */
  message: Schema.optionalKey(Schema.String),
  /** The answer, or the text so far of a failed run. */
  content: Schema.optionalKey(Schema.String),
  /** Branch with the agent's commits, and the pull request for it. */
  branch: Schema.optionalKey(Schema.String),
  pullRequestUrl: Schema.optionalKey(Schema.String),
  /** Only from graphs that return their changes. */
  patch: Schema.optionalKey(GraphPatch)
})

export type GraphFinal = typeof GraphFinal.Type

/** A run was refused before it started. */
export class GraphRefused extends Schema.TaggedError<GraphRefused>()("GraphRefused", {
  error: AiErrorCode,
  /** Tag of the error behind it, such as `GrantExpired`. */
  reason: Schema.String,
  detail: Schema.String,
  /** Seconds after which a retry may succeed, if known. */
  retrySeconds: Schema.optionalKey(Schema.Int)
}) {
  override get message(): string {
    return this.detail
  }
}

/** One active run. Closing its scope ends it. */
export interface GraphRun {
  readonly runId: RunId
  /**
   * For a single reader. A reader that stops reading ends the run. A reader that takes no events for too long, while
   * some wait, is considered gone.
   */
  readonly events: Stream.Stream<AiEvent>
  /** Settles on every path, also if the events are never read. */
  readonly final: Effect.Effect<GraphFinal>
  /** Settles when only unread events are left. The scope can then be closed without losing any. */
  readonly closed: Effect.Effect<void>
  /** Ends the run, and returns at once. The remaining events report how it ended. */
  readonly cancel: Effect.Effect<void>
  /** Set by a provider that tells its `GraphObserver` itself. The executor observes all other runs. */
  readonly isObserved?: true
}

export interface GraphProvider {
  readonly providerId: string
  readonly canHandle: (graphId: GraphId) => boolean
  /** Checks whether the run may start now, without creating anything. `run` checks again. */
  readonly check: (request: GraphRunRequest, context: RunContext) => Effect.Effect<void, GraphRefused>
  readonly run: (request: GraphRunRequest, context: RunContext) => Effect.Effect<GraphRun, never, Scope.Scope>
}
