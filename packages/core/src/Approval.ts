/**
 * One call of a host tool that waits for a person or a program to approve it, and how that may end. Pure.
 *
 * An approval is for one call: its arguments are shown whole and are those that the tool gets. It ends once. Without an
 * answer, it ends as a denial: when its time is up, when its run ends, or when its process is gone.
 */
import * as Schema from "effect/Schema"
import { RunId } from "./RunId.ts"
import { ToolEffect } from "./ToolAccess.ts"

/** Limits of approvals, which no option raises. */
export const limits = {
  /** Size of the arguments of a call that needs an approval. They are shown whole, or the call is refused. */
  argumentsBytesMax: 16 * 1024,
  /** Calls of one run that wait at the same time. */
  pendingPerRunMax: 8,
  /** Calls of one account that wait at the same time. */
  pendingPerAccountMax: 64,
  /** Approvals that one run may ask for. */
  requestsPerRunMax: 100,
  reasonCharactersMax: 500,
  /** Approvals in one list. */
  listedMax: 100,
  waitSecondsMax: 3600
} as const

/** How long a call waits, unless an option says otherwise, in seconds. Node's `fetch` gives up after 300. */
export const waitSecondsDefault = 180

/** `expired`: no answer in time. `cancelled`: the run or its process ended first. Only `approved` runs a tool. */
export const ApprovalStatus = Schema.Literals(["pending", "approved", "denied", "expired", "cancelled"])

export type ApprovalStatus = typeof ApprovalStatus.Type

export const ApprovalDecision = Schema.Literals(["approve", "deny"])

export type ApprovalDecision = typeof ApprovalDecision.Type

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** The decider: the holder of a grant, the operator of the host, or a program on it. Never an agent. */
export const Decider = Schema.Struct({
  type: Schema.Literals(["grant", "operator", "program"]),
  /** ID of the grant, or name of the operator or the program. */
  id: Identifier
})

export type Decider = typeof Decider.Type

/** Reason of a decision, for people. */
export const Reason = Schema.String.check(Schema.isMaxLength(limits.reasonCharactersMax))

export const ApprovalId = Schema.String.check(
  Schema.isPattern(/^apr-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/u, {
    expected: "the ID of an approval"
  })
)

export const Approval = Schema.Struct({
  id: ApprovalId,
  runId: RunId,
  billingAccountId: Identifier,
  /** The call that waits. */
  requestId: Schema.String,
  tool: Schema.String,
  effect: ToolEffect,
  /** The whole arguments as JSON. Untrusted: an agent wrote them. */
  arguments: Schema.String,
  /** SHA-256 of `arguments`, in hexadecimal. Only a call with this digest runs. */
  argumentsDigest: Schema.String,
  /** For whom the agent works, as the host knows it. */
  askedBy: Schema.Struct({
    graphId: Schema.optionalKey(Schema.String),
    agentId: Schema.optionalKey(Schema.String),
    userId: Schema.optionalKey(Schema.String),
    sessionId: Schema.optionalKey(Schema.String)
  }),
  /** ISO 8601, in UTC. */
  requestedAt: Schema.String,
  /** When the call is denied without a decision. */
  expiresAt: Schema.String,
  status: ApprovalStatus,
  decidedAt: Schema.optionalKey(Schema.String),
  /** Absent without a decision. */
  decidedBy: Schema.optionalKey(Decider),
  reason: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "Approval" })

export type Approval = typeof Approval.Type

/** A call that asks for an approval. */
export interface ApprovalRequest extends Pick<
  Approval,
  "runId" | "billingAccountId" | "requestId" | "tool" | "effect" | "arguments" | "argumentsDigest" | "askedBy"
> {
  readonly waitSecondsMax: number
}

/** An end of an approval. */
export interface ApprovalEnd {
  readonly status: Exclude<ApprovalStatus, "pending">
  readonly decidedBy?: Decider | undefined
  readonly reason?: string | undefined
}

