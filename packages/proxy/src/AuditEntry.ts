/**
 * Entries of a gateway's audit: one for each event on a run's socket, distinguished by `type`.
 *
 * Bodies are recorded by size and digest. Text that an agent chose (a path, a method, a tool name) is untrusted: escape
 * it before you print it. `AuditLog` chains the entries.
 */
import { Decider } from "@cogni/sandbox-core/Approval"
import { registries } from "@cogni/sandbox-core/PackagePattern"
import {
  AuditHead,
  Evidence,
  Exhaustion,
  LlmOutcome,
  LlmUsage,
  LlmUsageTotal
} from "@cogni/sandbox-core/RunFigures"
import { CanaryPolicy, LlmBudget, LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import { ToolEffect, ToolRules } from "@cogni/sandbox-core/ToolAccess"
import { Schema } from "effect"
import { typed } from "./internal/SchemaFields.ts"

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

const Amount = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

const Millis = Amount

/** SHA-256 in hexadecimal. */
export const Digest = AuditHead.fields.hash

/** HTTP status sent to the agent, or 499 if none was sent. */
const Status = Schema.Int.check(Schema.isBetween({ minimum: 100, maximum: 999 }))

/** More figures of a request that counts as one of the run's calls although nothing went upstream. */
const Listed = Schema.Struct({ requestBytes: Count, responseBytes: Count, durationMs: Millis })

/** The first entry: the run that owns the socket, and its permissions. */
export const RunOpened = typed("run.opened", {
  runId: Schema.String,
  proxy: Schema.String,
  /** URL for display, without a key. */
  upstream: Schema.String,
  /** Carrier that brought the socket into the sandbox. */
  carrier: Schema.String,
  /** Model names that the agent may use. */
  models: Schema.Array(Schema.String),
  /** Absent if the run has no model. */
  identity: Schema.optionalKey(LlmIdentity),
  budget: Schema.optionalKey(LlmBudget),
  tools: Schema.Array(Schema.String),
  /** Rules for these tools, if any. */
  toolRules: Schema.optionalKey(ToolRules),
  /** Patterns of the packages that the sandbox may install, if any. */
  packages: Schema.optionalKey(Schema.Array(Schema.String)),
  canaries: CanaryPolicy
})

/** The key with which the run's calls go upstream. Written before the first of them. */
export const RunKeyed = typed("run.keyed", {
  /** `run`: a key of this run only. `shared`: the gateway's own, because the configuration allows it. */
  credential: Schema.Literals(["run", "shared"]),
  /** SHA-256 of the run's key, by which the upstream lists its calls. */
  keyHash: Schema.optionalKey(Digest),
  /** Name of the key at the upstream. */
  alias: Schema.optionalKey(Schema.String),
  /** When the key expires. */
  expiresAt: Schema.optionalKey(Schema.String),
  /** Budget of the key at the upstream, in US dollars. It is higher than the run's own. */
  budgetUsdMax: Schema.optionalKey(Schema.Finite),
  /** Why the run has no key of its own. */
  detail: Schema.optionalKey(Schema.String)
})

export type RunKeyed = typeof RunKeyed.Type

/** A call that is about to go upstream. Written before its first byte is sent. */
export const CallStarted = typed("call.started", {
  requestId: Schema.String,
  /** Call ID of the host, under which the upstream logs the call. */
  callId: Schema.String,
  method: Schema.String,
  path: Schema.String,
  api: Schema.String,
  /** Upstream model name. */
  model: Schema.String,
  /** Model name in the agent's request, if it had one. */
  modelRequested: Schema.optionalKey(Schema.String),
  stream: Schema.Boolean,
  /** The agent marked it as the call of a subagent. */
  subagent: Schema.optionalKey(Schema.Literal(true)),
  /** Size and digest of the agent's body. */
  requestBytes: Count,
  requestDigest: Digest,
  /** Size and digest of the rebuilt body that went upstream. */
  sentBytes: Count,
  sentDigest: Digest,
  /** Paths of the first dropped fields. */
  dropped: Schema.Array(Schema.String),
  droppedTotal: Count,
  /** Maximum input tokens that can be billed; reserved until the call ends. */
  inputTokensMax: Schema.optionalKey(Count),
  /** The provider was asked to cache some of the input for one hour, at a separate price. */
  cachesForHour: Schema.optionalKey(Schema.Literal(true)),
  /** Maximum output tokens of the answer; reserved until the call ends. */
  outputTokensMax: Schema.optionalKey(Count),
  /** Maximum cost in US dollars at the host's prices; reserved until the call ends. */
  costUsdMax: Schema.optionalKey(Amount),
  /** Body that went upstream, without secrets; only if bodies are kept. */
  body: Schema.optionalKey(Schema.String)
})

/** The end of a call. */
export const CallEnded = typed("call.ended", {
  requestId: Schema.String,
  callId: Schema.String,
  /** The upstream's own ID of the call, from its answer. Only of an upstream that finds its record by it. */
  upstreamCallId: Schema.optionalKey(Schema.String),
  status: Status,
  outcome: LlmOutcome,
  /** Size and digest of the upstream's answer. */
  responseBytes: Count,
  responseDigest: Digest,
  durationMs: Millis,
  firstByteMs: Schema.optionalKey(Millis),
  /** Time from the whole request to its sending: what the gateway added before the upstream. */
  gatewayMs: Schema.optionalKey(Millis),
  /** Events of a streamed answer. */
  events: Schema.optionalKey(Count),
  usage: Schema.optionalKey(LlmUsage),
  /** The upstream reported no usage, although it should have. */
  usageMissing: Schema.optionalKey(Schema.Literal(true)),
  /** Present if the agent had gone before the call ended: what was read of the answer since, and for how long. */
  drained: Schema.optionalKey(Schema.Struct({ bytes: Count, durationMs: Millis })),
  /** Explanation of a failure. */
  detail: Schema.optionalKey(Schema.String),
  /** Body that the upstream sent, without secrets; only if bodies are kept. */
  body: Schema.optionalKey(Schema.String)
})

/** A refused request, connection, or input that is not HTTP. */
export const RequestRefused = typed("request.refused", {
  requestId: Schema.optionalKey(Schema.String),
  method: Schema.optionalKey(Schema.String),
  path: Schema.optionalKey(Schema.String),
  status: Status,
  code: Schema.String,
  detail: Schema.String,
  /** Present if the refusal counts as one of the run's calls; absent if it came before routing. */
  call: Schema.optionalKey(Listed),
  /** Refusals that were counted but not written since the previous entry of this type. */
  suppressed: Schema.optionalKey(Count),
  /** How many of these count as calls of the run. */
  suppressedCalls: Schema.optionalKey(Count)
})

/** A request that the gateway itself answered, such as the list of models. */
export const RequestAnswered = typed("request.answered", {
  requestId: Schema.String,
  method: Schema.String,
  path: Schema.String,
  status: Status,
  call: Schema.optionalKey(Listed)
})

/** A call to a host tool, and its outcome. */
export const ToolCalled = typed("tool.called", {
  requestId: Schema.String,
  tool: Schema.String,
  /** Absent if the tool does not exist. */
  effect: Schema.optionalKey(ToolEffect),
  via: Schema.Literals(["http", "mcp"]),
  argumentsBytes: Count,
  argumentsDigest: Digest,
  /** `ok`, `interrupted`, or the error code. */
  outcome: Schema.String,
  resultBytes: Count,
  resultDigest: Digest,
  durationMs: Millis
})

const Approval = {
  /** The call that waits, as in its `tool.called`. */
  requestId: Schema.String,
  approvalId: Schema.String,
  tool: Schema.String
}

/** A tool call waits for an approval. Its `tool.called` follows when it has ended. */
export const ToolApprovalRequested = typed("tool.approval_requested", {
  ...Approval,
  effect: ToolEffect,
  argumentsBytes: Count,
  argumentsDigest: Digest,
  expiresAt: Schema.String
})

/** The approval of a tool call has ended. The tool runs only if it is `approved`. */
export const ToolApprovalDecided = typed("tool.approval_decided", {
  ...Approval,
  argumentsDigest: Digest,
  decision: Schema.Literals(["approved", "denied", "expired", "cancelled"]),
  /** Absent without a decision. */
  decidedBy: Schema.optionalKey(Decider)
})

/** An entry about the approval of a tool call. */
export type ToolApproval = typeof ToolApprovalRequested.Type | typeof ToolApprovalDecided.Type

/** A package, or one of its files. */
const Package = {
  requestId: Schema.String,
  registry: Schema.Literals(registries),
  package: Schema.String,
  /** Name of the file in the mirror; for cargo, the version. Absent for metadata. */
  file: Schema.optionalKey(Schema.String)
}

/** A package is about to be fetched. Written before its name leaves the host. */
export const PackageStarted = typed("package.started", Package)

/** The end of a request for a package. */
export const PackageEnded = typed("package.ended", {
  ...Package,
  status: Status,
  /** `served`, `client_aborted`, or why it was not served. */
  outcome: Schema.String,
  /** Where its bytes came from. Absent if it was not served. */
  source: Schema.optionalKey(Schema.Literals(["cache", "registry"])),
  /** Bytes that came for it. */
  bytes: Count,
  /** Hash of the file as its registry states it, and as it was checked, such as `sha512-…`. */
  digest: Schema.optionalKey(Schema.String),
  durationMs: Millis,
  /** Explanation of a failure. */
  detail: Schema.optionalKey(Schema.String)
})

/** A canary was detected in outgoing data. */
export const ExfiltrationSuspected = typed("exfiltration.suspected", { evidence: Evidence })

/** A budget is exhausted, and waiting does not restore it. */
export const BudgetExhausted = typed("budget.exhausted", { exhaustion: Exhaustion })

/** The share of the subagents does not cover another of their calls. The main agent goes on. */
export const SubagentShareSpent = typed("subagents.exhausted", { exhaustion: Exhaustion })

/** The last entry: the socket is closed. */
export const RunClosed = typed("run.closed", {
  usage: LlmUsageTotal,
  callsTotal: Count,
  toolCallsTotal: Count,
  refusedTotal: Count,
  /** Requests for packages, if there were any. */
  packagesTotal: Schema.optionalKey(Count),
  /** Why egress failed before the run ended: its shard was lost, or its socket could not be created. */
  failure: Schema.optionalKey(Schema.String)
})

export type RunClosed = typeof RunClosed.Type

const entries = [
  RunOpened,
  RunKeyed,
  CallStarted,
  CallEnded,
  RequestRefused,
  RequestAnswered,
  ToolApprovalRequested,
  ToolApprovalDecided,
  ToolCalled,
  PackageStarted,
  PackageEnded,
  ExfiltrationSuspected,
  BudgetExhausted,
  SubagentShareSpent,
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
    description:
      "hash of the previous line; for the first line, SHA-256 of `cogni-sandbox audit 1\\n<run id>\\n`"
  }),
  hash: Digest.annotate({ description: 'SHA-256 of this line\'s bytes before `,"hash":`, in hexadecimal' })
}

const line = <F extends Schema.Struct.Fields>(entry: Schema.Struct<F>) =>
  Schema.Struct({ ...before, ...entry.fields, ...after })

/** One line of an audit, with its fields in the order in which they are written. */
export const AuditLine = Schema.Union([
  line(RunOpened),
  line(RunKeyed),
  line(CallStarted),
  line(CallEnded),
  line(RequestRefused),
  line(RequestAnswered),
  line(ToolApprovalRequested),
  line(ToolApprovalDecided),
  line(ToolCalled),
  line(PackageStarted),
  line(PackageEnded),
  line(ExfiltrationSuspected),
  line(BudgetExhausted),
  line(SubagentShareSpent),
  line(RunClosed)
])

export type AuditLine = typeof AuditLine.Type
