/**
 * A delivery as the record of its run keeps it.
 */
import { Schema } from "effect"
import * as CommitStatement from "./CommitStatement.ts"
import { type Checked, type Clone, type PullRequest } from "./RelaySteps.ts"
import type { GitRelayError } from "./GitRelayError.ts"
import { BranchName, CommitId } from "./Refs.ts"

/** Outcome of a run's commits. */
export type Delivery =
  /** The agent committed nothing and left nothing to commit. */
  | { readonly _tag: "Skipped"; readonly clone: Clone }
  | {
      readonly _tag: "Pushed"
      readonly checked: Checked
      readonly tip: CommitId
      /** `true` if the branch already existed with this content. */
      readonly unchanged: boolean
      readonly pullRequest: PullRequest | undefined
      readonly statement: CommitStatement.CommitStatement
      /** Only if it was asked for, and is not too large. */
      readonly patch?: Uint8Array | undefined
    }
  /** The commits are kept until they are discarded, because the caller has not stored the patch yet. */
  | { readonly _tag: "Patched"; readonly checked: Checked; readonly patch: Uint8Array }
  /** The run did not succeed. Its commits are kept until they are retried or dropped. */
  | { readonly _tag: "Kept"; readonly clone: Clone; readonly tip: CommitId }
  /** The commits were refused or could not be sent, and are kept. The result of the run is valid. */
  | { readonly _tag: "Failed"; readonly clone: Clone; readonly error: GitRelayError }

/** A delivery as it is stored in the record of a run, under `relay`. */
export const DeliveryRecord = Schema.Struct({
  status: Schema.Literals(["skipped", "pushed", "unchanged", "patched", "kept", "failed"]),
  origin: Schema.String,
  branch: BranchName,
  baseBranch: Schema.optionalKey(Schema.String),
  baseCommit: Schema.optionalKey(CommitId),
  tip: Schema.optionalKey(CommitId),
  pullRequestUrl: Schema.optionalKey(Schema.String),
  /** Why the commits were not delivered. */
  message: Schema.optionalKey(Schema.String),
  /** Directory of the commits if they were not delivered. */
  keptAt: Schema.optionalKey(Schema.String),
  statement: Schema.optionalKey(CommitStatement.CommitStatement)
})

export type DeliveryRecord = typeof DeliveryRecord.Type

export const recordOf = (delivery: Delivery): DeliveryRecord => {
  const clone = "checked" in delivery ? delivery.checked.clone : delivery.clone
  const { baseBranch, baseCommit, branch, directory: keptAt, request } = clone
  const facts = { origin: request.url, branch, baseBranch, baseCommit }
  switch (delivery._tag) {
    case "Skipped":
      return { status: "skipped", ...facts }
    case "Kept":
      return { status: "kept", ...facts, tip: delivery.tip, keptAt }
    case "Failed":
      return { status: "failed", ...facts, message: delivery.error.message, keptAt }
    case "Patched":
      return { status: "patched", ...facts, tip: delivery.checked.tip }
    case "Pushed": {
      const { pullRequest, statement, tip, unchanged } = delivery
      const opened = pullRequest === undefined ? {} : { pullRequestUrl: pullRequest.url }
      return { status: unchanged ? "unchanged" : "pushed", ...facts, tip, ...opened, statement }
    }
  }
}
