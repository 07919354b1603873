/**
 * Values that the steps of a relay take and return: clones, bundles, commits and pull requests.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { Schema } from "effect"
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

/** Message of the commit that the relay makes of uncommitted changes. */
export const defaultUncommittedMessage = "Changes that the agent left uncommitted"

/** Program in the runtime image that runs a command in the repository, and commits uncommitted changes on request. */
export const repositoryProgram = "/usr/local/bin/cogni-repo"
