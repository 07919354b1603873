/**
 * Converts every failure to one line and one exit code.
 *
 * A failure is the error of a run, a refusal by the command itself, or a defect. Pure. Text from a sandbox cannot add
 * lines or control characters to a message.
 */
import { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { Delivery } from "@cogni/sandbox-git-relay/DeliveryRecord"
import { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import { Cause, Data, Effect, Layer, Predicate, Result, Schema } from "effect"
import { CliError } from "effect/cli"
import * as CheckoutCommands from "./CheckoutCommands.ts"
import { type ExitName, exitCode, nameOfSignal, ofReason } from "./ExitCode.ts"
import type { Invocation } from "./Invocation.ts"
import * as RelayReport from "./RelayReport.ts"
import { inFlags } from "./RemedyWords.ts"
import { oneLine } from "./TerminalText.ts"

/** The command refuses its input or its configuration. */
export class Refusal extends Data.TaggedError("Refusal")<{
  readonly exit: ExitName
  readonly detail: string
  readonly remedy: string
  /** A more specific reason than the exit code, if there is one. */
  readonly reason?: string | undefined
  /** The run, if known. */
  readonly runId?: string | undefined
}> {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** A run failed, with what its agent has said and done until then. */
export class RunFailed extends Data.TaggedError("RunFailed")<{
  readonly error: SandboxError
  /** Text of the agent; empty for a command. */
  readonly textSoFar: string
  /** Delivery of its commits, if it worked on a repository. */
  readonly delivery?: Delivery | undefined
}> {
  override get message(): string {
    return this.error.message
  }
}

/** Creates a refusal from a problem and a remedy, each a sentence without its final period. */
export const refusal = (
  exit: ExitName,
  detail: string,
  remedy: string,
  more: { readonly reason?: string | undefined; readonly runId?: string | undefined } = {}
): Refusal => new Refusal({ exit, detail, remedy, ...more })

/** Returns a refusal as a failed `Result`. */
export const refuse = (exit: ExitName, detail: string, remedy: string): Result.Result<never, Refusal> =>
  Result.fail(refusal(exit, detail, remedy))

/** `Effect.mapError`, for a layer. */
export const mapLayerError =
  <E, E2>(tell: (error: E) => E2) =>
  <A, R>(layer: Layer.Layer<A, E, R>): Layer.Layer<A, E2, R> =>
    layer.pipe(Layer.catch((error) => Layer.effectContext(Effect.fail(tell(error)))))

/** Refusal for an invocation that a signal ended. Undelivered commits of a run on a repository are kept. */
export const ofSignal = (signal: NodeJS.Signals = "SIGINT", asked?: Invocation): Refusal =>
  refusal(
    nameOfSignal(signal),
    `ended by ${signal}`,
    asked?.words[0] === "relay" || asked?.words.some((word) => /^--repo(?:=|$)/u.test(word)) === true
      ? "No sandbox is left. Commits that were not delivered are kept: cogni-sandbox relay list, then relay retry"
      : "No resources are left",
    { reason: signal }
  )

/** The reader of standard output has closed it. */
export class ReaderGone extends Data.TaggedError("ReaderGone")<{}> {}

export interface Failure {
  readonly exitCode: number
  /** `usage`, `timeout`, …: the name of the exit code. */
  readonly name: ExitName
  /** The finer reason, such as `TimedOut`. */
  readonly reason: string
  /** One line: what failed, why, and what to do. */
  readonly message: string
  readonly isRetryable: boolean
  readonly runId?: string | undefined
  /** The partial result of the run. */
  readonly partial?: unknown
  /** Text of the agent, if it has said anything. */
  readonly textSoFar?: string | undefined
  /** Delivery of the commits, if the run worked on a repository. */
  readonly relay?: Schema.Json | undefined
}

const isReason = Schema.is(Reason)

const failure = (name: ExitName, reason: string, message: string, rest: Partial<Failure> = {}): Failure => ({
  exitCode: exitCode[name],
  name,
  reason,
  message: oneLine(CheckoutCommands.forUser(message)),
  isRetryable: false,
  ...rest
})

const ofError = (error: unknown): Failure => {
  if (error instanceof RunFailed) {
    const { delivery, textSoFar } = error
    return {
      ...ofError(error.error),
      ...(textSoFar === "" ? {} : { textSoFar }),
      ...(delivery === undefined ? {} : { relay: RelayReport.toJson(delivery) })
    }
  }
  if (error instanceof SandboxError) {
    const { isRetryable, message, partial, reason, runId } = error
    return failure(ofReason(reason._tag), reason._tag, inFlags(message), { isRetryable, runId, partial })
  }
  if (isReason(error)) {
    const { _tag: reason, isRetryable, message } = error
    return failure(ofReason(reason), reason, inFlags(message), { isRetryable })
  }
  if (error instanceof Refusal) {
    return failure(error.exit, error.reason ?? "Refusal", error.message, { runId: error.runId })
  }
  if (error instanceof GitRelayError) {
    const { isRetryable, message, reason, runId } = error
    return failure(RelayReport.exitOf(error), reason._tag, inFlags(message), { isRetryable, runId })
  }
  if (error instanceof ReaderGone)
    return failure("readerGone", "ReaderGone", "the reader of standard output closed it")
  if (CliError.isCliError(error)) return failure("usage", error._tag, usageMessage(error))
  if (Predicate.isTagged(error, "ConfigError")) {
    return failure("configuration", "ConfigError", `invalid environment variable: ${messageOf(error)}`)
  }
  return failure(
    "fault",
    "Defect",
    `internal error: ${messageOf(error)}. Run it again with --log-level debug, and report the output`
  )
}

/** Converts a cause; only its first error counts. */
export const fromCause = (cause: Cause.Cause<unknown>): Failure => ofError(Cause.squash(cause))

/** Formats a failure for scripts. */
export const toJson = ({ partial, relay, runId, textSoFar, ...error }: Failure): object => ({
  ok: false,
  ...(runId === undefined ? {} : { runId }),
  exitCode: error.exitCode,
  error: { code: error.name, reason: error.reason, message: error.message, isRetryable: error.isRetryable },
  ...(textSoFar === undefined ? {} : { textSoFar }),
  ...(partial === undefined ? {} : { partial }),
  ...(relay === undefined ? {} : { relay })
})

const messageOf = (error: unknown): string =>
  typeof error === "object" && error !== null && "message" in error ? String(error.message) : String(error)

const usageMessage = (error: CliError.CliError): string => {
  if (error._tag !== "ShowHelp") return messageOf(error)
  const command = error.commandPath.join(" ")
  // The first error is the user's mistake; the others often follow from it.
  const [first] = error.errors
  if (first === undefined) return `name a command. See ${command} --help`
  if (command.endsWith(" run") && isOfCommand(first)) {
    return `${withStop(messageOf(first))} To run a command, put it after --: ${command} [flags] -- CMD ARG…`
  }
  if (first._tag === "UnrecognizedOption" && /^--pool(?:-memory)?$/u.test(first.option)) {
    return `${withStop(messageOf(first))} A pool serves one process with many runs: cogni-sandbox serve, chat, acp or mcp`
  }
  const hint =
    "suggestions" in first && first.suggestions.length > 0
      ? ` Did you mean ${first.suggestions.join(" or ")}?`
      : ""
  return `${withStop(messageOf(first))}${hint} See ${command} --help`
}

/** Whether a mistake is a word or a short flag that belongs to a command, such as `ls -la`. */
const isOfCommand = (error: CliError.CliError): boolean =>
  error._tag === "UnexpectedArgument" || (error._tag === "UnrecognizedOption" && /^-[^-]/u.test(error.option))

const withStop = (message: string): string => message.split("\n")[0]!.replace(/([^.?!])$/u, "$1.")
