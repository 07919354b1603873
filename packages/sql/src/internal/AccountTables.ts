/**
 * Table of reservations of accounts, and the statement that compares them with the tables of the ledger.
 *
 * One statement reads both, so that a run that is settled meanwhile counts either as reserved or as spent.
 */
import type { AccountStanding } from "@cogni/sandbox-ledger/AccountStanding"
import * as Money from "@cogni/sandbox-ledger/Money"
import type { SqlClient } from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import * as SchemaVersion from "../SchemaVersion.ts"
import { amountOf, micro, newest, type Row } from "./LedgerTables.ts"

/** Creates or migrates the table. */
export const bring = SchemaVersion.bring({
  versionTable: "cogni_account_version",
  steps: [
    {
      name: "reservations",
      run: (sql) => {
        // Times are compared as text, which must not depend on the locale of the database.
        const text = sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
        return sql`CREATE TABLE cogni_account_reservations (
          run_id ${text} NOT NULL, attempt INTEGER NOT NULL, billing_account_id ${text} NOT NULL,
          owner ${text} NOT NULL, reserved_pico BIGINT NOT NULL, reserved_at ${text} NOT NULL,
          lease_until ${text} NOT NULL, has_ended INTEGER NOT NULL, is_settled INTEGER NOT NULL,
          PRIMARY KEY (run_id, attempt))`
      }
    },
    {
      name: "reservations that count",
      run: (sql) =>
        sql`CREATE INDEX cogni_account_held ON cogni_account_reservations (billing_account_id, lease_until)
          WHERE is_settled = 0`
    },
    {
      name: "reservations by process",
      run: (sql) =>
        sql`CREATE INDEX cogni_account_owner ON cogni_account_reservations (owner) WHERE has_ended = 0`
    }
  ]
})

/** Reservations `r` that are not settled, with the run `l` of the ledger if it was opened. */
const held = (
  sql: SqlClient,
  account: string,
  { monthFrom, now }: { readonly now: string; readonly monthFrom: string }
) =>
  sql`FROM cogni_account_reservations r
    LEFT JOIN cogni_ledger_runs l ON l.run_id = r.run_id AND l.attempt = r.attempt
    WHERE r.billing_account_id = ${account} AND r.is_settled = 0 AND r.lease_until >= ${monthFrom}
      AND l.closed_at IS NULL AND (l.run_id IS NOT NULL OR ${live(sql, now)})`

const live = (sql: SqlClient, now: string): Fragment => sql`(r.has_ended = 0 AND r.lease_until > ${now})`

/** Whole micro-dollars of a sum, and the pico-dollars that are left: no sum exceeds 64 bits. */
const parts = (amount: string, name: string): string =>
  `CAST(COALESCE(SUM(${amount} / ${micro}), 0) AS BIGINT) AS ${name}_micros, ` +
  `CAST(COALESCE(SUM(${amount} % ${micro}), 0) AS BIGINT) AS ${name}_rest`

/** Amount that a run's calls count in a period: their sum, or its reservation if that is more and a call is unknown. */
const charged = (period: string, part: "micros" | "rest"): string => {
  const own = { micros: `(${period}_micros + ${period}_rest / ${micro})`, rest: `${period}_rest % ${micro}` }
  const ofRun = { micros: `r.reserved_pico / ${micro}`, rest: `r.reserved_pico % ${micro}` }
  const isMore =
    `(${ofRun.micros} > ${own.micros} ` +
    `OR (${ofRun.micros} = ${own.micros} AND ${ofRun.rest} > ${own.rest}))`
  return `CASE WHEN ${period}_unknown > 0 AND ${isMore} THEN ${ofRun[part]} ELSE ${own[part]} END`
}

/** Counts the open runs of an account, and the processes that have them. Reads no call. */
export const places = (
  sql: SqlClient,
  account: string,
  at: { readonly now: string; readonly monthFrom: string }
) => sql<Row>`SELECT ${placesOf(sql, at.now)} ${held(sql, account, at)}`

const placesOf = (sql: SqlClient, now: string): Fragment =>
  sql`COUNT(CASE WHEN ${live(sql, now)} THEN 1 END) AS runs,
    COUNT(DISTINCT CASE WHEN ${live(sql, now)} THEN r.owner END) AS processes`

/** Computes what an account has spent and reserved. */
export const standing = (
  sql: SqlClient,
  account: string,
  at: { readonly now: string; readonly dayFrom: string; readonly monthFrom: string }
) => {
  const { dayFrom, monthFrom, now } = at
  const inDay = sql`e.called_at >= ${dayFrom}`
  return sql<Row>`SELECT open_runs.*, spent.* FROM
    (SELECT ${placesOf(sql, now)},
      ${sql.literal(parts("r.reserved_pico", "month_reserved"))},
      ${sql.literal(parts("r.day_pico", "day_reserved"))}
      FROM (SELECT r.owner, r.has_ended, r.lease_until, r.reserved_pico,
        CASE WHEN r.lease_until >= ${dayFrom} THEN r.reserved_pico ELSE 0 END AS day_pico
        ${held(sql, account, at)}) r) open_runs
    CROSS JOIN
    (SELECT ${sql.literal(
      (["day", "month"] as const)
        .flatMap((period) =>
          (["micros", "rest"] as const).map(
            (part) => `CAST(COALESCE(SUM(${charged(period, part)}), 0) AS BIGINT) AS ${period}_spent_${part}`
          )
        )
        .join(", ")
    )} FROM
      (SELECT e.run_id, e.attempt,
        ${sql.literal(parts("e.amount", "month"))}, COUNT(*) - COUNT(e.amount) AS month_unknown,
        ${sql.literal(parts("e.day_amount", "day"))},
        SUM(CASE WHEN ${inDay} AND e.amount IS NULL THEN 1 ELSE 0 END) AS day_unknown
        FROM (SELECT e.run_id, e.attempt, e.called_at, COALESCE(e.cost_pico, e.reserved_pico) AS amount,
          CASE WHEN ${inDay} THEN COALESCE(e.cost_pico, e.reserved_pico) END AS day_amount
          FROM cogni_ledger_entries e
          WHERE e.billing_account_id = ${account} AND e.called_at >= ${monthFrom} AND ${newest(sql)}) e
        GROUP BY e.run_id, e.attempt) c
      LEFT JOIN cogni_account_reservations r ON r.run_id = c.run_id AND r.attempt = c.attempt) spent`
}

/** Reads the only row of `standing`, or of `places`, which knows no amount. */
export const standingOf = (row: Row | undefined): AccountStanding => {
  const sum = (name: string): Money.Pico =>
    amountOf(row?.[`${name}_micros`] ?? 0, row?.[`${name}_rest`] ?? 0) ?? Money.zero
  return {
    runs: Number(row?.["runs"] ?? 0),
    processes: Number(row?.["processes"] ?? 0),
    day: { spent: sum("day_spent"), reserved: sum("day_reserved") },
    month: { spent: sum("month_spent"), reserved: sum("month_reserved") }
  }
}
