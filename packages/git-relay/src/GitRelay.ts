/**
 * Port through which an agent's commits leave the host.
 *
 *     clone ─► (run) ─► collect ─► check ─► push ─► openPullRequest
 *
 * Git is not a field of a sandbox's spec: a caller clones before its run and pushes after it (`RelayRun` does both). No
 * implementation runs git in a tree that the agent could write. The commits leave the workspace as a bundle, which is
 * treated as a hostile stream. Collected commits survive the end of the scope, the end of the process and a refusal,
 * until they are pushed or discarded.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer, type Scope } from "effect"
import { GitRelayError, type Operation, RelayUnavailable } from "./GitRelayError.ts"
import type { CloneRequest } from "./RelaySteps.ts"
import {
  type Clone,
  type ReopenOptions,
  type Collected,
  type Checked,
  type Pushed,
  type PullRequest,
  type PullRequestText,
  type Kept
} from "./RelaySteps.ts"

/** Progress of an operation, such as "receiving objects: 42%". */
export interface RelayProgress {
  readonly operation: Operation
  readonly text: string
}

/** Receives the progress of long operations. By default, progress is ignored. */
export const RelayObserver = Context.Reference<(progress: RelayProgress) => Effect.Effect<void>>(
  "@cogni/sandbox-git-relay/RelayObserver",
  { defaultValue: () => () => Effect.void }
)

export class GitRelay extends Context.Service<
  GitRelay,
  {
    /**
     * Creates a workspace at the base commit. When the scope closes, it is removed if the run was delivered or
     * discarded, and kept otherwise.
     */
    readonly clone: (request: CloneRequest) => Effect.Effect<Clone, GitRelayError, Scope.Scope>
    /** Resumes a run that an earlier process or an earlier refusal left behind. */
    readonly reopen: (
      runId: RunId,
      changed?: ReopenOptions
    ) => Effect.Effect<Clone, GitRelayError, Scope.Scope>
    /**
     * Exports the commits from the workspace as a bundle, in a container. If the run's own branch has no commits, the
     * checked-out commit is exported. `uncommittedMessage` first commits uncommitted changes with this message, in a
     * container, for an agent that was stopped before it could commit.
     */
    readonly collect: (
      clone: Clone,
      options?: { readonly uncommittedMessage?: string | undefined }
    ) => Effect.Effect<Collected, GitRelayError>
    /** Applies patches, as `git format-patch` writes them, to the workspace: in a container, as the agent's user. */
    readonly apply: (
      clone: Clone,
      patches: ReadonlyArray<string | Uint8Array>
    ) => Effect.Effect<void, GitRelayError>
    /** Checks every commit against the policy, relative to each of its parents. Fails without a tip; see `discard`. */
    readonly check: (collected: Collected) => Effect.Effect<Checked, GitRelayError>
    /** Returns the commits as `git format-patch` writes them, in one mbox. */
    readonly patch: (checked: Checked) => Effect.Effect<Uint8Array, GitRelayError>
    /** Pushes one commit ID to one branch of one URL, never by force. Idempotent. */
    readonly push: (checked: Checked) => Effect.Effect<Pushed, GitRelayError>
    /** Opens a pull request, by default as a draft, or returns the one that is already open. */
    readonly openPullRequest: (
      pushed: Pushed,
      text?: PullRequestText
    ) => Effect.Effect<PullRequest, GitRelayError>
    /** Returns the pull request that is open for the branch, if there is one. */
    readonly findPullRequest: (pushed: Pushed) => Effect.Effect<PullRequest | undefined, GitRelayError>
    /** Drops a run: when its scope closes, or immediately if the scope is already closed. */
    readonly discard: (runId: RunId) => Effect.Effect<void, GitRelayError>
    /** Runs that are not delivered yet, oldest first. */
    readonly kept: Effect.Effect<ReadonlyArray<Kept>, GitRelayError>
  }
>()("@cogni/sandbox-git-relay/GitRelay") {}

const refuse = (operation: Operation) =>
  Effect.suspend(() => Effect.fail(new GitRelayError({ operation, reason: new RelayUnavailable({}) })))

/** Refuses every operation. */
export const layerNoop: Layer.Layer<GitRelay> = Layer.succeed(GitRelay, {
  clone: () => refuse("clone"),
  reopen: () => refuse("reopen"),
  collect: () => refuse("collect"),
  apply: () => refuse("apply"),
  check: () => refuse("check"),
  patch: () => refuse("patch"),
  push: () => refuse("push"),
  openPullRequest: () => refuse("openPullRequest"),
  findPullRequest: () => refuse("openPullRequest"),
  discard: () => refuse("discard"),
  kept: refuse("kept")
})
