/**
 * The reasons of a `SandboxError`. A broken limit carries the partial result; every other reason is a fault with a
 * remedy.
 */
import * as Schema from "effect/Schema"
import { describeExhaustion } from "./BudgetWords.ts"
import { HostProblem, problemOf } from "./HostFault.ts"
import { shortened } from "./internal/Shortened.ts"
import { named } from "./Remedy.ts"
import { Output } from "./RunResult.ts"
import { Evidence, Exhaustion, Peak, formatBytes } from "./RunFigures.ts"

/** Coarse error code of the source documents, in addition to the finer reason. */
export type ErrorCode =
  | "timeout"
  | "oom_killed"
  | "container_failed"
  | "internal"
  | "invalid_request"
  | "insufficient_credits"
  | "rate_limit"

/** Partial result of a run whose limit was broken. */
export const Partial = Schema.Struct({
  /** Exit code of the agent or command, if one was reported. */
  exitCode: Schema.optionalKey(Schema.Int),
  output: Output,
  peak: Peak
})

export type Partial = typeof Partial.Type

// `code` is a getter: OpenTelemetry takes an own field of that name as the type of an exception, instead of its class.

/** Fields of a fault: what failed, and what to do. */
const told = { detail: Schema.String, remedy: Schema.String }

/** The agent ran longer than `runtimeSecondsMax`. */
export class TimedOut extends Schema.TaggedError<TimedOut>()("TimedOut", {
  runtimeSecondsMax: Schema.Int,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "timeout"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the agent was still running after ${this.runtimeSecondsMax} s. Raise limits.runtimeSecondsMax or give it less to do`
  }
}

/** The kernel killed a process of the sandbox, the agent or a child of it, because memory ran out. */
export class OomKilled extends Schema.TaggedError<OomKilled>()("OomKilled", {
  memoryBytesMax: Schema.Int,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "oom_killed"
  }
  readonly isRetryable = false
  override get message(): string {
    const peak = this.partial.peak.memoryBytes
    return (
      `the kernel killed ${this.partial.exitCode === 137 || this.partial.exitCode === undefined ? "the agent" : "a process of the agent"} at the memory limit of ${formatBytes(this.memoryBytesMax)}` +
      `${peak === undefined ? "" : ` (peak ${formatBytes(peak)})`}. Raise limits.memoryBytesMax; files in /tmp count as memory`
    )
  }
}

/** The kernel refused to create another process in the sandbox. */
export class PidsExhausted extends Schema.TaggedError<PidsExhausted>()("PidsExhausted", {
  processesMax: Schema.Int,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the sandbox asked for more than its ${this.processesMax} processes and was refused. Raise limits.processesMax, or look for a fork bomb`
  }
}

/** The agent wrote more to stdout and stderr than the run may. */
export class OutputLimitExceeded extends Schema.TaggedError<OutputLimitExceeded>()("OutputLimitExceeded", {
  outputBytesMax: Schema.Int,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the agent wrote more than ${formatBytes(this.outputBytesMax)} to stdout and stderr and was stopped. Write results to a file, or raise limits.outputBytesMax`
  }
}

/** The run added more to its workspace than it may. */
export class DiskFull extends Schema.TaggedError<DiskFull>()("DiskFull", {
  workspaceBytesMax: Schema.Int,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    const peak = this.partial.peak.workspaceBytes
    return `the run added ${peak === undefined ? "more" : formatBytes(peak)} to its workspace, over its limit of ${formatBytes(this.workspaceBytesMax)}, and was stopped. Raise limits.workspaceBytesMax`
  }
}

/** A model budget is spent, and the run ended because of it. */
export class BudgetExceeded extends Schema.TaggedError<BudgetExceeded>()("BudgetExceeded", {
  ...Exhaustion.fields,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    return `${describeExhaustion(this)}. Raise llm.budget, or give the agent less to do`
  }
}

/** A canary was seen leaving the sandbox, and the run was stopped. */
export class ExfiltrationSuspected extends Schema.TaggedError<ExfiltrationSuspected>()(
  "ExfiltrationSuspected",
  { evidence: Evidence, partial: Partial }
) {
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    const { canary, channel, encoding } = this.evidence
    return `the agent sent a planted secret out: ${canary} (${encoding}) in its ${channel.replace("_", " ")}, and was stopped. Read the run's audit before you run its prompt or workspace again`
  }
}

