/**
 * The source documents' port to a repository, over the relay: a clone, a branch made of patches, a pull request. For
 * callers that carry patches and not a workspace; what they bring is held to the same policy.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer, type Scope } from "effect"
import { GitRelay } from "./GitRelay.ts"
import { GitRelayError } from "./GitRelayError.ts"
import { openOrFind } from "./internal/forge/OpenOrFind.ts"
import { PullRequests } from "./forge/PullRequests.ts"
import type { BranchName, CommitId } from "./Refs.ts"

export class PatchRelay extends Context.Service<
  PatchRelay,
  {
    /** A workspace at a commit, `repo` in it; both end with the scope. */
    readonly cloneToWorkspace: (params: {
      readonly repoUrl: string
      /** Absent: where the branch stands. */
      readonly sha?: CommitId | undefined
      readonly baseBranch?: string | undefined
    }) => Effect.Effect<
      { readonly workspacePath: string; readonly baseSha: CommitId },
      GitRelayError,
      Scope.Scope
    >
    /** The same patches on the same base are the same commits: doing it again changes nothing. */
    readonly pushBranchFromPatches: (params: {
      readonly repoUrl: string
      readonly baseSha?: CommitId | undefined
      readonly baseBranch?: string | undefined
      /** As `git format-patch` writes them, in order. */
      readonly patches: ReadonlyArray<string | Uint8Array>
      readonly branchName: BranchName
    }) => Effect.Effect<
      { readonly branchName: BranchName; readonly tip: CommitId; readonly unchanged: boolean },
      GitRelayError
    >
    readonly openPullRequest: (params: {
      readonly repoUrl: string
      readonly sourceBranch: BranchName
      readonly targetBranch: string
      readonly title: string
      readonly body: string
    }) => Effect.Effect<{ readonly prUrl: string }, GitRelayError>
  }
>()("@cogni/sandbox-git-relay/PatchRelay") {}

export const make = Effect.gen(function* () {
  const relay = yield* GitRelay
  const pullRequests = yield* PullRequests
  return PatchRelay.of({
    cloneToWorkspace: Effect.fn("PatchRelay.cloneToWorkspace")(function* ({ baseBranch, repoUrl, sha }) {
      const runId = yield* RunId.generate
      const clone = yield* relay.clone({ runId, url: repoUrl, baseBranch, baseCommit: sha })
      // Nothing of it is ever pushed: it goes with the scope.
      yield* relay.discard(runId)
      return { workspacePath: clone.workspacePath, baseSha: clone.baseCommit }
    }),
    pushBranchFromPatches: Effect.fn("PatchRelay.pushBranchFromPatches")(
      function* ({ baseBranch, baseSha, branchName, patches, repoUrl }) {
        const runId = yield* RunId.generate
        const clone = yield* relay.clone({
          runId,
          url: repoUrl,
          branch: branchName,
          baseBranch,
          baseCommit: baseSha
        })
        const pushed = yield* Effect.gen(function* () {
          yield* relay.apply(clone, patches)
          const collected = yield* relay.collect(clone)
          return yield* relay.push(yield* relay.check(collected))
        }).pipe(
          // Whoever brought the patches has them still.
          Effect.tapError(() => Effect.ignore(relay.discard(runId)))
        )
        return { branchName: pushed.branch, tip: pushed.tip, unchanged: pushed.unchanged }
      },
      (effect) => Effect.scoped(effect)
    ),
    openPullRequest: Effect.fn("PatchRelay.openPullRequest")(function* (params) {
      const { body, repoUrl: url, sourceBranch: branch, targetBranch: baseBranch, title } = params
      const { url: prUrl } = yield* openOrFind(
        pullRequests,
        { url, branch, baseBranch },
        { title, body, draft: true }
      ).pipe(Effect.mapError((reason) => new GitRelayError({ operation: "openPullRequest", reason })))
      return { prUrl }
    })
  })
})

export const layer: Layer.Layer<PatchRelay, never, GitRelay | PullRequests> = Layer.effect(PatchRelay, make)
