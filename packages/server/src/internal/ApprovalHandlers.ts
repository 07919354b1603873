/**
 * Handlers of approvals. A caller sees those of its own account, and decides only if its grant has the right to.
 *
 * An agent has no grant and no way to this server, so it cannot decide about its own calls.
 */
import type { Approval, ApprovalFilter } from "@cogni/sandbox-core/Approval"
import { Approvals } from "@cogni/sandbox-core/Approvals"
import { Effect, Struct } from "effect"
import type { ApprovalInput, ApprovalView } from "./ApprovalsApi.ts"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import type { RunHandlers } from "./RunHandlers.ts"

const viewOf = (approval: Approval): ApprovalView => Struct.omit(approval, ["billingAccountId"])

export const make = Effect.fnUntraced(function* ({ lookUp }: Pick<RunHandlers, "lookUp">) {
  const approvals = yield* Approvals

  /** Lists approvals of the caller's account only. */
  const listOwn = Effect.fnUntraced(function* (filter: Omit<ApprovalFilter, "billingAccountId">) {
    const { billingAccountId } = yield* CurrentGrant
    const found = yield* approvals
      .list({ ...filter, billingAccountId })
      .pipe(Effect.catch(Problem.storeUnavailable))
    return { approvals: found.map(viewOf) }
  })

  return {
    list: listOwn,
    ofRun: (id: string) => Effect.flatMap(lookUp(id), ({ runId }) => listOwn({ runId })),
    decide: Effect.fn("SandboxServer.decideApproval")(function* (id: string, input: ApprovalInput) {
      const grant = yield* CurrentGrant
      if (grant.permissions.approve !== true)
        return yield* Effect.fail(
          Problem.make(
            "authz_denied",
            "ApprovalNotGranted",
            `grant ${grant.id} may not decide about tool calls. Ask the operator for a grant with --approve`
          )
        )
      const decided = yield* approvals
        .decide({
          id,
          billingAccountId: grant.billingAccountId,
          decision: input.decision,
          by: { type: "grant", id: grant.id },
          ...(input.reason === undefined ? {} : { reason: input.reason })
        })
        .pipe(
          Effect.catchTags({
            ApprovalNotFound: ({ _tag, message }) => Effect.fail(Problem.make("not_found", _tag, message)),
            ApprovalOver: ({ _tag, message }) => Effect.fail(Problem.make("conflict", _tag, message)),
            ApprovalsUnavailable: Problem.decisionDoubtful
          })
        )
      return viewOf(decided)
    })
  }
})
