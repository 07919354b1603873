/** Asks for an approval, and tells a witness when it is requested and when it has ended: the audit and the run's events. */
import { Duration, Effect, Exit } from "effect"
import * as Approval from "./Approval.ts"
import type { ApprovalsShape } from "./Approvals.ts"
import type { ApprovalRefused, ApprovalsUnavailable } from "./ApprovalError.ts"

/** Hears of an approval. */
export interface ApprovalWitness {
  readonly requested: (approval: Approval.Approval) => Effect.Effect<void>
  /** Heard for each requested approval, once, after `requested`. */
  readonly ended: (approval: Approval.Approval) => Effect.Effect<void>
}

/**
 * Asks for an approval and waits until it has ended, at most until it expires. If the caller is interrupted, because
 * its run has ended, the approval is cancelled.
 */
export const ask = (
  approvals: ApprovalsShape,
  request: Approval.ApprovalRequest,
  witness: ApprovalWitness
): Effect.Effect<Approval.Approval, ApprovalRefused | ApprovalsUnavailable> =>
  Effect.acquireUseRelease(
    approvals.request(request),
    // In the part that can be interrupted and timed out: who hears of it may be slow. Meanwhile, it waits already, so
    // that its store does not take it for one without a process.
    (approval) =>
      Effect.all([witness.requested(approval), approvals.settled(approval)], { concurrency: 2 }).pipe(
        Effect.map(([, ended]) => ended),
        Effect.timeoutOrElse({
          duration: Duration.seconds(Math.min(request.waitSecondsMax, Approval.limits.waitSecondsMax)),
          orElse: () => approvals.close(approval, "expired")
        })
      ),
    (approval, exit) =>
      Effect.flatMap(
        Exit.isSuccess(exit) ? Effect.succeed(exit.value) : approvals.close(approval, "cancelled"),
        witness.ended
      )
  )
