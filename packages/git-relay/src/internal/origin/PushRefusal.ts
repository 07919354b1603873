/**
 * Reason why an origin does not accept a branch. The caller adds the name of the branch, and where the commits are
 * kept.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { Data } from "effect"
import type { OriginFault, OriginUnavailable, PushFault } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"

export class PushRefusal extends Data.TaggedError("PushRefusal")<{
  readonly fault: PushFault
  readonly detail: string
  readonly remedy: string
  readonly isRetryable: boolean
}> {}

const pushFaults: Partial<Record<OriginFault, PushFault>> = {
  unauthorized: "unauthorized",
  forbidden: "forbidden",
  not_found: "not_found",
  timeout: "timeout",
  unreachable: "unreachable",
  unknown_host: "unreachable",
  tls: "unreachable"
}

/** Returns the fault of a push to an origin that has a fault itself. */
export const pushFaultOf = (fault: OriginFault): PushFault => pushFaults[fault] ?? "rejected"

/** The origin cannot be used, so nothing was pushed. */
export const ofOrigin = ({ detail, fault, isRetryable, remedy }: OriginUnavailable) =>
  new PushRefusal({ fault: pushFaultOf(fault), detail: `the origin ${detail}`, remedy, isRetryable })

/** A branch that is delivered. */
export interface Delivered {
  readonly at: CommitId
  /** `true` if the branch already existed, at that commit or with the same files. */
  readonly unchanged: boolean
}

/** The branch already exists with different content. */
export const exists = (at: string) =>
  new PushRefusal({
    fault: "branch_exists",
    detail: `it already exists at ${at.slice(0, 12)}, with different content`,
    remedy: `Push under another name (${named("ReopenOptions.branch")}), or remove that branch`,
    isRetryable: false
  })
