/** Proposals whose branch exists already, and the words of their refusal, over a relay whose clones are directories. */
import * as FileProposal from "@cogni/sandbox-git-relay/FileProposal"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { type Checked, type Clone, type PullRequest } from "@cogni/sandbox-git-relay/RelaySteps"
import { GitRelayError, PushRefused } from "@cogni/sandbox-git-relay/GitRelayError"
import { BranchName, CommitId } from "@cogni/sandbox-git-relay/Refs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const url = "https://git.example/acme/configuration"
const commit = CommitId.make("1".repeat(40))
const moved = CommitId.make("2".repeat(40))
const unused = () => Effect.die("is not part of a proposal whose branch exists")

/** A relay whose push finds the branch of the change, with a file and perhaps a pull request. */
const withBranch = (there: { readonly content: string; readonly pullRequest?: PullRequest }) =>
  Layer.effect(
    GitRelay,
    Effect.gen(function* () {
      const root = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-proposal-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      let clones = 0
      const clone = (request: Clone["request"], branch: BranchName, content?: string): Clone => {
        const directory = join(root, String(clones++))
        mkdirSync(join(directory, "repo"), { recursive: true })
        if (content !== undefined) writeFileSync(join(directory, "repo", "a.md"), content)
        return {
          request,
          baseBranch: request.baseBranch ?? "main",
          branch,
          baseCommit: request.baseBranch === undefined ? commit : moved,
          objectFormat: "sha1",
          workspacePath: directory,
          directory
        }
      }
      const bundle = { path: root, bytes: 1, digest: "" }
      return GitRelay.of({
        clone: (request) =>
          Effect.sync(() =>
            clone(
              request,
              BranchName.make("sandbox/first"),
              request.baseBranch === undefined ? undefined : there.content
            )
          ),
        reopen: (runId, changed) => Effect.sync(() => clone({ runId, url }, changed!.branch!)),
        collect: (clone) => Effect.succeed({ clone, tip: commit, bundle }),
        check: ({ clone }) =>
          Effect.succeed({
            clone,
            tip: commit,
            bundle,
            commits: 1,
            paths: 1,
            policyDigest: ""
          } satisfies Checked),
        push: ({ clone: { branch, directory } }) =>
          Effect.fail(
            new GitRelayError({
              operation: "push",
              reason: new PushRefused({
                fault: "branch_exists",
                branch,
                detail: "it exists",
                remedy: "",
                keptAt: directory,
                isRetryable: false
              })
            })
          ),
        findPullRequest: ({ tip }) => Effect.succeed(tip === moved ? there.pullRequest : undefined),
        discard: () => Effect.void,
        apply: unused,
        patch: unused,
        openPullRequest: unused,
        kept: Effect.succeed([])
      })
    })
  )

const proposed = FileProposal.propose({
  url,
  title: "skill",
  message: "Add a",
  edit: () => Effect.succeed([{ path: "a.md", content: "new" }]),
  verify: () => Effect.void
})

describe("a proposal whose branch exists", () => {
  it.effect("has the pull request that is open for the same change", () =>
    Effect.gen(function* () {
      const pullRequest = { url: `${url}/pull/1`, number: 1, existing: true }
      const found = yield* Effect.provide(proposed, withBranch({ content: "new", pullRequest }))
      assert.deepInclude(found, { _tag: "Proposed", tip: moved, pullRequest })
    })
  )

  it.effect("speaks of other content only if it has some", () =>
    Effect.gen(function* () {
      const refused = yield* Effect.flip(Effect.provide(proposed, withBranch({ content: "other" })))
      assert.deepInclude(refused, { _tag: "ProposalRefused", problem: "branch_taken" })
      assert.include(refused.message, "exists, with other content. Merge or close its pull request")
    })
  )

  it.effect("says that it has the change and no open pull request, and does not speak of closing one", () =>
    Effect.gen(function* () {
      const refused = yield* Effect.flip(Effect.provide(proposed, withBranch({ content: "new" })))
      assert.deepInclude(refused, { _tag: "ProposalRefused", problem: "branch_taken" })
      assert.include(refused.message, "has this change and has no open pull request")
      assert.match(refused.message, /too\. Delete the branch, and try again$/u)
      assert.notInclude(refused.message, "other content")
    })
  )
})