/** The spec is invalid. */
export class InvalidSpec extends Schema.TaggedError<InvalidSpec>()("InvalidSpec", {
  problems: Schema.Array(Schema.String)
}) {
  get code(): ErrorCode {
    return "invalid_request"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the spec is refused: ${this.problems.join("; ")}`
  }
}

/** Another run has, or had, this id. */
export class RunIdInUse extends Schema.TaggedError<RunIdInUse>()("RunIdInUse", { runId: Schema.String }) {
  get code(): ErrorCode {
    return "invalid_request"
  }
  readonly isRetryable = false
  override get message(): string {
    return `run id ${this.runId} is taken. An ID belongs to one run permanently: leave it out to get a new one`
  }
}

/** The run store cannot be reached, so nothing was started. The message never contains a password. */
export class StoreUnavailable extends Schema.TaggedError<StoreUnavailable>()("StoreUnavailable", told) {
  get code(): ErrorCode {
    return "internal"
  }
  readonly isRetryable = true
  override get message(): string {
    return `the run store ${this.detail}. ${this.remedy}`
  }
}

/** Fields of a refusal because of the account that pays: which one, why, and what to do. */
const refusedAccount = {
  billingAccountId: Schema.String,
  ...told,
  /** Seconds until the limit may allow the run, if known: the rest of the day or month, or a moment. */
  retrySeconds: Schema.optionalKey(Schema.Int)
}

/** The account that pays cannot pay for what the run may spend. Nothing was made. */
export class InsufficientCredits extends Schema.TaggedError<InsufficientCredits>()(
  "InsufficientCredits",
  refusedAccount
) {
  get code(): ErrorCode {
    return "insufficient_credits"
  }
  readonly isRetryable = false
  override get message(): string {
    return `account ${this.billingAccountId} cannot pay for this run: ${this.detail}. ${this.remedy}`
  }
}

/** The account that pays has as many runs as it may have at once. Nothing was made. */
export class AccountBusy extends Schema.TaggedError<AccountBusy>()("AccountBusy", refusedAccount) {
  get code(): ErrorCode {
    return "rate_limit"
  }
  readonly isRetryable = true
  override get message(): string {
    return `account ${this.billingAccountId} may not start another run now: ${this.detail}. ${this.remedy}`
  }
}

/** The engine cannot be reached, or went away during the run. */
export class RuntimeUnavailable extends Schema.TaggedError<RuntimeUnavailable>()("RuntimeUnavailable", {
  ...told,
  /** True if nothing answers at its address. Absent if the engine was slow, disconnected or sent something invalid. */
  isAbsent: Schema.optionalKey(Schema.Boolean),
  /** True if only a change of the configuration or of the engine helps: an invalid address, no permission. */
  isPermanent: Schema.optionalKey(Schema.Boolean)
}) {
  get code(): ErrorCode {
    return "internal"
  }
  get isRetryable(): boolean {
    return this.isPermanent !== true
  }
  override get message(): string {
    return `the container engine ${this.detail}. ${this.remedy}`
  }
}

/** The engine does not have the image. A run pulls none, unless its runtime has a key to verify images with. */
export class ImageNotFound extends Schema.TaggedError<ImageNotFound>()("ImageNotFound", {
  image: Schema.String
}) {
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    return `there is no image ${this.image} on this engine. ${this.remedy}`
  }
  /** How to get the image: ours can be built by name. */
  get remedy(): string {
    const [, name] = /^cogni-sandbox\/([a-z][a-z0-9-]*):/u.exec(this.image) ?? []
    return name === undefined
      ? "Build it or pull it first; a run pulls no image by default"
      : `Build it: npx @cogni/sandbox-images --only ${name}`
  }
}

/** The engine refused the container or lost it. */
export class ContainerFailed extends Schema.TaggedError<ContainerFailed>()("ContainerFailed", {
  operation: Schema.String,
  ...told
}) {
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    return `${this.operation} failed: ${this.detail}. ${this.remedy}`
  }
}

/** The model proxy could not be started, or failed during the run. */
export class ProxyFailed extends Schema.TaggedError<ProxyFailed>()("ProxyFailed", {
  ...told,
  /** The agent's partial result, if it had started. */
  partial: Schema.optionalKey(Partial)
}) {
  get code(): ErrorCode {
    return "internal"
  }
  readonly isRetryable = true
  override get message(): string {
    return `the model proxy failed: ${this.detail}. ${this.remedy}`
  }
}

/** Mismatches that an error names. A sandbox chooses how many its report has. */
const mismatchesMax = 20

/** Maximum length of one of them. The values in it are shorter. */
const mismatchCharactersMax = 1000

/** The sandbox isolation check failed, so the agent was not started. */
export class PostureMismatch extends Schema.TaggedError<PostureMismatch>()("PostureMismatch", {
  mismatches: Schema.Array(Schema.String)
}) {
  /** Returns the error of these mismatches. It names the first 20, and how many more there are. */
  static of(found: ReadonlyArray<string>): PostureMismatch {
    const more = found.length - mismatchesMax
    return new PostureMismatch({
      mismatches: [
        ...found.slice(0, mismatchesMax).map((sentence) => shortened(sentence, mismatchCharactersMax)),
        ...(more > 0 ? [`and ${more} more`] : [])
      ]
    })
  }
  get code(): ErrorCode {
    return "container_failed"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the sandbox isolation check failed, so the agent was not started: ${this.mismatches.join("; ")}. Check the engine's configuration (${named("DockerDoctor")})`
  }
}

