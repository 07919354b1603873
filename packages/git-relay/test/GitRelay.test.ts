/** The port without a relay: every operation is refused, by name and with a remedy. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { GitRelay, layerNoop } from "@cogni/sandbox-git-relay/GitRelay"
import { type Checked, type Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import type { GitRelayError, Operation } from "@cogni/sandbox-git-relay/GitRelayError"
import { branchOf, CommitId } from "@cogni/sandbox-git-relay/Refs"
import { Effect } from "effect"

const runId = RunId.make("run-000000000001")
const tip = CommitId.make("a".repeat(40))
const branch = branchOf(runId)
const clone: Clone = {
  request: { runId, url: "https://git.example.com/team/project.git" },
  baseBranch: "main",
  branch,
  baseCommit: tip,
  objectFormat: "sha1",
  workspacePath: "/nowhere/workspace",
  directory: "/nowhere"
}
const bundle = { path: "/nowhere/bundle", bytes: 12, digest: "b".repeat(64) }
const checked: Checked = { clone, tip, bundle, commits: 1, paths: 1, policyDigest: "c".repeat(64) }

describe("GitRelay", () => {
  it.effect("layerNoop refuses every operation, by name and with a remedy", () =>
    Effect.gen(function* () {
      const relay = yield* GitRelay
      const refusals: Readonly<Record<Operation, Effect.Effect<unknown, GitRelayError>>> = {
        clone: Effect.scoped(relay.clone(clone.request)),
        reopen: Effect.scoped(relay.reopen(runId)),
        collect: relay.collect(clone),
        apply: relay.apply(clone, []),
        check: relay.check({ clone, tip, bundle }),
        patch: relay.patch(checked),
        push: relay.push(checked),
        openPullRequest: relay.openPullRequest({ checked, branch, tip, unchanged: false }),
        discard: relay.discard(runId),
        kept: relay.kept
      }
      for (const [operation, refused] of Object.entries(refusals)) {
        const error = yield* Effect.flip(refused)
        assert.strictEqual(error.operation, operation)
        assert.strictEqual(error.reason._tag, "RelayUnavailable")
        assert.isFalse(error.isRetryable)
        assert.include(error.message, "Provide a GitRelay layer")
      }
    }).pipe(Effect.provide(layerNoop))
  )
})
