/**
 * The parts of a server's answers that the page reads: the schemas of its edge.
 *
 * A field that the page does not know is ignored, and a new status is shown as it is, so a page works with a newer
 * server. A value of another type is an error.
 */
import { JournalEntry } from "@cogni/sandbox-core/RunJournal"
import { AuditHead, Evidence, Exhaustion, LlmUsage, LlmUsageTotal } from "@cogni/sandbox-core/RunFigures"
import { RunCost } from "@cogni/sandbox-ledger/RunCost"
import { Schema } from "effect"

const optionalText = Schema.optional(Schema.String)
const optionalNumber = Schema.optional(Schema.Finite)

/** Figures by name: limits and peaks. */
const Figures = Schema.Record(Schema.String, Schema.Unknown)

/** The facts of the isolation that the page shows. */
const Posture = Schema.Struct({
  userIds: Schema.Array(Schema.Int),
  capabilities: Schema.Struct({ effective: Schema.String, bounding: Schema.String }),
  noNewPrivileges: Schema.Boolean,
  seccompMode: Schema.Int,
  interfaces: Schema.Array(Schema.String),
  routes: Schema.Array(Schema.String),
  mounts: Schema.Array(
    Schema.Struct({ target: Schema.String, fileSystem: Schema.String, readOnly: Schema.Boolean })
  ),
  confirmedBy: Schema.Array(Schema.String)
})

const Relay = Schema.Struct({
  status: Schema.String,
  origin: Schema.String,
  branch: Schema.String,
  baseBranch: optionalText,
  baseCommit: optionalText,
  tip: optionalText,
  pullRequestUrl: optionalText
})

const ChangedFile = Schema.Struct({
  path: Schema.String,
  added: optionalNumber,
  removed: optionalNumber
})

const Changes = Schema.Struct({
  commits: Schema.Int,
  files: Schema.Array(ChangedFile),
  filesTotal: Schema.Int,
  patchBytes: Schema.Int,
  patchTruncated: Schema.Boolean
})

export type Changes = typeof Changes.Type

export const Run = Schema.Struct({
  runId: Schema.String,
  status: Schema.String,
  graphId: optionalText,
  agentId: optionalText,
  model: optionalText,
  repository: optionalText,
  startedAt: optionalText,
  endedAt: optionalText,
  attempt: optionalNumber,
  grantId: optionalText,
  requestId: optionalText,
  sessionId: optionalText,
  userId: optionalText,
  traceId: optionalText,
  traceUrl: optionalText,
  exitCode: optionalNumber,
  error: Schema.optional(Schema.Struct({ code: optionalText, reason: Schema.String })),
  timings: Schema.Array(Schema.Struct({ phase: Schema.String, durationMs: Schema.Finite })),
  limits: Schema.optional(Figures),
  peak: Schema.optional(Figures),
  output: Schema.optional(
    Schema.Struct({
      stdoutBytes: Schema.Int,
      stderrBytes: Schema.Int,
      stdoutTruncated: Schema.optional(Schema.Boolean),
      stderrTruncated: Schema.optional(Schema.Boolean)
    })
  ),
  llm: Schema.optional(
    Schema.Struct({
      callsTotal: Schema.Int,
      toolCallsTotal: optionalNumber,
      usage: Schema.optional(LlmUsageTotal),
      exhausted: Schema.optional(Exhaustion),
      subagentsExhausted: Schema.optional(Exhaustion)
    })
  ),
  budget: Schema.optional(Figures),
  suspicions: Schema.optional(Schema.Array(Evidence)),
  cost: Schema.optional(RunCost),
  posture: Schema.optional(Posture),
  relay: Schema.optional(Relay),
  changes: Schema.optional(Changes),
  answer: Schema.optional(Schema.Struct({ chars: Schema.Int, truncated: Schema.Boolean }))
})

export type Run = typeof Run.Type

export const RunPage = Schema.Struct({ runs: Schema.Array(Run), next: optionalText })
export type RunPage = typeof RunPage.Type

export const Call = Schema.Struct({
  at: Schema.String,
  requestId: Schema.String,
  callId: optionalText,
  method: Schema.String,
  path: Schema.String,
  status: optionalNumber,
  outcome: optionalText,
  model: optionalText,
  requestBytes: Schema.Int,
  responseBytes: optionalNumber,
  durationMs: optionalNumber,
  usage: Schema.optional(LlmUsage),
  cost: Schema.optional(
    Schema.Struct({ costUsd: optionalNumber, state: Schema.String, reason: optionalText })
  )
})

export type Call = typeof Call.Type

export const CallPage = Schema.Struct({
  calls: Schema.Array(Call),
  callsTotal: Schema.Int,
  isElsewhere: Schema.optional(Schema.Boolean),
  next: optionalText
})

export type CallPage = typeof CallPage.Type

