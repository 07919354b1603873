/**
 * The reasons why a request for an approval, or an answer to one, fails.
 */
import { Schema } from "effect"
import * as Approval from "./Approval.ts"

/** The call may not wait: there is no approver, or too many calls wait already. */
export class ApprovalRefused extends Schema.TaggedError<ApprovalRefused>()("ApprovalRefused", {
  reason: Schema.Literals(["no_approver", "run_full", "account_full"]),
  detail: Schema.String
}) {
  override get message(): string {
    return this.detail
  }
}

/** The store of approvals cannot be reached. No call is approved. */
export class ApprovalsUnavailable extends Schema.TaggedError<ApprovalsUnavailable>()("ApprovalsUnavailable", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  readonly isRetryable = true
  override get message(): string {
    return `the store of approvals ${this.detail}. ${this.remedy}`
  }
}

/** The account has no such approval. */
export class ApprovalNotFound extends Schema.TaggedError<ApprovalNotFound>()("ApprovalNotFound", {}) {
  override get message(): string {
    return "this account has no such approval. List the pending ones"
  }
}

/** The approval has already ended. */
export class ApprovalOver extends Schema.TaggedError<ApprovalOver>()("ApprovalOver", {
  approval: Approval.Approval
}) {
  override get message(): string {
    const { decidedBy, status } = this.approval
    switch (status) {
      case "expired":
        return "there was no decision in time, so the call was denied"
      case "cancelled":
        return "the call no longer waits: its run has ended, or its agent has given up"
      default:
        return `the call is already ${status}${decidedBy === undefined ? "" : `, by ${decidedBy.type} ${decidedBy.id}`}`
    }
  }
}
