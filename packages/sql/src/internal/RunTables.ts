/**
 * The tables of runs, and the conversion between run records and rows.
 *
 * A record is stored as JSON, which escapes characters that PostgreSQL's text type refuses (NUL, lone surrogates).
 * Output is stored as bytes in a separate table, so that a list does not read it. Annotations are separate rows, so
 * that two concurrent writers never overwrite each other.
 */
import * as SchemaVersion from "../SchemaVersion.ts"
import { longAnnotations } from "@cogni/sandbox-core/RunFacts"
import { annotated, outputOf, RunRecordText, withoutText, withText } from "@cogni/sandbox-core/RecordForms"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Effect, Option, Schema } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import * as BriefTable from "./BriefTable.ts"
import * as FactTables from "./FactTables.ts"

/** A row of `cogni_runs`, without the columns that only queries use. */
export interface RunRow {
  readonly run_id: string
  readonly record: string
}

export interface OutputRow {
  readonly channel: string
  readonly encoding: string
  readonly bytes: Uint8Array
}

interface AnnotationRow {
  readonly run_id: string
  readonly name: string
  readonly value: string
}

/** A run joined with one of its annotations. A run without annotations has one row with nulls. */
interface AnnotatedRow extends RunRow {
  readonly name: string | null
  readonly value: string | null
}

const decodeRecord = Schema.decodeUnknownOption(RunRecordText)
const encodeRecord = Schema.encodeSync(RunRecordText)

/** Converts a record to its row. */
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

/** Converts annotations to rows, sorted by name, so that concurrent writers take their locks in the same order. */
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

/** Converts a row to a record without output. Returns `undefined` for the unknown format of a later version. */
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

/** Converts all rows of one run to its record. */
export const annotatedOf = (rows: ReadonlyArray<AnnotatedRow>): RunRecord | undefined =>
  rows[0] === undefined
    ? undefined
    : recordOf(
        rows[0],
        rows.flatMap(({ name, value }) => (name === null || value === null ? [] : [{ name, value }]))
      )

/**
 * Reads a record and its annotations in one statement, because this is the most frequent query. `isWhole`: with the
 * annotations that can be long.
 */
export const rowsOf = (sql: SqlClient, runId: string, isWhole: boolean) =>
  sql<AnnotatedRow>`SELECT r.run_id, r.record, a.name, a.value FROM cogni_runs r
    LEFT JOIN cogni_run_annotations a ON a.run_id = r.run_id
      ${isWhole ? sql.literal("") : sql`AND NOT ${sql.in("a.name", [...longAnnotations])}`}
    WHERE r.run_id = ${runId}`

/** Reads the records of some runs, without annotations. */
export const someOf = (sql: SqlClient, runIds: ReadonlyArray<string>) =>
  sql<RunRow>`SELECT run_id, record FROM cogni_runs WHERE ${sql.in("run_id", [...runIds])}`

/** Adds the output to a record. */
export const withOutput = (record: RunRecord, outputs: ReadonlyArray<OutputRow>): RunRecord => {
  const text = (channel: string) => {
    const found = outputs.find((output) => output.channel === channel)
    return found === undefined ? "" : textOf(found)
  }
  return withText(record, { stdout: text("stdout"), stderr: text("stderr") })
}

/** Creates or migrates the tables. */
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
    },
    {
      name: "facts",
      run: Effect.fnUntraced(function* (sql) {
        yield* FactTables.create(sql)
        yield* ofEarlierRuns(sql, FactTables.write)
      })
    },
    // A list of grants has the last run of each.
    { name: "runs of a grant", run: FactTables.indexGrants },
    {
      name: "briefs",
      run: Effect.fnUntraced(function* (sql) {
        yield* BriefTable.create(sql)
        yield* ofEarlierRuns(sql, BriefTable.write)
      })
    }
  ]
})

/** Runs of one step of a migration. */
const migratedMax = 200

/** Writes what follows from a record, for a list to select by and to show. */
export const writeDerived = (sql: SqlClient, record: RunRecord): Effect.Effect<unknown, SqlError> =>
  Effect.andThen(FactTables.write(sql, record), BriefTable.write(sql, record))

/** Writes a row for each of the runs that are already stored. A record of a later version has none. */
const ofEarlierRuns = Effect.fnUntraced(function* (sql: SqlClient, write: typeof writeDerived) {
  let after = ""
  while (true) {
    const rows = yield* sql<RunRow>`SELECT run_id, record FROM cogni_runs WHERE run_id > ${after}
      ORDER BY run_id LIMIT ${sql.literal(String(migratedMax))}`
    if (rows.length === 0) return
    const notes = yield* annotationsOf(sql, rows)
    for (const row of rows) {
      const record = recordOf(row, notes.get(row.run_id) ?? [])
      if (record !== undefined) yield* write(sql, record)
    }
    after = rows.at(-1)!.run_id
  }
})

/** Reads the annotations of some runs, but not those that can be long. */
export const annotationsOf = (sql: SqlClient, runs: ReadonlyArray<Pick<RunRow, "run_id">>) =>
  Effect.map(
    sql<AnnotationRow>`SELECT run_id, name, value FROM cogni_run_annotations
      WHERE NOT ${sql.in("name", [...longAnnotations])} AND ${sql.in(
        "run_id",
        runs.map(({ run_id }) => run_id)
      )}`,
    (notes) => Map.groupBy(notes, ({ run_id }) => run_id)
  )

/** Encodes text as UTF-8, or as UTF-16 if it contains a lone surrogate, which UTF-8 cannot represent. */
const bytesOf = (text: string): { readonly encoding: string; readonly bytes: Uint8Array } =>
  text.isWellFormed()
    ? { encoding: "utf-8", bytes: new Uint8Array(Buffer.from(text, "utf8")) }
    : { encoding: "utf-16le", bytes: new Uint8Array(Buffer.from(text, "utf16le")) }

const textOf = ({ bytes, encoding }: OutputRow): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(
    encoding === "utf-16le" ? "utf16le" : "utf8"
  )
