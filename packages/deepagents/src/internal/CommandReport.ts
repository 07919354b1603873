/** The result of a command in the words of deepagents: one text for the model, an exit code, and what was cut off. */
import type { CommandFailure } from "@cogni/sandbox-promise/Failure"
import type { ExecEnd } from "@cogni/sandbox-promise/Sandbox"
import type { ExecuteResponse } from "deepagents"

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

/** Reports a command that broke a limit or could not start, so that the agent can do something else. */
export const ofFailure = ({ exitCode, message, output }: CommandFailure): ExecuteResponse => {
  const said = report(exitCode ?? null, output, message)
  // Without an exit code, it was ended in the middle of its output.
  return exitCode === undefined ? { ...said, truncated: true } : said
}