/** A decision about a pending approval. */
export interface Decided {
  readonly id: string
  /** Account of the decider. Absent: the operator of the host, who may decide for every account. */
  readonly billingAccountId?: string | undefined
  readonly decision: ApprovalDecision
  readonly by: Decider
  readonly reason?: string | undefined
}

export interface ApprovalFilter {
  /** Absent: approvals of all accounts, for the operator of the host. */
  readonly billingAccountId?: string | undefined
  readonly runId?: string | undefined
  readonly status?: ApprovalStatus | undefined
  /** Beginning of the ID. */
  readonly idPrefix?: string | undefined
  /** The last approval of the page before. */
  readonly after?: string | undefined
}

const isoOf = (millis: number): string => new Date(millis).toISOString()

/** Creates a pending approval with a new ID. */
export const begin = ({ waitSecondsMax, ...request }: ApprovalRequest, nowMillis: number): Approval => ({
  ...request,
  id: `apr-${crypto.randomUUID()}`,
  requestedAt: isoOf(nowMillis),
  expiresAt: isoOf(nowMillis + Math.min(waitSecondsMax, limits.waitSecondsMax) * 1000),
  status: "pending"
})

/** Returns an approval at a time: one without a decision in time has expired, whatever is stored. */
export const at = (approval: Approval, nowMillis: number): Approval =>
  approval.status === "pending" && approval.expiresAt <= isoOf(nowMillis)
    ? { ...approval, status: "expired", decidedAt: approval.expiresAt }
    : approval

/** Ends a pending approval. One that has ended does not change. */
export const end = (
  approval: Approval,
  { decidedBy, reason, status }: ApprovalEnd,
  nowMillis: number
): Approval =>
  approval.status === "pending"
    ? {
        ...approval,
        status,
        decidedAt: isoOf(nowMillis),
        ...(decidedBy === undefined ? {} : { decidedBy }),
        ...(reason === undefined || reason === ""
          ? {}
          : { reason: reason.slice(0, limits.reasonCharactersMax) })
      }
    : approval

/** Returns the end that a decision is. */
export const endOf = (decision: ApprovalDecision): "approved" | "denied" =>
  decision === "approve" ? "approved" : "denied"

/** Describes to an agent why its call did not run, and what it can do. */
export const refusalOf = ({ reason, status, tool }: Approval): string => {
  switch (status) {
    case "denied":
      return `the call of ${tool} was denied${reason === undefined ? "" : `: ${reason}`}. Continue without it, or explain why it is needed`
    case "expired":
      return `the call of ${tool} was not approved in time. Continue without it, or try again later`
    default:
      return `the call of ${tool} was not approved, because its run has ended or its client has gone`
  }
}

/** Returns why one more call may not wait, if the limits of a run and an account do not allow it. */
export const fullOf = (pending: {
  readonly ofRun: number
  readonly ofAccount: number
}): { readonly reason: "run_full" | "account_full"; readonly detail: string } | undefined => {
  const { pendingPerAccountMax, pendingPerRunMax } = limits
  if (pending.ofRun >= pendingPerRunMax)
    return {
      reason: "run_full",
      detail: `${pendingPerRunMax} calls of this run wait for an approval already. Wait until one is decided`
    }
  return pending.ofAccount >= pendingPerAccountMax
    ? {
        reason: "account_full",
        detail: `${pendingPerAccountMax} calls of this account wait for an approval already. Try again later`
      }
    : undefined
}

/** Returns whether a filter includes an approval, whose status is that of now. Its page is not compared. */
export const includes = (filter: ApprovalFilter, approval: Approval): boolean =>
  (filter.billingAccountId === undefined || filter.billingAccountId === approval.billingAccountId) &&
  (filter.runId === undefined || filter.runId === approval.runId) &&
  (filter.idPrefix === undefined || approval.id.startsWith(filter.idPrefix)) &&
  (filter.status === undefined || filter.status === approval.status)
