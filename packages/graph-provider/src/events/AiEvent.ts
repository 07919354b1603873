/**
 * Events that a graph's caller sees, in the shapes of the source documents.
 *
 * A stream ends in exactly one `done`. Before it come a `usage_report`, on every path, and an `error`, if the run
 * failed. `EventGrammar` defines the order; this module defines the events.
 */
import { Schema } from "effect"
import { GraphPatch } from "./GraphPatch.ts"
import { UsageFact } from "./UsageFact.ts"

/** The coarse code of a failure. */
export const AiErrorCode = Schema.Literals([
  "invalid_request",
  "not_found",
  "timeout",
  "aborted",
  "rate_limit",
  "internal",
  "insufficient_credits",
  "authz_denied",
  "policy_denied"
])

export type AiErrorCode = typeof AiErrorCode.Type

export const AiEvent = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text_delta"), delta: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("tool_call_start"),
    toolCallId: Schema.String,
    toolName: Schema.String,
    args: Schema.Unknown
  }),
  Schema.Struct({
    type: Schema.Literal("tool_call_result"),
    toolCallId: Schema.String,
    result: Schema.Unknown,
    isError: Schema.optionalKey(Schema.Boolean)
  }),
  Schema.Struct({ type: Schema.Literal("usage_report"), fact: UsageFact }),
  Schema.Struct({ type: Schema.Literal("assistant_final"), content: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("status"),
    phase: Schema.String,
    label: Schema.optionalKey(Schema.String),
    /** Only with the phase `patch`. */
    patch: Schema.optionalKey(GraphPatch)
  }),
  Schema.Struct({
    type: Schema.Literal("error"),
    error: AiErrorCode,
    /** The specific reason, such as `OomKilled`. */
    reason: Schema.optionalKey(Schema.String),
    message: Schema.optionalKey(Schema.String)
  }),
  Schema.Struct({ type: Schema.Literal("done") })
])

export type AiEvent = typeof AiEvent.Type
