/**
 * The meaning of a sandbox's errors for adapters to other libraries: a refused file, or a failed command. Pure.
 *
 * After either, the sandbox goes on, so an agent should learn why and do something else. After every other error, no
 * further call can succeed.
 */
import { emptyOutput, type Output } from "@cogni/sandbox-core/RunResult"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { type FileProblem } from "@cogni/sandbox-core/SandboxReason"

export type { FileProblem } from "@cogni/sandbox-core/SandboxReason"

/** Exit code of a command that was ended at its time limit, as `timeout` of coreutils reports it. */
const timedOutCode = 124

/** Exit code of a command that could not be started, as a shell reports it. */
export const refusedCode = 126

/** Exit code of a command that was killed, as a shell reports it. */
export const killedCode = 137

/** A command that was refused, or that broke a limit of its own. */
export interface CommandFailure {
  /** Its own, or the one that a shell reports in this case. Undefined if it was killed before it had one. */
  readonly exitCode: number | undefined
  readonly wasStarted: boolean
  /** Why, and what to do. */
  readonly message: string
  /** Output until then. Empty if a caller reads it as a stream. */
  readonly output: Output
}

/** Returns how a command failed, or undefined if the sandbox is over or the error is not about a command. */
export const commandFailureOf = (thrown: unknown): CommandFailure | undefined => {
  if (!(thrown instanceof SandboxError)) return undefined
  const { partial, reason } = thrown
  const { message } = reason
  const output = partial?.output ?? emptyOutput
  switch (reason._tag) {
    case "CommandRefused":
    case "InvalidSpec":
      return { exitCode: refusedCode, wasStarted: false, message, output }
    case "CommandTimedOut":
      return { exitCode: timedOutCode, wasStarted: true, message, output }
    case "CommandInputFailed":
    case "OutputLimitExceeded":
      return { exitCode: partial?.exitCode, wasStarted: true, message, output }
    case "OomKilled":
    case "PidsExhausted":
      // Without an exit code, it is the sandbox that was ended, not a command in it.
      return partial?.exitCode === undefined
        ? undefined
        : { exitCode: partial.exitCode, wasStarted: true, message, output }
    default:
      return undefined
  }
}

/** Returns why a file was refused, or undefined if the error is about something else. */
export const fileProblemOf = (thrown: unknown): FileProblem | undefined =>
  thrown instanceof SandboxError && thrown.reason._tag === "FileRefused" ? thrown.reason.problem : undefined
