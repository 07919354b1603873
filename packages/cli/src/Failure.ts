/**
 * Everything that can go wrong, as one line and one number.
 *
 * Whatever a command fails with ends here: a run's error with its reason, a refusal of the command line's own, a
 * defect. Pure; nothing that came from a sandbox can add lines or control characters to what is said.
 */
import { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import { Cause, Data, Effect, Layer, Predicate, Result, Schema } from "effect"
import { CliError } from "effect/cli"
import { type ExitName, exitCode, nameOfSignal, ofReason } from "./ExitCode.ts"
import type { Invocation } from "./Invocation.ts"
import * as RelayReport from "./RelayReport.ts"
import { oneLine } from "./TerminalText.ts"

/** What was asked cannot be done as it was asked. */
export class Refusal extends Data.TaggedError("Refusal")<{
  readonly exit: ExitName
  readonly detail: string
  readonly remedy: string
  /** Finer than the exit code, where there is something finer. */
  readonly reason?: string | undefined
  /** Where it is known. */
  readonly runId?: string | undefined
}> {
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

/** What cannot be done and what to do, each a sentence without its stop. */
export const refusal = (
  exit: ExitName,
  detail: string,
  remedy: string,
  more: { readonly reason?: string | undefined; readonly runId?: string | undefined } = {}
): Refusal => new Refusal({ exit, detail, remedy, ...more })

/** The same, where what is asked is only looked at. */
export const refuse = (exit: ExitName, detail: string, remedy: string): Result.Result<never, Refusal> =>
  Result.fail(refusal(exit, detail, remedy))

/** `Effect.mapError`, for a layer. */
export const mapLayerError =
  <E, E2>(tell: (error: E) => E2) =>
  <A, R>(layer: Layer.Layer<A, E, R>): Layer.Layer<A, E2, R> =>
    layer.pipe(Layer.catch((error) => Layer.effectContext(Effect.fail(tell(error)))))

/** Somebody ended it. What a run on a repository has committed stays until it is delivered. */
export const ofSignal = (signal: NodeJS.Signals = "SIGINT", asked?: Invocation): Refusal =>
  refusal(
    nameOfSignal(signal),
    `ended by ${signal}`,
    asked?.words[0] === "relay" || asked?.words.some((word) => /^--repo(?:=|$)/u.test(word)) === true
      ? "No sandbox is left. Commits that were not delivered are kept: cogni-sandbox relay list, then relay retry"
      : "Nothing of it is left",
    { reason: signal }
  )

/** Nobody reads standard output any more. */
export class ReaderGone extends Data.TaggedError("ReaderGone")<{}> {}

export interface Failure {
  readonly exitCode: number
  /** `usage`, `timeout`, …: the name of the exit code. */
  readonly name: ExitName
  /** The finer reason, such as `TimedOut`. */
  readonly reason: string
  /** What happened and what to do: one line. */
  readonly message: string
  readonly isRetryable: boolean
  readonly runId?: string | undefined
  /** What there was so far. */
  readonly partial?: unknown
}

const isReason = Schema.is(Reason)

/** The words of the library, in the words of the command line. */
const flags: ReadonlyArray<readonly [field: string, flag: string]> = [
  ["limits.runtimeSecondsMax", "--timeout"],
  ["limits.memoryBytesMax", "--memory"],
  ["limits.processesMax", "--processes"],
  ["limits.cpusMax", "--cpus"],
  ["limits.outputBytesMax", "--output-limit"],
  ["limits.workspaceBytesMax", "--disk"],
  ["limits.stopGraceSecondsMax", "--grace"],
  ["workspace.path", "--workspace"],
  ["runId", "--run-id"],
  ["image", "--image"],
  ["llm.budget.callsMax", "--max-calls"],
  ["llm.budget.inputTokensMax", "--max-input-tokens"],
  ["llm.budget.outputTokensMax", "--max-output-tokens"],
  ["llm.budget.costUsdMax", "--max-cost"],
  ["llm.unknownFields", "--strict"],
  ["llm.model", "--model"],
  ["llm.budget", "the budget"],
  ["tools.0", "--tool"],
  ["argv.0", "the command"]
]

export const inFlags = (message: string): string =>
  flags
    .reduce(
      (text, [field, flag]) =>
        field.includes(".")
          ? text.replaceAll(field, flag)
          : // A word that is also an ordinary one is a field only where it begins a problem.
            text.replaceAll(`: ${field}: `, `: ${flag}: `).replaceAll(`; ${field}: `, `; ${flag}: `),
      message
    )
    .replace(/(--[a-z-]+) \(\1\)/gu, "$1")

const failure = (name: ExitName, reason: string, message: string, rest: Partial<Failure> = {}): Failure => ({
  exitCode: exitCode[name],
  name,
  reason,
  message: oneLine(message),
  isRetryable: false,
  ...rest
})

const ofError = (error: unknown): Failure => {
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
    return failure(RelayReport.exitOf(error), reason._tag, message, { isRetryable, runId })
  }
  if (error instanceof ReaderGone)
    return failure("readerGone", "ReaderGone", "nobody reads the output any more")
  if (CliError.isCliError(error)) return failure("usage", error._tag, usageMessage(error))
  if (Predicate.isTagged(error, "ConfigError")) {
    return failure(
      "configuration",
      "ConfigError",
      `a variable of the environment cannot be read: ${messageOf(error)}`
    )
  }
  return failure(
    "fault",
    "Defect",
    `something is broken here: ${messageOf(error)}. Run it again with --log-level debug, and report it`
  )
}

/** The first thing that went wrong says it all. */
export const fromCause = (cause: Cause.Cause<unknown>): Failure => ofError(Cause.squash(cause))

/** What a script reads. */
export const toJson = ({ partial, runId, ...error }: Failure): object => ({
  ok: false,
  ...(runId === undefined ? {} : { runId }),
  exitCode: error.exitCode,
  error: { code: error.name, reason: error.reason, message: error.message, isRetryable: error.isRetryable },
  ...(partial === undefined ? {} : { partial })
})

const messageOf = (error: unknown): string =>
  typeof error === "object" && error !== null && "message" in error ? String(error.message) : String(error)

const usageMessage = (error: CliError.CliError): string => {
  if (error._tag !== "ShowHelp") return messageOf(error)
  const command = error.commandPath.join(" ")
  // The first is the one that was made; the others often follow from it.
  const [first] = error.errors
  if (first === undefined) return `name a command. See ${command} --help`
  const hint =
    "suggestions" in first && first.suggestions.length > 0
      ? ` Did you mean ${first.suggestions.join(" or ")}?`
      : ""
  const said = messageOf(first)
    .split("\n")[0]!
    .replace(/([^.?!])$/u, "$1.")
  return `${said}${hint} See ${command} --help`
}
