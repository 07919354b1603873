/**
 * The table of run facts: what searches select and sort by, beside the records, which are long.
 *
 * A row follows from the record and the annotations of its run, and is written with them. Text is stored as inside a
 * JSON string, because callers choose names with characters that PostgreSQL's text type refuses.
 */
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import type { Place, RunFilter } from "@cogni/sandbox-core/RunSearch"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Effect } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import { escaped } from "./LedgerTables.ts"

/** Columns with a name, and their facts. */
const names = {
  reason: "reason",
  billing_account_id: "billingAccountId",
  grant_id: "grantId",
  session_id: "sessionId",
  agent_id: "agentId",
  graph_id: "graphId",
  model: "model",
  repository: "repository"
} as const satisfies Readonly<Record<string, keyof RunFacts.RunFacts>>

/** Creates the table. The order of pages must not depend on the locale of the database. */
export const create = Effect.fnUntraced(function* (sql: SqlClient) {
  const text = sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
  yield* sql`CREATE TABLE cogni_run_facts (
    run_id ${text} NOT NULL PRIMARY KEY REFERENCES cogni_runs (run_id) ON DELETE CASCADE,
    started_at ${text} NOT NULL, state TEXT NOT NULL, reason TEXT, billing_account_id TEXT, grant_id TEXT,
    session_id TEXT, agent_id TEXT, graph_id TEXT, model TEXT, repository TEXT, cost_usd DOUBLE PRECISION)`
  yield* sql`CREATE INDEX cogni_run_facts_started ON cogni_run_facts (started_at, run_id)`
  yield* sql`CREATE INDEX cogni_run_facts_account ON cogni_run_facts (billing_account_id, started_at, run_id)`
  yield* sql`CREATE INDEX cogni_run_facts_state ON cogni_run_facts (billing_account_id, state, started_at, run_id)`
})

export const indexGrants = (sql: SqlClient): Effect.Effect<unknown, SqlError> =>
  sql`CREATE INDEX cogni_run_facts_grant ON cogni_run_facts (billing_account_id, grant_id, started_at, run_id)`

/** Converts the facts of a record, with its annotations, to a row. */
const rowOf = (record: RunRecord): Record<string, string | number | null> => {
  const facts = RunFacts.of(record)
  return {
    run_id: facts.runId,
    started_at: facts.startedAt,
    state: facts.state,
    cost_usd: facts.costUsd ?? null,
    ...Object.fromEntries(
      Object.entries(names).map(([column, field]) => {
        const value = facts[field]
        return [column, value === undefined ? null : escaped(value)]
      })
    )
  }
}

const changeable = ["started_at", "state", "cost_usd", ...Object.keys(names)]
  .map((column) => `${column} = excluded.${column}`)
  .join(", ")

/** Writes the facts of a run, whose row must exist. */
export const write = (sql: SqlClient, record: RunRecord): Effect.Effect<unknown, SqlError> =>
  sql`INSERT INTO cogni_run_facts ${sql.insert(rowOf(record))}
    ON CONFLICT (run_id) DO UPDATE SET ${sql.literal(changeable)}`

/** A run that is stored as running may have been abandoned since. */
const storedStates = (states: NonNullable<RunFilter["states"]>): ReadonlyArray<string> =>
  states.includes("abandoned") ? [...new Set([...states, "running"])] : states

/** Conditions of a search on facts `f`. */
export const where = (sql: SqlClient, filter: RunFilter, after: Place | undefined): Fragment => {
  const among = (column: string, values: ReadonlyArray<string>) =>
    values.length === 0 ? sql`1 = 0` : sql.in(`f.${column}`, [...values])
  const { costUsdMax, costUsdMin, from, reasons, states, to } = filter
  const conditions: ReadonlyArray<Fragment> = [
    ...Object.entries(names).flatMap(([column, field]) => {
      const value = field === "reason" ? undefined : filter[field]
      return value === undefined ? [] : [sql`${sql(`f.${column}`)} = ${escaped(value)}`]
    }),
    ...(states === undefined ? [] : [among("state", storedStates(states))]),
    ...(reasons === undefined ? [] : [among("reason", reasons.map(escaped))]),
    ...(from === undefined ? [] : [sql`f.started_at >= ${from}`]),
    ...(to === undefined ? [] : [sql`f.started_at < ${to}`]),
    ...(costUsdMin === undefined ? [] : [sql`f.cost_usd >= ${costUsdMin}`]),
    ...(costUsdMax === undefined ? [] : [sql`f.cost_usd <= ${costUsdMax}`]),
    ...(after === undefined ? [] : [sql`(f.started_at, f.run_id) < (${after.startedAt}, ${after.runId})`])
  ]
  return conditions.length === 0 ? sql.literal("") : sql`WHERE ${sql.and([...conditions])}`
}