/**
 * The host cannot use a directory of its own: for records, claims, audits, or temporary files.
 *
 * The fault is the operator's, never the caller's: a server answers it with a 5xx status.
 */
export class HostFailed extends Schema.TaggedError<HostFailed>()("HostFailed", {
  path: Schema.String,
  problem: HostProblem,
  ...told
}) {
  get code(): ErrorCode {
    return "internal"
  }
  readonly isRetryable = false
  /** Creates the error from what a file operation threw. On a full disk, the remedy is to free space. */
  static of(path: string, what: string, thrown: unknown, remedy: string): HostFailed {
    const problem = problemOf(thrown)
    const message = thrown instanceof Error ? thrown.message : String(thrown)
    return new HostFailed({
      path,
      problem,
      detail: `${what}: ${message}`,
      remedy: problem === "no_space" ? `Free disk space for it. ${remedy}` : remedy
    })
  }
  override get message(): string {
    return `this host failed: ${this.path} ${this.detail}. ${this.remedy}`
  }
}

/**
 * An option of this host is invalid, such as the URL of the model API.
 *
 * The fault is the operator's. Layers check their options when they are built, so that no run begins with them.
 */
export class Misconfigured extends Schema.TaggedError<Misconfigured>()("Misconfigured", {
  /** Name of the option, as its library calls it. */
  option: Schema.String,
  ...told
}) {
  get code(): ErrorCode {
    return "internal"
  }
  readonly isRetryable = false
  override get message(): string {
    return `${this.option} ${this.detail}. ${this.remedy}`
  }
}

/** The workspace that the spec names cannot be used. */
export class WorkspaceFailed extends Schema.TaggedError<WorkspaceFailed>()("WorkspaceFailed", {
  path: Schema.String,
  ...told
}) {
  get code(): ErrorCode {
    return "invalid_request"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the workspace ${this.path} ${this.detail}. ${this.remedy}`
  }
}

/** A command exceeded its time limit, and was ended with all its children. */
export class CommandTimedOut extends Schema.TaggedError<CommandTimedOut>()("CommandTimedOut", {
  timeoutSecondsMax: Schema.Finite,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "timeout"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the command was still running after ${this.timeoutSecondsMax} s and was ended, with all its children. Give it more time, or start it as a background process`
  }
}

/** The command could not be started as requested. */
export class CommandRefused extends Schema.TaggedError<CommandRefused>()("CommandRefused", told) {
  get code(): ErrorCode {
    return "invalid_request"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the command was not started: ${this.detail}. ${this.remedy}`
  }
}

/** The stream that a command reads as its standard input failed, so the command was ended with all its children. */
export class CommandInputFailed extends Schema.TaggedError<CommandInputFailed>()("CommandInputFailed", {
  ...told,
  partial: Partial
}) {
  get code(): ErrorCode {
    return "invalid_request"
  }
  readonly isRetryable = false
  override get message(): string {
    return `the command was ended, with all its children: its standard input ${this.detail}. ${this.remedy}`
  }
}

/** Why a file cannot be accessed. */
export const FileProblem = Schema.Literals([
  "not_found",
  "not_a_file",
  "not_a_directory",
  "outside_workspace",
  "too_large",
  "permission_denied",
  "no_space",
  "invalid_path",
  "unreadable"
])

export type FileProblem = typeof FileProblem.Type

/** A file of the workspace could not be read, written, listed, described or removed. */
export class FileRefused extends Schema.TaggedError<FileRefused>()("FileRefused", {
  path: Schema.String,
  problem: FileProblem,
  ...told
}) {
  get code(): ErrorCode {
    return "invalid_request"
  }
  readonly isRetryable = false
  override get message(): string {
    return `${JSON.stringify(this.path.slice(0, 200))} ${this.detail}. ${this.remedy}`
  }
}

export const LimitReason = Schema.Union([
  TimedOut,
  OomKilled,
  PidsExhausted,
  OutputLimitExceeded,
  DiskFull,
  BudgetExceeded,
  ExfiltrationSuspected
])

export type LimitReason = typeof LimitReason.Type
