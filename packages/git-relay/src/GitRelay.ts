/**
 * The port through which an agent's commits leave the host.
 *
 *     clone ─► (run) ─► collect ─► check ─► push ─► openPullRequest
 *
 * Git is no field of a sandbox's spec: a caller clones before its run and pushes after it. Whatever implements this
 * never runs git in a tree that the agent could write: what comes out is a bundle, and a bundle is a hostile stream.
 * Here is the port only; `layerNoop` refuses.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer, Schema, type Scope } from "effect"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export const CommitId = Schema.String.check(
  Schema.isPattern(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/u, { expected: "a whole commit id, SHA-1 or SHA-256" })
).pipe(Schema.brand("@cogni/sandbox-git-relay/CommitId"))

/** @category models */
export type CommitId = typeof CommitId.Type

/**
 * A branch that runs may have: below `sandbox/`, of a small alphabet. `git check-ref-format` is not enough: it accepts
 * `$(id)` and `a;b`.
 *
 * @category models
 */
export const BranchName = Schema.String.check(
  Schema.isPattern(/^sandbox\/(?!.*\.\.)(?!.*\.lock$)[A-Za-z0-9][A-Za-z0-9._-]{0,62}[A-Za-z0-9_-]$/u, {
    expected: "sandbox/ and 2 to 64 letters, digits, dots, underscores and hyphens"
  })
).pipe(Schema.brand("@cogni/sandbox-git-relay/BranchName"))

/** @category models */
export type BranchName = typeof BranchName.Type

/** A branch of the origin that a run starts from, and never writes to. @category models */
export const BaseBranch = Schema.String.check(
  Schema.isPattern(
    /^(?!.*(?:\.\.|\/\/|\.lock(?:\/|$)|\/\.|\.\/))[A-Za-z0-9][A-Za-z0-9._/-]{0,199}(?<![./])$/u,
    {
      expected: "a plain branch name, such as main or release/1.2"
    }
  )
)

/** @category models */
export const CloneRequest = Schema.Struct({
  runId: RunId,
  /** Without a credential: those belong to the relay. */
  url: Schema.String.check(
    Schema.isPattern(/^https:\/\/[A-Za-z0-9.-]+(?::\d{1,5})?\/[A-Za-z0-9._~/-]+$/u, {
      expected: "an https URL without a credential, a query or a fragment"
    })
  ),
  baseBranch: BaseBranch,
  /** Absent: `sandbox/<run id>`. */
  branch: Schema.optionalKey(BranchName)
})

/** @category models */
export type CloneRequest = typeof CloneRequest.Type

/** Facts the host made before the run; none is ever read from the workspace again. @category models */
export interface Clone {
  readonly request: CloneRequest
  readonly branch: BranchName
  readonly baseCommit: CommitId
  /** The directory of the host to give a run as its workspace. */
  readonly workspacePath: string
}

/** What a run left, in a repository of the host's own. Nothing has been judged yet. @category models */
export interface Collected {
  readonly clone: Clone
  /** Absent: the agent committed nothing. */
  readonly tip: CommitId | undefined
  readonly bundlePath: string | undefined
  readonly bundleBytes: number
}

/** What the policy let through; only this can be pushed. @category models */
export interface Checked {
  readonly collected: Collected
  readonly tip: CommitId
  readonly commits: number
  readonly paths: number
}

/** @category models */
export interface Pushed {
  readonly branch: BranchName
  readonly tip: CommitId
  /** The branch was there already, at this very commit. */
  readonly unchanged: boolean
}

/** @category models */
export interface PullRequest {
  readonly url: string
  readonly number: number
  /** It was open already. */
  readonly existing: boolean
}

// -----------------------------------------------------------------------------
// errors
// -----------------------------------------------------------------------------

/** The origin cannot be used as asked. @category errors */
export class OriginUnavailable extends Schema.TaggedError<OriginUnavailable>()("OriginUnavailable", {
  detail: Schema.String,
  remedy: Schema.String,
  isRetryable: Schema.Boolean
}) {
  override get message(): string {
    return `the origin ${this.detail}. ${this.remedy}`
  }
}

