/**
 * The port through which an agent's commits leave the host.
 *
 *     clone ─► (run) ─► collect ─► check ─► push ─► openPullRequest
 *
 * Git is no field of a sandbox's spec: a caller clones before its run and pushes after it (`RelayRun` does both). No
 * implementation runs git in a tree that the agent could write: what comes out is a bundle, and a bundle is a hostile
 * stream. What was collected and not yet pushed survives the scope, the process and a refusal, until it is pushed or
 * discarded.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer, Schema, type Scope } from "effect"
import { GitRelayError, type Operation, RelayUnavailable } from "./GitRelayError.ts"
import { BaseBranch, BranchName, CommitId, type ObjectFormat, OriginUrl } from "./Refs.ts"

/** Where the repository lies in the sandbox. */
export const repositoryTarget = "/workspace/repo"

/** The deepest history that is fetched. */
export const depthMax = 10_000

/** A secret that must not be in what is pushed, by value. */
export const KnownSecret = Schema.Struct({ name: Schema.String, secret: Schema.String })

export const CloneRequest = Schema.Struct({
  runId: RunId,
  /** Without a credential: those belong to the relay. */
  url: OriginUrl,
  /** Absent: the one that the origin's HEAD names. */
  baseBranch: Schema.optional(BaseBranch),
  /** Start from this commit of the base branch. Absent: from where it stands. */
  baseCommit: Schema.optional(CommitId),
  /** Absent: `sandbox/<run id>`. */
  branch: Schema.optional(BranchName),
  /** Commits of history that the agent sees. Absent: 1. */
  depth: Schema.optional(
    Schema.Int.check(
      Schema.isBetween({ minimum: 1, maximum: depthMax }, { expected: `a depth from 1 to ${depthMax}` })
    )
  ),
  /** A pull request is wanted when it is pushed; until then it is not settled. */
  createPr: Schema.optional(Schema.Boolean),
  /** Where its commits are to go; kept with it for who takes it up. Absent: to a branch of the origin. */
  deliver: Schema.optional(Schema.Literals(["push", "patch"])),
  /** What a commit says of what is uncommitted when another process takes it up. Absent: it is not committed. */
  commitLeftovers: Schema.optional(Schema.String),
  /** What was planted for the run; kept with it until it is pushed. They open nothing. */
  canaries: Schema.optional(Schema.Array(KnownSecret))
})

export type CloneRequest = typeof CloneRequest.Type

/** Facts the host made before the run; none is ever read from the workspace again. */
export interface Clone {
  readonly request: CloneRequest
  readonly baseBranch: string
  readonly branch: BranchName
  readonly baseCommit: CommitId
  readonly objectFormat: ObjectFormat
  /** The directory of the host to give a run as its workspace; the repository is `repo` in it. */
  readonly workspacePath: string
  /** Where all that belongs to it lies, and stays when it is not pushed. */
  readonly directory: string
}

/** What may be wanted otherwise than it was at first. */
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

/** What a run left, in a repository of the host's own. Nothing has been judged yet. */
export interface Collected {
  readonly clone: Clone
  /** Absent: the agent committed nothing. */
  readonly tip: CommitId | undefined
  readonly bundle: CollectedBundle | undefined
}

/** What the policy let through; only this can be pushed. */
export interface Checked {
  readonly clone: Clone
  readonly tip: CommitId
  readonly bundle: CollectedBundle
  readonly commits: number
  readonly paths: number
  /** SHA-256 of the policy that let it through, in hexadecimal. */
  readonly policyDigest: string
}

export interface Pushed {
  readonly checked: Checked
  readonly branch: BranchName
  /** Where the branch stands now. */
  readonly tip: CommitId
  /** The branch was there already, with this very content. */
  readonly unchanged: boolean
}

export interface PullRequest {
  readonly url: string
  readonly number: number
  /** It was open already. */
  readonly existing: boolean
}

/** Absent parts are made from the commits. */
export interface PullRequestText {
  readonly title?: string | undefined
  readonly body?: string | undefined
  /** Absent: true. */
  readonly draft?: boolean | undefined
}

/** What a relay holds for a run that is over. */
export interface Kept {
  readonly runId: RunId
  readonly url: string
  readonly branch: BranchName
  /** How far it came: `cloned`, `collected`, `checked`, `pushed`. */
  readonly stage: string
  readonly directory: string
  readonly since: Date
  /** Its owner lives: it is not to be touched. */
  readonly inUse: boolean
}

/** What is being done, such as "receiving objects: 42%". */
export interface RelayProgress {
  readonly operation: Operation
  readonly text: string
}

/** Told of what takes long, while it happens. Nobody listens unless this is provided. */
export const RelayObserver = Context.Reference<(progress: RelayProgress) => Effect.Effect<void>>(
  "@cogni/sandbox-git-relay/RelayObserver",
  { defaultValue: () => () => Effect.void }
)

export class GitRelay extends Context.Service<
  GitRelay,
  {
    /**
     * A workspace at the tip of the base branch. When the scope closes, all of it goes, unless an agent had it and its
     * commits are neither pushed nor discarded.
     */
    readonly clone: (request: CloneRequest) => Effect.Effect<Clone, GitRelayError, Scope.Scope>
    /** Take up what an earlier process, or an earlier refusal, has left of a run. */
    readonly reopen: (
      runId: RunId,
      changed?: ReopenOptions
    ) => Effect.Effect<Clone, GitRelayError, Scope.Scope>
    /**
     * Take what was committed out of the workspace, inside a container, as a bundle. What is checked out in the end
     * counts where the run's own branch has no commit. `commitLeftovers` commits, in a container, what was not: for an
     * agent that was ended before it could.
     */
    readonly collect: (
      clone: Clone,
      options?: { readonly commitLeftovers?: string | undefined }
    ) => Effect.Effect<Collected, GitRelayError>
    /** Patches, as `git format-patch` writes them, onto the workspace: in a container, by the agent's user. */
    readonly apply: (
      clone: Clone,
      patches: ReadonlyArray<string | Uint8Array>
    ) => Effect.Effect<void, GitRelayError>
    /** Hold every commit, against every parent, to the policy. What has no tip has nothing to check: see `discard`. */
    readonly check: (collected: Collected) => Effect.Effect<Checked, GitRelayError>
    /** The commits as `git format-patch` writes them, in one mbox. */
    readonly patch: (checked: Checked) => Effect.Effect<Uint8Array, GitRelayError>
    /** One commit id to one branch of one URL; never by force. Doing it again changes nothing. */
    readonly push: (checked: Checked) => Effect.Effect<Pushed, GitRelayError>
    /** As a draft. Where one is open already, it is that one. */
    readonly openPullRequest: (
      pushed: Pushed,
      text?: PullRequestText
    ) => Effect.Effect<PullRequest, GitRelayError>
    /** Nothing of it is wanted any more: it goes with the scope, or now where that is closed. */
    readonly discard: (runId: RunId) => Effect.Effect<void, GitRelayError>
    /** What is not pushed yet, oldest first. */
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
  discard: () => refuse("discard"),
  kept: refuse("kept")
})
