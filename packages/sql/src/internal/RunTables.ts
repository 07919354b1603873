/**
 * The tables of runs: their columns, and what a record is in them.
 *
 * A record is JSON, which escapes what PostgreSQL's text refuses (NUL, half a surrogate pair); what a run wrote is
 * bytes in a table of its own, so that a list reads none of it. What others said of a run are rows, so that two who say
 * something at once never overwrite each other.
 */
import * as SchemaVersion from "../SchemaVersion.ts"
import {
  annotated,
  outputOf,
  type RunRecord,
  RunRecordText,
  withoutText,
  withText
} from "@cogni/sandbox-core/RunStore"
import { Effect, Option, Schema } from "effect"

/** A row of `cogni_runs`, without what only the database looks at. */
export interface RunRow {
  readonly run_id: string
  readonly record: string
}

export interface OutputRow {
  readonly channel: string
  readonly encoding: string
  readonly bytes: Uint8Array
}

export interface AnnotationRow {
  readonly run_id: string
  readonly name: string
  readonly value: string
}

/** A row for each annotation of a run; one without where there is none. */
export interface AnnotatedRow extends RunRow {
  readonly name: string | null
  readonly value: string | null
}

const decodeRecord = Schema.decodeUnknownOption(RunRecordText)
const encodeRecord = Schema.encodeSync(RunRecordText)

/** Columns of a record's row. */
export const rowOf = (record: RunRecord) => {
  const { annotations: _, ...own } = withoutText(record)
  return {
    run_id: record.runId,
    owner: record.owner,
    status: record.outcome.status,
    started_at: record.startedAt,
    ended_at: record.endedAt ?? null,
    record: encodeRecord(own)
  }
}

export const outputRowsOf = (record: RunRecord): ReadonlyArray<OutputRow & { readonly run_id: string }> => {
  const output = outputOf(record)
  return output === undefined
    ? []
    : (["stdout", "stderr"] as const)
        .filter((channel) => output[channel].text !== "")
        .map((channel) => ({ run_id: record.runId, channel, ...bytesOf(output[channel].text) }))
}

/** In the order of their names: whoever writes several takes their locks in the same order. */
export const annotationRowsOf = (
  runId: string,
  annotations: Readonly<Record<string, Schema.Json>>
): ReadonlyArray<AnnotationRow> =>
  Object.entries(annotations)
    .map(([name, value]) => ({
      run_id: runId,
      name: JSON.stringify(name).slice(1, -1),
      value: JSON.stringify(value)
    }))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))

/** Without what the run wrote; `undefined` of what a later version wrote, and this one cannot read. */
export const recordOf = (
  row: RunRow,
  annotations: ReadonlyArray<Pick<AnnotationRow, "name" | "value">>
): RunRecord | undefined => {
  const record = Option.getOrUndefined(decodeRecord(row.record))
  return record === undefined || annotations.length === 0
    ? record
    : annotated(
        record,
        Object.fromEntries(
          annotations.map(({ name, value }) => [
            JSON.parse(`"${name}"`) as string,
            JSON.parse(value) as Schema.Json
          ])
        )
      )
}

/** The record that all of these are rows of. */
export const annotatedOf = (rows: ReadonlyArray<AnnotatedRow>): RunRecord | undefined =>
  rows[0] === undefined
    ? undefined
    : recordOf(
        rows[0],
        rows.flatMap(({ name, value }) => (name === null || value === null ? [] : [{ name, value }]))
      )

/** With what the run wrote. */
export const withOutput = (record: RunRecord, outputs: ReadonlyArray<OutputRow>): RunRecord => {
  const text = (channel: string) => {
    const found = outputs.find((output) => output.channel === channel)
    return found === undefined ? "" : textOf(found)
  }
  return withText(record, { stdout: text("stdout"), stderr: text("stderr") })
}

/** Makes the tables, or brings them to this version. */
export const bring = SchemaVersion.bring({
  versionTable: "cogni_runs_version",
  steps: [
    {
      name: "runs",
      run: Effect.fnUntraced(function* (sql) {
        const bytes = sql.literal(sql.onDialectOrElse({ pg: () => "BYTEA", orElse: () => "BLOB" }))
        yield* sql`CREATE TABLE cogni_runs (
          run_id TEXT NOT NULL PRIMARY KEY,
          claim_id TEXT NOT NULL,
          host TEXT NOT NULL,
          owner TEXT NOT NULL,
          status TEXT NOT NULL,
          started_at TEXT NOT NULL,
          ended_at TEXT,
          record TEXT NOT NULL
        )`
        yield* sql`CREATE INDEX cogni_runs_started_at ON cogni_runs (started_at, run_id)`
        yield* sql`CREATE INDEX cogni_runs_host ON cogni_runs (host, status)`
        yield* sql`CREATE TABLE cogni_run_outputs (
          run_id TEXT NOT NULL REFERENCES cogni_runs (run_id) ON DELETE CASCADE,
          channel TEXT NOT NULL,
          encoding TEXT NOT NULL,
          bytes ${bytes} NOT NULL,
          PRIMARY KEY (run_id, channel)
        )`
        yield* sql`CREATE TABLE cogni_run_annotations (
          run_id TEXT NOT NULL REFERENCES cogni_runs (run_id) ON DELETE CASCADE,
          name TEXT NOT NULL,
          value TEXT NOT NULL,
          PRIMARY KEY (run_id, name)
        )`
      })
    }
  ]
})

/** Half a surrogate pair has no UTF-8: text with one keeps its 16-bit units instead. */
const bytesOf = (text: string): { readonly encoding: string; readonly bytes: Uint8Array } =>
  text.isWellFormed()
    ? { encoding: "utf-8", bytes: new Uint8Array(Buffer.from(text, "utf8")) }
    : { encoding: "utf-16le", bytes: new Uint8Array(Buffer.from(text, "utf16le")) }

const textOf = ({ bytes, encoding }: OutputRow): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(
    encoding === "utf-16le" ? "utf16le" : "utf8"
  )
