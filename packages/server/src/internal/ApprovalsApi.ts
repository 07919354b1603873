/** Endpoints of tool calls that wait for an approval: list them, and decide. */
import { Approval, ApprovalDecision, ApprovalStatus, Reason } from "@cogni/sandbox-core/Approval"
import { Schema, Struct } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authentication } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import { Readable } from "./RunsApi.ts"

/** An approval of the caller's account. */
export const ApprovalView = Approval.mapFields(Struct.omit(["billingAccountId"])).annotate({
  identifier: "ToolApproval",
  description:
    "`arguments` are the whole arguments of the call, which an agent wrote. A call runs only if it is `approved`."
})

export type ApprovalView = typeof ApprovalView.Type

export const ApprovalList = Schema.Struct({ approvals: Schema.Array(ApprovalView) }).annotate({
  identifier: "ToolApprovalList"
})

export const ApprovalInput = Schema.Struct({
  decision: ApprovalDecision,
  /** The agent reads it if the call is denied. */
  reason: Schema.optionalKey(Reason)
}).annotate({ identifier: "ToolApprovalDecision" })

export type ApprovalInput = typeof ApprovalInput.Type

export class Approvals extends HttpApiGroup.make("approvals")
  .add(
    HttpApiEndpoint.get("list", "/approvals", {
      query: { status: Schema.optionalKey(ApprovalStatus) },
      success: ApprovalList,
      error: Problem.Unavailable
    }).annotateMerge(
      OpenApi.annotations({
        summary: "List the approvals of tool calls of the grant's account",
        description:
          "The newest first, at most 100. With `status=pending`, those that wait, the oldest first."
      })
    ),
    HttpApiEndpoint.get("ofRun", "/runs/:id/approvals", {
      params: { id: Schema.String.annotate({ description: "the ID of the run" }) },
      success: ApprovalList,
      error: [Problem.NotFound, Problem.Unavailable]
    }).annotateMerge(OpenApi.annotations({ summary: "List the approvals of tool calls of a run" })),
    HttpApiEndpoint.post("decide", "/approvals/:id", {
      params: { id: Schema.String.annotate({ description: "the ID of the approval" }) },
      payload: ApprovalInput,
      success: ApprovalView,
      error: [Problem.NotFound, Problem.Conflict, Problem.Denied, Problem.Unavailable]
    }).annotateMerge(
      OpenApi.annotations({
        summary: "Approve or deny a tool call that waits",
        description:
          "Needs a grant with the right to approve. The first decision counts; a later one is answered with 409, and " +
          "with what was decided."
      })
    )
  )
  .middleware(Readable)
  .middleware(Authentication) {}
