/**
 * Port to a repository for callers that carry patches instead of a workspace: a clone, a branch made of patches, a pull
 * request. It implements the port of the source documents on top of the relay, with the same policy.
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
    /** Creates a workspace at a commit, with the repository in `repo`. Both are removed when the scope closes. */
    readonly cloneToWorkspace: (params: {
      readonly repoUrl: string
      /** Defaults to the tip of the branch. */
      readonly sha?: CommitId | undefined
      readonly baseBranch?: string | undefined
    }) => Effect.Effect<
      { readonly workspacePath: string; readonly baseSha: CommitId },
      GitRelayError,
      Scope.Scope
    >
    /** Pushes a branch made of patches. Idempotent: the same patches on the same base give the same commits. */
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

const make = Effect.gen(function* () {
  const relay = yield* GitRelay
  const pullRequests = yield* PullRequests
  return PatchRelay.of({
    cloneToWorkspace: Effect.fn("PatchRelay.cloneToWorkspace")(function* ({ baseBranch, repoUrl, sha }) {
      const runId = yield* RunId.generate
      const clone = yield* relay.clone({ runId, url: repoUrl, baseBranch, baseCommit: sha })
      // It is never pushed, so it is removed with the scope.
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
          // The caller still has the patches.
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
