/**
 * Sums of the known amounts of each account's calls, by day: what the limits of accounts are compared with.
 *
 * A transaction that adds entries also adds what they change, so a run's start reads a row for each day of the month
 * instead of each call. Known is the cost of a call, or what was reserved for it if its cost is unknown.
 */
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import { Array as Arr, Effect } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import * as SchemaVersion from "../SchemaVersion.ts"
import { escaped, micro, newest, type Row } from "./LedgerTables.ts"

/** Lets a step take its time: a large ledger takes longer than a statement of a run may. */
const unbounded = (sql: SqlClient) =>
  sql.onDialectOrElse({
    pg: () => Effect.asVoid(sql`SET LOCAL statement_timeout = 0`),
    orElse: () => Effect.void
  })

/** Creates or migrates the table, after those of the ledger, and fills it from their entries. */
export const bring = SchemaVersion.bring({
  versionTable: "cogni_ledger_days_version",
  steps: [
    {
      name: "sums by account and day",
      run: (sql) => {
        // Days are compared as text, which must not depend on the locale of the database.
        const text = sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
        return sql`CREATE TABLE cogni_ledger_days (billing_account_id ${text} NOT NULL, day ${text} NOT NULL,
          micros BIGINT NOT NULL, rest BIGINT NOT NULL, PRIMARY KEY (billing_account_id, day))`
      }
    },
    {
      name: "calls of unknown amount",
      run: (sql) =>
        Effect.andThen(
          unbounded(sql),
          sql`CREATE INDEX cogni_ledger_unknown ON cogni_ledger_entries (billing_account_id, called_at)
          WHERE cost_pico IS NULL AND reserved_pico IS NULL`
        )
    },
    {
      name: "sums of the entries so far",
      run: (sql) =>
        Effect.andThen(
          unbounded(sql),
          sql`INSERT INTO cogni_ledger_days (billing_account_id, day, micros, rest) ${computed(sql)}`
        )
    }
  ]
})

/** Computes the table from the entries. */
export const computed = (sql: SqlClient): Fragment =>
  sql`SELECT billing_account_id, day, CAST(SUM(amount / ${sql.literal(String(micro))}) AS BIGINT) AS micros,
    CAST(SUM(amount % ${sql.literal(String(micro))}) AS BIGINT) AS rest
    FROM (SELECT e.billing_account_id, SUBSTR(e.called_at, 1, 10) AS day,
      COALESCE(e.cost_pico, e.reserved_pico) AS amount FROM cogni_ledger_entries e WHERE ${newest(sql)}) e
    WHERE amount IS NOT NULL GROUP BY billing_account_id, day`

/** Maximum number of rows that one statement writes, or of calls that it looks up. */
const rowsMax = 200

/** Adds to the sums what entries change that this transaction has added. */
export const add = Effect.fnUntraced(function* (sql: SqlClient, added: ReadonlyArray<LedgerEntry>) {
  const calls = [...new Map(added.map((entry) => [callOf(entry), entry])).values()]
  const revisions = new Set(added.map((entry) => `${callOf(entry)}#${entry.revision}`))
  const changes = new Map<string, Change>()
  for (const chunk of Arr.chunksOf(calls, rowsMax)) {
    const runIds = [...new Set(chunk.map(({ runId }) => runId))]
    const units = [...new Set(chunk.map(({ usageUnitId }) => escaped(usageUnitId)))]
    const rows =
      yield* sql<Row>`SELECT e.run_id, e.attempt, e.usage_unit_id, e.revision, e.billing_account_id,
      SUBSTR(e.called_at, 1, 10) AS day, CAST(COALESCE(e.cost_pico, e.reserved_pico) AS TEXT) AS amount
      FROM cogni_ledger_entries e WHERE ${sql.in("e.run_id", runIds)} AND ${sql.in("e.usage_unit_id", units)}`
    const byCall = Map.groupBy(rows, callOfRow)
    for (const call of chunk.map(callOf)) {
      const all = byCall.get(call) ?? []
      count(changes, newestOf(all), 1n)
      count(changes, newestOf(all.filter(({ revision }) => !revisions.has(`${call}#${revision}`))), -1n)
    }
  }
  // One order in all processes, so that two transactions never wait for each other.
  const rows = [...changes]
    .filter(([, { amount }]) => amount !== 0n)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([, { account, amount, day }]) => ({
      billing_account_id: account,
      day,
      micros: String(amount / BigInt(micro)),
      rest: String(amount % BigInt(micro))
    }))
  for (const chunk of Arr.chunksOf(rows, rowsMax))
    yield* sql`INSERT INTO cogni_ledger_days ${sql.insert(chunk)}
      ON CONFLICT (billing_account_id, day) DO UPDATE SET micros = cogni_ledger_days.micros + excluded.micros,
      rest = cogni_ledger_days.rest + excluded.rest`
})

/** Change of the sum of an account and day, in pico-dollars. */
interface Change {
  readonly account: string
  readonly day: string
  readonly amount: bigint
}

const callOf = ({ attempt, runId, usageUnitId }: LedgerEntry): string =>
  `${runId}/${attempt}/${escaped(usageUnitId)}`

const callOfRow = ({ attempt, run_id, usage_unit_id }: Row): string => `${run_id}/${attempt}/${usage_unit_id}`

const newestOf = (rows: ReadonlyArray<Row>): Row | undefined =>
  rows.reduce<Row | undefined>(
    (newest, row) =>
      newest === undefined || Number(newest["revision"]) < Number(row["revision"]) ? row : newest,
    undefined
  )

const count = (changes: Map<string, Change>, row: Row | undefined, sign: bigint): void => {
  if (row === undefined) return
  const [account, day] = [String(row["billing_account_id"]), String(row["day"])]
  const place = `${account} ${day}`
  const before = changes.get(place)?.amount ?? 0n
  changes.set(place, { account, day, amount: before + sign * BigInt(row["amount"] ?? 0) })
}
