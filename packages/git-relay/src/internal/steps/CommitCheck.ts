/** Whether the policy lets through what was collected. */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Duration, Effect } from "effect"
import * as CommitPolicy from "../../CommitPolicy.ts"
import * as CredentialUse from "../git/CredentialUse.ts"
import type { Checked, Collected } from "../../GitRelay.ts"
import { PolicyRefused, RelayFailed } from "../../GitRelayError.ts"
import type { Held } from "./WorkspaceClone.ts"
import * as CommitWalk from "../policy/CommitWalk.ts"
import * as GitObjects from "../git/GitObjects.ts"
import { stateOf } from "./BundleExport.ts"

export const check = Effect.fnUntraced(function* (held: Held, { bundle, clone, tip }: Collected) {
  if (tip === undefined || bundle === undefined) {
    return yield* new RelayFailed({
      detail: "there is nothing to check: the agent committed nothing",
      remedy: "Discard it",
      isRetryable: false
    })
  }
  const state = yield* stateOf(held, clone)
  const policy = CommitPolicy.policyFor(held.policies, clone.request.url)
  const reader = yield* GitObjects.make(relayPaths(clone.directory).repository)
  const { checkSecondsMax } = held.limits
  const walked = yield* CommitWalk.walk({
    reader,
    base: clone.baseCommit,
    tip,
    policy,
    objectFormat: clone.objectFormat,
    secrets: [...(held.secrets ?? []).map(CredentialUse.soughtAfter), ...state.canaries]
  }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(checkSecondsMax),
      orElse: () =>
        Effect.fail(
          new RelayFailed({
            detail: `looking at the commits took more than ${checkSecondsMax} s`,
            remedy: "Have the agent change less in one run, or allow more time (limits.checkSecondsMax)",
            isRetryable: false
          })
        )
    })
  )
  if (walked.violationsTotal > 0) {
    return yield* new PolicyRefused({
      violations: walked.violations,
      violationsTotal: walked.violationsTotal,
      keptAt: clone.directory
    })
  }
  yield* held.directory.save({ ...state, stage: "checked" })
  return {
    clone,
    tip,
    bundle,
    commits: walked.commits,
    paths: walked.paths,
    policyDigest: CommitPolicy.digest(policy)
  } satisfies Checked
})
