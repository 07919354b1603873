/**
 * The table of what lists show of runs, beside the records, which are long: a list decodes no input and no model call.
 *
 * A row follows from the record and the annotations of its run, and is written with them. It has the state that the
 * facts of the run had then: an earlier version that ends the run writes its facts, but no brief.
 */
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { briefOf, RunRecordText } from "@cogni/sandbox-core/RecordForms"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import type { RunFilter, Place } from "@cogni/sandbox-core/RunSearch"
import { type Effect, Option, Schema } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import * as FactTables from "./FactTables.ts"

/** A run of a page, without a brief if an earlier version, which may run until the end of an upgrade, wrote it last. */
export interface BriefRow {
  readonly run_id: string
  readonly started_at: string
  readonly brief: string | null
}

const decode = Schema.decodeUnknownOption(RunRecordText)
const encode = Schema.encodeSync(RunRecordText)

export const create = (sql: SqlClient): Effect.Effect<unknown, SqlError> => {
  const text = sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
  return sql`CREATE TABLE cogni_run_briefs (
    run_id ${text} NOT NULL PRIMARY KEY REFERENCES cogni_runs (run_id) ON DELETE CASCADE,
    state TEXT NOT NULL, brief TEXT NOT NULL)`
}

/** Writes the brief of a run, whose row must exist. */
export const write = (sql: SqlClient, record: RunRecord): Effect.Effect<unknown, SqlError> =>
  sql`INSERT INTO cogni_run_briefs ${sql.insert({
    run_id: record.runId,
    state: RunFacts.of(record).state,
    brief: encode(briefOf(record))
  })} ON CONFLICT (run_id) DO UPDATE SET state = excluded.state, brief = excluded.brief`

/**
 * Reads the briefs of a page, but none of a state that its run has left. The page is selected first: without
 * statistics, PostgreSQL would read the brief of each run of the account, and sort them.
 */
export const read = (
  sql: SqlClient,
  asked: { readonly filter: RunFilter; readonly after: Place | undefined; readonly limit: number }
) =>
  sql<BriefRow>`SELECT p.run_id, p.started_at, b.brief FROM (
      SELECT f.run_id, f.started_at, f.state FROM cogni_run_facts f ${FactTables.where(sql, asked.filter, asked.after)}
      ORDER BY f.started_at DESC, f.run_id DESC LIMIT ${sql.literal(String(asked.limit))}
    ) p LEFT JOIN cogni_run_briefs b ON b.run_id = p.run_id AND b.state = p.state
    ORDER BY p.started_at DESC, p.run_id DESC`

/** Returns the brief of a row, or `undefined` if it has none, or the unknown format of a later version. */
export const recordOf = ({ brief }: BriefRow): RunRecord | undefined =>
  brief === null ? undefined : Option.getOrUndefined(decode(brief))