/** What came out of the workspace is no bundle that may be opened. @category errors */
export class BundleRefused extends Schema.TaggedError<BundleRefused>()("BundleRefused", {
  detail: Schema.String,
  keptAt: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return `what the agent committed cannot be taken over: ${this.detail}. It is kept at ${this.keptAt}`
  }
}

/** A rule forbids what was committed. @category errors */
export class PolicyRefused extends Schema.TaggedError<PolicyRefused>()("PolicyRefused", {
  rule: Schema.String,
  commit: Schema.optionalKey(CommitId),
  path: Schema.optionalKey(Schema.String),
  remedy: Schema.String,
  keptAt: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    const where = [this.path, this.commit?.slice(0, 12)].filter((part) => part !== undefined).join(" in ")
    return `the policy "${this.rule}" refuses ${where === "" ? "the commits" : where}. ${this.remedy}. They are kept at ${this.keptAt}`
  }
}

/** The origin did not take the branch, which is kept. @category errors */
export class PushRefused extends Schema.TaggedError<PushRefused>()("PushRefused", {
  branch: BranchName,
  detail: Schema.String,
  keptAt: Schema.String,
  isRetryable: Schema.Boolean
}) {
  override get message(): string {
    return `${this.branch} was not pushed: ${this.detail}. The commits are kept at ${this.keptAt}`
  }
}

/** There is nothing behind the port. @category errors */
export class RelayUnavailable extends Schema.TaggedError<RelayUnavailable>()("RelayUnavailable", {}) {
  readonly isRetryable = false
  override get message(): string {
    return "no git relay is configured, so nothing is cloned and nothing leaves. Provide a GitRelay layer, or mount a directory as the workspace"
  }
}

/** @category models */
export const GitRelayReason = Schema.Union([
  OriginUnavailable,
  BundleRefused,
  PolicyRefused,
  PushRefused,
  RelayUnavailable
])

/** The only error of `GitRelay`. No message of it holds a credential. @category errors */
export class GitRelayError extends Schema.TaggedError<GitRelayError>()("GitRelayError", {
  operation: Schema.Literals(["clone", "collect", "check", "push", "openPullRequest"]),
  reason: GitRelayReason
}) {
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  override get message(): string {
    return `${this.operation}: ${this.reason.message}`
  }
}

// -----------------------------------------------------------------------------
// service
// -----------------------------------------------------------------------------

/** @category services */
export class GitRelay extends Context.Service<
  GitRelay,
  {
    /** A workspace at the tip of the base branch. It and the relay's own repository end with the scope. */
    readonly clone: (request: CloneRequest) => Effect.Effect<Clone, GitRelayError, Scope.Scope>
    /** Take what was committed out of the workspace, inside a container, as a bundle. */
    readonly collect: (clone: Clone) => Effect.Effect<Collected, GitRelayError>
    /** Hold every commit, against every parent, to the policy. */
    readonly check: (collected: Collected) => Effect.Effect<Checked, GitRelayError>
    /** One commit id to one branch of one URL; never by force. Doing it again changes nothing. */
    readonly push: (checked: Checked) => Effect.Effect<Pushed, GitRelayError>
    /** As a draft. Where one is open already, it is that one. */
    readonly openPullRequest: (
      pushed: Pushed,
      text: { readonly title: string; readonly body: string }
    ) => Effect.Effect<PullRequest, GitRelayError>
  }
>()("@cogni/sandbox-git-relay/GitRelay") {}

// -----------------------------------------------------------------------------
// layers
// -----------------------------------------------------------------------------

const refuse = (operation: GitRelayError["operation"]) =>
  Effect.suspend(() => Effect.fail(new GitRelayError({ operation, reason: new RelayUnavailable({}) })))

/** Refuses every operation. @category layers */
export const layerNoop: Layer.Layer<GitRelay> = Layer.succeed(GitRelay, {
  clone: () => refuse("clone"),
  collect: () => refuse("collect"),
  check: () => refuse("check"),
  push: () => refuse("push"),
  openPullRequest: () => refuse("openPullRequest")
})
