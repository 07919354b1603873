/**
 * Reason why an origin does not accept a branch. The caller adds the name of the branch, and where the commits are
 * kept.
 */
import { Data } from "effect"
import type { PushFault } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"

export class PushRefusal extends Data.TaggedError("PushRefusal")<{
  readonly fault: PushFault
  readonly detail: string
  readonly remedy: string
  readonly isRetryable: boolean
}> {}

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
    remedy: "Push under another name (relay retry --branch), or remove that branch",
    isRetryable: false
  })
