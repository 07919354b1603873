/**
 * Port through which a graph executor runs a graph.
 *
 * A run never fails as an effect: its outcome is in its events and, on every path, in `final`. `check` reports whether
 * a run may start, before any resource is created. The context of a run is passed to `run`, and captured once, when it
 * is called.
 */
import { PackagePatterns } from "@cogni/sandbox-core/PackagePattern"
import { RunId } from "@cogni/sandbox-core/RunId"
import { LlmBudget, ToolName } from "@cogni/sandbox-core/SpecFields"
import { type Effect, Schema, type Scope } from "effect"
import { Message, Personality } from "../agents/AgentFields.ts"
import { GraphId } from "./GraphId.ts"
import { RepositoryRequest } from "../RepositoryUse.ts"
import type { GraphRefused } from "./GraphRun.ts"
import { type GraphRun, Identifier } from "./GraphRun.ts"

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

export interface GraphProvider {
  readonly providerId: string
  readonly canHandle: (graphId: GraphId) => boolean
  /** Checks whether the run may start now, without creating anything. `run` checks again. */
  readonly check: (request: GraphRunRequest, context: RunContext) => Effect.Effect<void, GraphRefused>
  readonly run: (request: GraphRunRequest, context: RunContext) => Effect.Effect<GraphRun, never, Scope.Scope>
}