export const Tool = Schema.Struct({
  source: Schema.String,
  at: Schema.String,
  tool: Schema.String,
  outcome: optionalText,
  durationMs: optionalNumber,
  toolCallId: optionalText,
  arguments: optionalText,
  endedAt: optionalText,
  isError: Schema.optional(Schema.Boolean),
  result: optionalText
})

export type Tool = typeof Tool.Type

export const ToolList = Schema.Struct({
  tools: Schema.Array(Tool),
  truncated: Schema.Boolean,
  isElsewhere: Schema.optional(Schema.Boolean)
})

export const Approval = Schema.Struct({
  id: Schema.String,
  runId: Schema.String,
  tool: Schema.String,
  effect: Schema.String,
  /** The whole arguments as JSON, which an agent wrote. */
  arguments: Schema.String,
  askedBy: Schema.Struct({ userId: optionalText }),
  requestedAt: Schema.String,
  expiresAt: Schema.String,
  status: Schema.String,
  decidedAt: optionalText,
  decidedBy: Schema.optional(Schema.Struct({ type: Schema.String, id: Schema.String })),
  reason: optionalText
})

export type Approval = typeof Approval.Type

export const ApprovalList = Schema.Struct({ approvals: Schema.Array(Approval) })

export const AuditVerdict = Schema.Struct({
  ok: Schema.Boolean,
  head: AuditHead,
  closed: Schema.Boolean,
  headKnown: Schema.Boolean,
  problem: Schema.optional(Schema.Struct({ kind: Schema.String, line: Schema.Int, detail: Schema.String }))
})

export type AuditVerdict = typeof AuditVerdict.Type

export const Cancelling = Schema.Struct({ runId: Schema.String, status: Schema.String })

export const Delivered = Schema.Struct({
  relay: Relay,
  problem: Schema.optional(Schema.Struct({ reason: Schema.String, message: Schema.String }))
})

export const Grant = Schema.Struct({
  id: Schema.String,
  userId: Schema.String,
  billingAccountId: Schema.String,
  scopes: Schema.Array(Schema.String),
  allowSandbox: Schema.Boolean,
  permissions: Schema.Record(Schema.String, Schema.Unknown),
  /** Whether the grant may change anything. The server decides. */
  mayWrite: Schema.Boolean,
  expiresAt: Schema.NullOr(Schema.String)
})

export type Grant = typeof Grant.Type

/** A grant of the account. */
export const ListedGrant = Schema.Struct({
  id: Schema.String,
  userId: Schema.String,
  scopes: Schema.Array(Schema.String),
  allowSandbox: Schema.Boolean,
  permissions: Schema.Record(Schema.String, Schema.Unknown),
  state: Schema.String,
  createdAt: Schema.String,
  expiresAt: Schema.NullOr(Schema.String),
  lastRunAt: optionalText
})

export type ListedGrant = typeof ListedGrant.Type

export const GrantPage = Schema.Struct({ grants: Schema.Array(ListedGrant), next: optionalText })

/** A connection of the account. */
export const Connection = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  kind: Schema.String,
  server: Schema.String,
  state: Schema.String,
  createdAt: Schema.String,
  expiresAt: Schema.NullOr(Schema.String),
  lastUsedAt: optionalText
})

export type Connection = typeof Connection.Type

export const ConnectionPage = Schema.Struct({
  connections: Schema.Array(Connection),
  next: optionalText
})

/** An entry of the audit of a connection. */
export const ConnectionUse = Schema.Struct({
  leaseId: Schema.String,
  at: Schema.String,
  event: Schema.String,
  grantId: Schema.String,
  runId: Schema.NullOr(Schema.String),
  purpose: Schema.String,
  repository: Schema.NullOr(Schema.String),
  toolId: Schema.NullOr(Schema.String),
  reason: Schema.NullOr(Schema.String)
})

export type ConnectionUse = typeof ConnectionUse.Type

export const UsePage = Schema.Struct({ uses: Schema.Array(ConnectionUse), next: optionalText })

export const StartedRun = Schema.Struct({ runId: Schema.String, isRepeated: Schema.Boolean })

export type StartedRun = typeof StartedRun.Type

export const SignedIn = Schema.Struct({ csrf: Schema.String, grant: Grant })
export type SignedIn = typeof SignedIn.Type

export const Event = JournalEntry
export type Event = JournalEntry

/** Statuses of a run that has not ended. */
const active: ReadonlySet<string> = new Set(["starting", "running"])

export const isActive = ({ status }: Pick<Run, "status">): boolean => active.has(status)

/** A figure of a record with any fields. */
export const figure = (figures: Readonly<Record<string, unknown>> | undefined, name: string) => {
  const value = figures?.[name]
  return typeof value === "number" && Number.isFinite(value) ? value : undefined
}
