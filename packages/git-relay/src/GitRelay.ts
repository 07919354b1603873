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
import { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer, Schema, type Scope } from "effect"
import { GitRelayError, type Operation, RelayUnavailable } from "./GitRelayError.ts"
import { BaseBranch, BranchName, CommitId, type ObjectFormat, OriginUrl } from "./Refs.ts"

/** Path of the repository in the sandbox. */
export const repositoryTarget = "/workspace/repo"

/** Maximum depth of the fetched history, in commits. */
export const depthMax = 10_000

/** A secret, by value, that must not occur in pushed commits. */
export const KnownSecret = Schema.Struct({ name: Schema.String, secret: Schema.String })

export const CloneRequest = Schema.Struct({
  runId: RunId,
  /** Must not contain a credential; the relay provides credentials. */
  url: OriginUrl,
  /** Branch to start from. Defaults to the branch that the origin's HEAD names. */
  baseBranch: Schema.optional(BaseBranch),
  /** Commit of the base branch to start from. Defaults to its tip. */
  baseCommit: Schema.optional(CommitId),
  /** Branch to push to. Defaults to `sandbox/<run id>`. */
  branch: Schema.optional(BranchName),
  /** Commits of history that the agent sees. Defaults to 1. */
  depth: Schema.optional(
    Schema.Int.check(
      Schema.isBetween({ minimum: 1, maximum: depthMax }, { expected: `a depth from 1 to ${depthMax}` })
    )
  ),
  /** Whether a pull request is opened after the push. If so, the run is kept until it is open. */
  createPr: Schema.optional(Schema.Boolean),
  /** Where the commits go; stored for a later retry. Defaults to a branch of the origin. */
  deliver: Schema.optional(Schema.Literals(["push", "patch"])),
  /**
   * Commit message for uncommitted changes if the run fails or another process resumes it. If absent, they are not
   * committed.
   */
  uncommittedMessage: Schema.optional(Schema.String),
  /** Canaries of the run; stored with it until it is pushed. They grant no access. */
  canaries: Schema.optional(Schema.Array(KnownSecret))
})

export type CloneRequest = typeof CloneRequest.Type

/** Facts that the host recorded before the run. None of them is read from the workspace later. */
export interface Clone {
  readonly request: CloneRequest
  readonly baseBranch: string
  readonly branch: BranchName
  readonly baseCommit: CommitId
  readonly objectFormat: ObjectFormat
  /** Host directory to use as the workspace of a run; the repository is in `repo` below it. */
  readonly workspacePath: string
  /** Host directory of everything that belongs to the clone. It is kept until the run is delivered or discarded. */
  readonly directory: string
}

/** Settings that can change when a run is resumed. */
export interface ReopenOptions {
  readonly branch?: BranchName | undefined
  readonly createPr?: boolean | undefined
}

/** A bundle on the host's disk. */
export interface CollectedBundle {
  readonly path: string
  readonly bytes: number
  /** SHA-256, in hexadecimal. */
  readonly digest: string
}

/** Commits of a run, imported into a repository of the host. They are not checked yet. */
export interface Collected {
  readonly clone: Clone
  /** `undefined` if the agent committed nothing. */
  readonly tip: CommitId | undefined
  readonly bundle: CollectedBundle | undefined
}

/** Commits that passed the policy. Only these can be pushed. */
export interface Checked {
  readonly clone: Clone
  readonly tip: CommitId
  readonly bundle: CollectedBundle
  readonly commits: number
  readonly paths: number
  /** SHA-256 of the policy that they passed, in hexadecimal. */
  readonly policyDigest: string
}

export interface Pushed {
  readonly checked: Checked
  readonly branch: BranchName
  /** Commit that the branch now points to. */
  readonly tip: CommitId
  /** `true` if the branch already existed with the same content. */
  readonly unchanged: boolean
}

export interface PullRequest {
  readonly url: string
  readonly number: number
  /** Whether it was already open. */
  readonly existing: boolean
}

/** Title and body of a pull request. Absent parts are generated from the commits. */
export interface PullRequestText {
  readonly title?: string | undefined
  readonly body?: string | undefined
  /** Defaults to true. */
  readonly draft?: boolean | undefined
}

/** A run that a relay keeps until it is delivered or discarded. */
export interface Kept {
  readonly runId: RunId
  readonly url: string
  readonly branch: BranchName
  /** Stage that the run has reached: `cloning`, `cloned`, `collected`, `checked` or `pushed`. */
  readonly stage: string
  readonly directory: string
  readonly since: Date
  /** Whether a live process is working on it. Such a run must not be changed. */
  readonly inUse: boolean
}

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
