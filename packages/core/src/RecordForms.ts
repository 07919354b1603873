/**
 * The forms of a run's record: as it begins, with its text and without, and as lists show it.
 */
import { Schema } from "effect"
import { longAnnotations } from "./RunFacts.ts"
import type { Output, RunResult } from "./RunResult.ts"
import { RunRecord } from "./RunRecord.ts"

/** A record as JSON text, the same in every store. */
export const RunRecordText = Schema.fromJsonString(Schema.toCodecJson(RunRecord))

/** Returns the first record of a run. */
export const begun = (run: Pick<RunRecord, "runId" | "spec" | "owner" | "startedAt">): RunRecord => ({
  ...run,
  outcome: { status: "running" },
  timings: []
})

/** Marks a running record as abandoned if the run is over. Applied when a record is read. */
export const abandonedIfOver = (record: RunRecord, isOver: (record: RunRecord) => boolean): RunRecord =>
  record.outcome.status === "running" && isOver(record)
    ? { ...record, outcome: { status: "abandoned" } }
    : record

/** Changes the output of a record that has one. */
const mapOutput = (record: RunRecord, change: (output: Output) => Output): RunRecord => {
  const { outcome } = record
  if (outcome.status === "exited") {
    const result = { ...outcome.result, output: change(outcome.result.output) }
    return { ...record, outcome: { ...outcome, result } }
  }
  return outcome.status === "failed" && outcome.output !== undefined
    ? { ...record, outcome: { ...outcome, output: change(outcome.output) } }
    : record
}

/** Sets the text of a record's output. */
export const withText = (
  record: RunRecord,
  text: { readonly stdout: string; readonly stderr: string }
): RunRecord =>
  mapOutput(record, ({ stderr, stdout }) => ({
    stdout: { ...stdout, text: text.stdout },
    stderr: { ...stderr, text: text.stderr }
  }))

/** Removes the texts of a record that can be long: output, answer and commits. Only `get` returns them. */
export const withoutText = (record: RunRecord): RunRecord => {
  const { annotations, ...rest } = withText(record, { stdout: "", stderr: "" })
  if (annotations === undefined) return rest
  const others = Object.entries(annotations).filter(([name]) => !longAnnotations.includes(name))
  return others.length === 0 ? rest : { ...rest, annotations: Object.fromEntries(others) }
}

/** Names of the annotations that lists show. */
const briefAnnotations: ReadonlySet<string> = new Set(["graph", "relay"])

/**
 * Returns what lists show of a record. Lists are read every few seconds, so they have nothing that can be long: no
 * texts, inputs, arguments and variables of the program, and no single calls or canaries.
 */
export const briefOf = (record: RunRecord): RunRecord => {
  const { annotations = {}, llm, outcome, posture: _, spec, suspicions: __, ...rest } = withoutText(record)
  const shown = Object.entries(annotations).filter(([name]) => briefAnnotations.has(name))
  return {
    ...rest,
    spec: { ...spec, argv: [spec.argv[0].slice(0, briefArgumentChars)], env: {}, inputs: [] },
    outcome: outcome.status === "exited" ? { ...outcome, result: briefResultOf(outcome.result) } : outcome,
    ...(llm === undefined ? {} : { llm: { ...llm, calls: [] } }),
    ...(shown.length === 0 ? {} : { annotations: Object.fromEntries(shown) })
  }
}

const briefArgumentChars = 200

const briefResultOf = ({ llm, ...result }: RunResult): RunResult => ({
  ...result,
  suspicions: [],
  ...(llm === undefined ? {} : { llm: { ...llm, calls: [] } })
})

/** Returns the output of a run, if it has one. */
export const outputOf = ({ outcome }: RunRecord): Output | undefined =>
  outcome.status === "exited"
    ? outcome.result.output
    : outcome.status === "failed"
      ? outcome.output
      : undefined

export const annotated = (
  record: RunRecord,
  annotations: Readonly<Record<string, Schema.Json>>
): RunRecord => ({ ...record, annotations: { ...record.annotations, ...annotations } })
