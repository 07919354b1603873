/**
 * What a gateway writes down of a run: one entry for each thing that happened on its socket, told apart by `type`.
 *
 * Bodies are there by their size and digest. A text that an agent chose (a path, a method) is in an entry as it came:
 * whoever prints one makes it visible first. `AuditLog` makes lines of these.
 */
import {
  AuditHead,
  Evidence,
  Exhaustion,
  LlmOutcome,
  LlmUsage,
  LlmUsageTotal
} from "@cogni/sandbox-core/RunResult"
import { CanaryPolicy, LlmBudget, LlmIdentity } from "@cogni/sandbox-core/SandboxSpec"
import { Schema } from "effect"
import { typed } from "./internal/SchemaFields.ts"

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

const Millis = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

/** SHA-256 in hexadecimal. */
export const Digest = AuditHead.fields.hash

/** An HTTP status as it was sent to the agent. */
const Status = Schema.Int.check(Schema.isBetween({ minimum: 100, maximum: 999 }))

/** Of a request that the run's list of calls has, though no call went upstream: what is in that list besides. */
const Listed = Schema.Struct({ requestBytes: Count, responseBytes: Count, durationMs: Millis })

/** The first entry: whose socket it is, and what may go through it. */
export const RunOpened = typed("run.opened", {
  runId: Schema.String,
  proxy: Schema.String,
  /** As it may be shown: without a key. */
  upstream: Schema.String,
  /** How the socket got into the sandbox. */
  carrier: Schema.String,
  /** Names the agent may use. */
  models: Schema.Array(Schema.String),
  identity: LlmIdentity,
  budget: Schema.optionalKey(LlmBudget),
  tools: Schema.Array(Schema.String),
  canaries: CanaryPolicy
})

/** A call that is about to go upstream. Written before its first byte does. */
export const CallStarted = typed("call.started", {
  requestId: Schema.String,
  /** Ours; what the upstream keeps the call under. */
  callId: Schema.String,
  method: Schema.String,
  path: Schema.String,
  api: Schema.String,
  /** As the upstream knows it. */
  model: Schema.String,
  /** As the agent named it, where it did. */
  modelRequested: Schema.optionalKey(Schema.String),
  stream: Schema.Boolean,
  /** Of what the agent sent. */
  requestBytes: Count,
  requestDigest: Digest,
  /** Of what went upstream instead. */
  sentBytes: Count,
  sentDigest: Digest,
  /** Paths of the first fields that were left out. */
  dropped: Schema.Array(Schema.String),
  droppedTotal: Count,
  /** The most that its input can be billed, which is reserved until the call ends. */
  inputTokensMax: Schema.optionalKey(Count),
  /** The provider was asked to cache some of it for an hour, at a price of its own. */
  cachesForHour: Schema.optionalKey(Schema.Literal(true)),
  /** What the answer was capped to, which is reserved until the call ends. */
  outputTokensMax: Schema.optionalKey(Count),
  /** What went upstream, without secrets; only where bodies are kept. */
  body: Schema.optionalKey(Schema.String)
})

/** How that call ended. */
export const CallEnded = typed("call.ended", {
  requestId: Schema.String,
  callId: Schema.String,
  status: Status,
  outcome: LlmOutcome,
  /** Of what the upstream sent. */
  responseBytes: Count,
  responseDigest: Digest,
  durationMs: Millis,
  firstByteMs: Schema.optionalKey(Millis),
  /** Of a stream. */
  events: Schema.optionalKey(Count),
  usage: Schema.optionalKey(LlmUsage),
  /** There should have been a usage, and the upstream told none. */
  usageMissing: Schema.optionalKey(Schema.Literal(true)),
  /** What went wrong, where something did. */
  detail: Schema.optionalKey(Schema.String),
  /** What the upstream sent, without secrets; only where bodies are kept. */
  body: Schema.optionalKey(Schema.String)
})

/** Something that was not let through; also what was no HTTP. */
export const RequestRefused = typed("request.refused", {
  requestId: Schema.optionalKey(Schema.String),
  method: Schema.optionalKey(Schema.String),
  path: Schema.optionalKey(Schema.String),
  status: Status,
  code: Schema.String,
  detail: Schema.String,
  /** There where the refusal is one of the run's calls, and not where its client was only turned away. */
  call: Schema.optionalKey(Listed),
  /** How many refusals were counted and not written down since the one before. */
  suppressed: Schema.optionalKey(Count),
  /** How many of those are among the run's calls. */
  suppressedCalls: Schema.optionalKey(Count)
})

/** Something the gateway answered by itself, such as the list of models. */
export const RequestAnswered = typed("request.answered", {
  requestId: Schema.String,
  method: Schema.String,
  path: Schema.String,
  status: Status,
  call: Schema.optionalKey(Listed)
})

/** A tool of the host that the agent called, and what came of it. */
export const ToolCalled = typed("tool.called", {
  requestId: Schema.String,
  tool: Schema.String,
  /** Absent where there is no such tool. */
  effect: Schema.optionalKey(Schema.Literals(["read_only", "state_change", "external_side_effect"])),
  via: Schema.Literals(["http", "mcp"]),
  argumentsBytes: Count,
  argumentsDigest: Digest,
  /** `ok`, or the code of its error. */
  outcome: Schema.String,
  resultBytes: Count,
  resultDigest: Digest,
  durationMs: Millis
})

/** A canary was seen on its way out. */
export const ExfiltrationSuspected = typed("exfiltration.suspected", { evidence: Evidence })

/** A budget that does not come back by waiting is spent. */
export const BudgetExhausted = typed("budget.exhausted", { exhaustion: Exhaustion })

/** The last entry: nothing goes through any more. */
export const RunClosed = typed("run.closed", {
  usage: LlmUsageTotal,
  callsTotal: Count,
  toolCallsTotal: Count,
  refusedTotal: Count,
  /** Why the run's way out ended before the run did, where the thread that served it was lost. */
  failure: Schema.optionalKey(Schema.String)
})

export type RunClosed = typeof RunClosed.Type

const entries = [
  RunOpened,
  CallStarted,
  CallEnded,
  RequestRefused,
  RequestAnswered,
  ToolCalled,
  ExfiltrationSuspected,
  BudgetExhausted,
  RunClosed
] as const

export const AuditEntry = Schema.Union(entries)

export type AuditEntry = typeof AuditEntry.Type

const before = {
  seq: Schema.Int.check(Schema.isGreaterThanOrEqualTo(1)).annotate({
    description: "counts from 1, without a gap"
  }),
  at: Schema.String.annotate({ description: "ISO 8601, in UTC" })
}

const after = {
  prev: Digest.annotate({
    description: "hash of the line before; of the first, SHA-256 of `cogni-sandbox audit 1\\n<run id>\\n`"
  }),
  hash: Digest.annotate({ description: 'SHA-256 of this line\'s bytes before `,"hash":`, in hexadecimal' })
}

const line = <F extends Schema.Struct.Fields>(entry: Schema.Struct<F>) =>
  Schema.Struct({ ...before, ...entry.fields, ...after })

/** One line of an audit, in the order in which its fields are written. */
export const AuditLine = Schema.Union([
  line(RunOpened),
  line(CallStarted),
  line(CallEnded),
  line(RequestRefused),
  line(RequestAnswered),
  line(ToolCalled),
  line(ExfiltrationSuspected),
  line(BudgetExhausted),
  line(RunClosed)
])

export type AuditLine = typeof AuditLine.Type
