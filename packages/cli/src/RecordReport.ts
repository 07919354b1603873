/** Formats run records for people and scripts. Pure. */
import { type Outcome, RunRecord } from "@cogni/sandbox-core/RunRecord"
import { repositoryProgram } from "@cogni/sandbox-git-relay/RelaySteps"
import { withPrompt } from "@cogni/sandbox-graph-provider/agents/Agent"
import { Schema } from "effect"
import { formatMillis } from "./Quantity.ts"
import { clip, columns, oneLine } from "./TerminalText.ts"

const [promptProgram] = withPrompt([""])

const encode = Schema.encodeSync(Schema.toCodecJson(RunRecord))

/** Encodes a whole record as JSON. */
export const toJson = (record: RunRecord): object => ({ ...(encode(record) as object) })

/** Describes an outcome in one or two words. */
export const status = (outcome: Outcome): string => {
  switch (outcome.status) {
    case "exited":
      return `exited ${outcome.result.exitCode}`
    case "failed":
      return outcome.reason
    default:
      return outcome.status
  }
}

/** Returns how long a run took, or has been running. */
export const millisOf = (record: RunRecord, now: Date): number =>
  Math.max(
    0,
    (record.endedAt === undefined ? now.getTime() : Date.parse(record.endedAt)) - Date.parse(record.startedAt)
  )

/** Summarizes a record for a list that scripts read. */
export const summary = (record: RunRecord, now: Date) => ({
  runId: record.runId,
  status: record.outcome.status,
  ...(record.outcome.status === "exited" ? { exitCode: record.outcome.result.exitCode } : {}),
  ...(record.outcome.status === "failed" ? { reason: record.outcome.reason } : {}),
  startedAt: record.startedAt,
  ...(record.endedAt === undefined ? {} : { endedAt: record.endedAt }),
  durationMs: millisOf(record, now),
  image: record.spec.image,
  argv: record.spec.argv,
  ...(record.spec.llm === undefined ? {} : { model: record.spec.llm.model })
})

/** Returns the command that a user asked for, without the program that starts it in a clone or with a prompt. */
const commandOf = ([program = "", ...rest]: ReadonlyArray<string>): ReadonlyArray<string> => {
  if (program === repositoryProgram)
    return commandOf(rest.slice(rest.indexOf("--", rest[0] === "--commit" ? 2 : 0) + 1))
  return program === promptProgram ? rest.slice(1) : [program, ...rest]
}

/** Formats records as a table for people. */
export const list = (records: ReadonlyArray<RunRecord>, now: Date): ReadonlyArray<string> =>
  columns([
    ["RUN", "STATUS", "STARTED", "TOOK", "COMMAND"],
    ...records.map((record) => [
      record.runId,
      status(record.outcome),
      `${formatMillis(now.getTime() - Date.parse(record.startedAt))} ago`,
      record.outcome.status === "abandoned" ? "?" : formatMillis(millisOf(record, now)),
      clip(oneLine(commandOf(record.spec.argv).join(" ")), 40)
    ])
  ])
