/**
 * A run of a graph: its events, its end, and why it was refused.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { type Effect, Schema, type Stream } from "effect"
import { AiErrorCode, type AiEvent } from "../events/AiEvent.ts"
import { GraphPatch } from "../events/GraphPatch.ts"

export const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

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
