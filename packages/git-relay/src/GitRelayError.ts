/**
 * Errors between an origin and a branch. Every message says what happened and what to do. None contains a credential:
 * text from a server or an agent is stripped of secrets and control characters before it gets here.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { Effect, Schema } from "effect"
import { BranchName, CommitId } from "./Refs.ts"

/** Whether the same operation may succeed later without any change. */
const isRetryable = Schema.Boolean.pipe(Schema.withConstructorDefault(Effect.succeed(false)))

/** Description of the failure, as the end of a sentence, and what to do. */
const failure = { detail: Schema.String, remedy: Schema.String, isRetryable }

/** Why an origin cannot be used. */
export const OriginFault = Schema.Literals([
  "unknown_host",
  "unreachable",
  "tls",
  "redirected",
  "unauthorized",
  "forbidden",
  "not_found",
  "empty",
  "base_missing",
  "base_unnamed",
  "unsupported",
  "timeout",
  "other"
])

export type OriginFault = typeof OriginFault.Type

/** The origin cannot be used as requested. */
export class OriginUnavailable extends Schema.TaggedError<OriginUnavailable>()("OriginUnavailable", {
  fault: OriginFault,
  ...failure
}) {
  override get message(): string {
    return `the origin ${this.detail}. ${this.remedy}`
  }
}

/** The relay's own directory, cache or container failed. */
export class RelayFailed extends Schema.TaggedError<RelayFailed>()("RelayFailed", failure) {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** No credential is available. */
export class CredentialsUnavailable extends Schema.TaggedError<CredentialsUnavailable>()(
  "CredentialsUnavailable",
  failure
) {
  override get message(): string {
    return `no git credential: ${this.detail}. ${this.remedy}`
  }
}

/** The grant or the connection does not allow the use. No credential was looked at. */
export class CredentialsDenied extends Schema.TaggedError<CredentialsDenied>()("CredentialsDenied", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** The export from the workspace is not a valid bundle. */
export class BundleRefused extends Schema.TaggedError<BundleRefused>()("BundleRefused", {
  detail: Schema.String,
  keptAt: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    return `the agent's commits cannot be imported: ${this.detail}. They are kept at ${this.keptAt}`
  }
}

/** A patch does not apply to the base. */
export class PatchRefused extends Schema.TaggedError<PatchRefused>()("PatchRefused", failure) {
  override get message(): string {
    return `the patches cannot be applied: ${this.detail}. ${this.remedy}`
  }
}

/** One violation of a policy rule. */
export const Violation = Schema.Struct({
  /** Name of the rule, such as `protected-path`. */
  rule: Schema.String,
  commit: Schema.optionalKey(CommitId),
  /** Safe to display: unprintable characters are escaped. */
  path: Schema.optionalKey(Schema.String),
  detail: Schema.String,
  /** Change that the agent or the owner of the policy must make. */
  remedy: Schema.String
})

export type Violation = typeof Violation.Type

/** Describes a violation in one line. */
export const describeViolation = ({ commit, detail, path, remedy, rule }: Violation): string => {
  const where = [path, commit?.slice(0, 12)].filter((part) => part !== undefined).join(" in ")
  return `${rule}${where === "" ? "" : `, ${where}`}: ${detail}. ${remedy}`
}

/** The policy refuses the commits. */
export class PolicyRefused extends Schema.TaggedError<PolicyRefused>()("PolicyRefused", {
  /** The first violations; never empty. */
  violations: Schema.Array(Violation),
  /** Number of all violations, or a lower bound. */
  violationsTotal: Schema.Int,
  keptAt: Schema.String
}) {
  readonly isRetryable = false
  override get message(): string {
    const [first] = this.violations
    const more = this.violationsTotal - 1
    return (
      `the policy refuses the commits: ${first === undefined ? "unknown" : describeViolation(first)}` +
      `${more < 1 ? "" : ` And ${more} more.`} They are kept at ${this.keptAt}`
    )
  }
}

/** Why an origin did not accept a branch. */
export const PushFault = Schema.Literals([
  "branch_exists",
  "branch_protected",
  "raced",
  "base_vanished",
  "unauthorized",
  "forbidden",
  "not_found",
  "rejected",
  "unreachable",
  "timeout"
])

export type PushFault = typeof PushFault.Type

/** The origin did not accept the branch. The commits are kept. */
export class PushRefused extends Schema.TaggedError<PushRefused>()("PushRefused", {
  fault: PushFault,
  branch: BranchName,
  keptAt: Schema.String,
  ...failure
}) {
  override get message(): string {
    return `${this.branch} was not pushed: ${this.detail}. ${this.remedy}. The commits are kept at ${this.keptAt}`
  }
}

/** The branch is pushed, but the pull request could not be opened. */
export class PullRequestFailed extends Schema.TaggedError<PullRequestFailed>()("PullRequestFailed", failure) {
  override get message(): string {
    return `the branch is pushed, but there is no pull request: ${this.detail}. ${this.remedy}`
  }
}

/** The run is not kept, is already kept, or is in use. */
export class NotKept extends Schema.TaggedError<NotKept>()("NotKept", { runId: RunId, ...failure }) {
  override get message(): string {
    return `${this.runId}: ${this.detail}. ${this.remedy}`
  }
}

/** No relay is configured. */
export class RelayUnavailable extends Schema.TaggedError<RelayUnavailable>()("RelayUnavailable", {}) {
  readonly isRetryable = false
  override get message(): string {
    return "no git relay is configured, so nothing can be cloned or pushed. Provide a GitRelay layer, or mount a directory as the workspace"
  }
}

export const GitRelayReason = Schema.Union([
  OriginUnavailable,
  RelayFailed,
  CredentialsUnavailable,
  CredentialsDenied,
  BundleRefused,
  PatchRefused,
  PolicyRefused,
  PushRefused,
  PullRequestFailed,
  NotKept,
  RelayUnavailable
])

export type GitRelayReason = typeof GitRelayReason.Type

export const Operation = Schema.Literals([
  "clone",
  "reopen",
  "collect",
  "apply",
  "check",
  "patch",
  "push",
  "openPullRequest",
  "discard",
  "kept"
])

export type Operation = typeof Operation.Type

/** The only error of `GitRelay`. */
export class GitRelayError extends Schema.TaggedError<GitRelayError>()("GitRelayError", {
  operation: Operation,
  runId: Schema.optional(RunId),
  reason: GitRelayReason
}) {
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  override get message(): string {
    return `${this.operation}: ${this.reason.message}`
  }
}
