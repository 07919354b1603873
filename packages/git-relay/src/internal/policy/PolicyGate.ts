/** Applies the policy for every relay: whether a run may have a branch, and whether its commits may leave. */
import { Effect } from "effect"
import * as CommitPolicy from "../../CommitPolicy.ts"
import type { Checked, Collected } from "../../RelaySteps.ts"
import { OriginUnavailable, PolicyRefused, RelayFailed } from "../../GitRelayError.ts"
import * as CommitWalk from "./CommitWalk.ts"

/** Fails if a run that starts from `baseBranch` may not push to `branch`. */
export const mayPush = (
  policies: CommitPolicy.Policies | undefined,
  { baseBranch, branch, url }: { readonly url: string; readonly branch: string; readonly baseBranch: string }
): Effect.Effect<void, OriginUnavailable> => {
  const refused = CommitPolicy.branchAllowed(CommitPolicy.policyFor(policies, url), branch, baseBranch)
  return refused === undefined
    ? Effect.void
    : new OriginUnavailable({
        fault: "unsupported",
        detail: `must not receive the branch ${branch}: ${refused.detail}`,
        remedy: refused.remedy
      })
}

/** Checks every commit against the policy of its origin. */
export const check = Effect.fnUntraced(function* <E>(
  { bundle, clone, tip }: Collected,
  policies: CommitPolicy.Policies | undefined,
  judged: Pick<CommitWalk.WalkOptions<E>, "reader" | "secrets">
) {
  if (tip === undefined || bundle === undefined)
    return yield* new RelayFailed({
      detail: "there is nothing to check: the agent committed nothing",
      remedy: "Discard the run"
    })
  const policy = CommitPolicy.policyFor(policies, clone.request.url)
  const { baseCommit: base, objectFormat } = clone
  const walked = yield* CommitWalk.walk({ ...judged, base, tip, policy, objectFormat })
  const { violations, violationsTotal, ...counted } = walked
  if (violationsTotal > 0)
    return yield* new PolicyRefused({ violations, violationsTotal, keptAt: clone.directory })
  return { clone, tip, bundle, ...counted, policyDigest: CommitPolicy.digest(policy) } satisfies Checked
})
