/** Why an origin does not take a branch; whoever delivers it adds which branch that is, and where the commits are. */
import { Data } from "effect"
import type { PushFault } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"

export class PushRefusal extends Data.TaggedError("PushRefusal")<{
  readonly fault: PushFault
  readonly detail: string
  readonly remedy: string
  readonly isRetryable: boolean
}> {}

/** A branch that stands where it was wanted. */
export interface Delivered {
  readonly at: CommitId
  /** It was there already, at that commit or with the same files. */
  readonly unchanged: boolean
}

/** The branch is there with something else. */
export const exists = (at: string) =>
  new PushRefusal({
    fault: "branch_exists",
    detail: `it is there already, at ${at.slice(0, 12)}, with something else`,
    remedy: "Push under another name (relay retry --branch), or remove that branch",
    isRetryable: false
  })
