/** The result of a command in the words of deepagents: one text for the model, an exit code, and what was cut off. */
import type { ExecEnd } from "@cogni/sandbox-promise/Sandbox"
import type { SandboxError } from "@cogni/sandbox-promise/SandboxHost"
import type { ExecuteResponse } from "deepagents"

/** Exit code of a command that was ended at its time limit, as `timeout` of coreutils reports it. */
const timedOutCode = 124

/** Exit code of a command that could not be started, as a shell reports it. */
const refusedCode = 126

const emptyChannel = { text: "", bytes: 0, truncated: false }

const empty: ExecEnd["output"] = { stdout: emptyChannel, stderr: emptyChannel }

/** Joins texts with line breaks, without an empty line between them. */
const joined = (...texts: ReadonlyArray<string>): string =>
  texts
    .filter((text) => text !== "")
    .reduce(
      (before, text) => (before === "" || before.endsWith("\n") ? before + text : `${before}\n${text}`),
      ""
    )

const report = (
  exitCode: number | null,
  { stderr, stdout }: ExecEnd["output"],
  message = ""
): ExecuteResponse => ({
  output: joined(stdout.text, stderr.text, message),
  exitCode,
  truncated: stdout.truncated || stderr.truncated
})

/** Reports a command that ended by itself. */
export const ofEnd = ({ exitCode, output }: ExecEnd): ExecuteResponse => report(exitCode, output)

/**
 * Reports a command that broke a limit or could not start, so that the agent can do something else.
 *
 * Returns undefined for all other errors: with those, the sandbox has ended, and no further command can succeed.
 */
export const ofError = ({ partial, reason }: SandboxError): ExecuteResponse | undefined => {
  const output = partial?.output ?? empty
  switch (reason._tag) {
    case "CommandTimedOut":
      return report(timedOutCode, output, reason.message)
    case "OomKilled":
    case "PidsExhausted":
      return report(partial?.exitCode ?? null, output, reason.message)
    case "OutputLimitExceeded":
      return { ...report(null, output, reason.message), truncated: true }
    case "CommandRefused":
    case "InvalidSpec":
      return report(refusedCode, output, reason.message)
    default:
      return undefined
  }
}
