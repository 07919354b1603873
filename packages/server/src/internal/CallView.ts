/**
 * The views of what a run called: its models and its tools, with figures, and with the cost of each call. Pure.
 *
 * An agent chose paths, names, arguments and results. They are cut, and are only ever text.
 */
import { LlmOutcome, LlmUsage } from "@cogni/sandbox-core/RunFigures"
import { PriceSource, State } from "@cogni/sandbox-ledger/EntryFields"
import { Schema } from "effect"

/** Longest text of a name or a path. */
export const nameCharsMax = 1000

/** The cost of a call by the ledger. */
export const CallCost = Schema.Struct({
  currency: Schema.Literal("USD"),
  /** Absent if unknown, never 0 for an unknown cost. */
  costUsd: Schema.optional(Schema.Finite),
  state: State,
  priceSource: PriceSource,
  /** Code that explains the state, such as `usage_missing`. */
  reason: Schema.optional(Schema.String)
})

export const CallView = Schema.Struct({
  at: Schema.String,
  requestId: Schema.String,
  /** ID under which the upstream logs the call. Absent if it was not passed on. */
  callId: Schema.optional(Schema.String),
  method: Schema.String,
  path: Schema.String,
  /** Absent while the call is under way. */
  status: Schema.optional(Schema.Int),
  outcome: Schema.optional(LlmOutcome),
  /** The model's name at the upstream. */
  model: Schema.optional(Schema.String),
  requestBytes: Schema.Int,
  responseBytes: Schema.optional(Schema.Int),
  durationMs: Schema.optional(Schema.Finite),
  usage: Schema.optional(LlmUsage),
  /** Absent without a ledger, and until the ledger has the call. */
  cost: Schema.optional(CallCost)
}).annotate({ identifier: "ModelCall" })

export type CallView = typeof CallView.Type

export const CallPage = Schema.Struct({
  calls: Schema.Array(CallView),
  /** All calls of the run. Only the first 1,000 of a run that has ended are listed; its audit has the rest. */
  callsTotal: Schema.Int,
  /** Another host has the calls: they are in its audit. They are listed here when the run has ended. */
  isElsewhere: Schema.optional(Schema.Literal(true)),
  /** Value of `after` for the next page. Absent in the last one. */
  next: Schema.optional(Schema.String)
}).annotate({ identifier: "ModelCalls" })

/** A call of a host tool, from the audit. */
const HostToolCall = Schema.Struct({
  source: Schema.Literal("host"),
  at: Schema.String,
  tool: Schema.String,
  /** Absent if the tool does not exist. */
  effect: Schema.optional(Schema.String),
  via: Schema.Literals(["http", "mcp"]),
  /** `ok`, `interrupted`, or the error code. */
  outcome: Schema.String,
  argumentsBytes: Schema.Int,
  resultBytes: Schema.Int,
  durationMs: Schema.Finite
})

/** A tool call that the agent reported. Nothing confirms it. */
const AgentToolCall = Schema.Struct({
  source: Schema.Literal("agent"),
  at: Schema.String,
  toolCallId: Schema.String,
  tool: Schema.String,
  /** The arguments as JSON, cut. */
  arguments: Schema.String,
  /** Absent while the call is under way. */
  endedAt: Schema.optional(Schema.String),
  isError: Schema.optional(Schema.Boolean),
  /** The result, cut. */
  result: Schema.optional(Schema.String)
})

export const ToolCall = Schema.Union([HostToolCall, AgentToolCall]).annotate({ identifier: "ToolCall" })

export type ToolCall = typeof ToolCall.Type

/** Maximum number of listed tool calls. */
export const toolCallsMax = 1000

export const ToolCalls = Schema.Struct({
  /** By time, the oldest first; at most 1,000. */
  tools: Schema.Array(ToolCall),
  /** There are more than are listed. */
  truncated: Schema.Boolean,
  /** Another host has the calls of host tools: they are in its audit. */
  isElsewhere: Schema.optional(Schema.Literal(true))
}).annotate({ identifier: "ToolCalls" })
