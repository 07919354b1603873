/**
 * Table of reservations of accounts, and the statement that compares them with the tables of the ledger.
 *
 * One statement reads both, so that a run that is settled meanwhile counts either as reserved or as spent. It reads the
 * sums of the days, and no call except those of runs with a call of unknown amount.
 */
import type { AccountStanding, Periods } from "@cogni/sandbox-ledger/AccountStanding"
import type * as Money from "@cogni/sandbox-ledger/Money"
import * as MoneySums from "@cogni/sandbox-ledger/MoneySums"
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

/** The part of a reservation beyond a run's known amounts in a period. It counts if a call's amount is unknown. */
const beyondKnown = (period: string, part: "micros" | "rest"): string => {
  const own = { micros: `(${period}_micros + ${period}_rest / ${micro})`, rest: `${period}_rest % ${micro}` }
  const ofRun = { micros: `r.reserved_pico / ${micro}`, rest: `r.reserved_pico % ${micro}` }
  const isMore =
    `(${ofRun.micros} > ${own.micros} ` +
    `OR (${ofRun.micros} = ${own.micros} AND ${ofRun.rest} > ${own.rest}))`
  return `CASE WHEN ${period}_unknown > 0 AND ${isMore} THEN ${ofRun[part]} - ${own[part]} ELSE 0 END`
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
  { day, month, now }: Periods & { readonly now: string }
) => {
  const at = { now, monthFrom: month.from }
  return sql<Row>`SELECT open_runs.*, known.*, beyond.* FROM
    (SELECT ${placesOf(sql, now)},
      ${sql.literal(parts("r.reserved_pico", "month_reserved"))},
      ${sql.literal(parts("r.day_pico", "day_reserved"))}
      FROM (SELECT r.owner, r.has_ended, r.lease_until, r.reserved_pico,
        CASE WHEN r.lease_until >= ${day.from} THEN r.reserved_pico ELSE 0 END AS day_pico
        ${held(sql, account, at)}) r) open_runs
    CROSS JOIN (${knownOf(sql, account, { day, month })}) known
    CROSS JOIN (${beyondOf(sql, account, { day, month })}) beyond`
}

const bigSum = (amount: string, name: string): string =>
  `CAST(COALESCE(SUM(${amount}), 0) AS BIGINT) AS ${name}`

const dateOf = (instant: string): string => instant.slice(0, 10)

/** The known amounts of an account's calls in both periods. */
const knownOf = (sql: SqlClient, account: string, { day, month }: Periods): Fragment => {
  const inDay = sql`d.day >= ${dateOf(day.from)} AND d.day < ${dateOf(day.to)}`
  return sql`SELECT ${sql.literal(
    ["day", "month"]
      .flatMap((period) =>
        ["micros", "rest"].map((part) => bigSum(`${period}_${part}`, `${period}_spent_${part}`))
      )
      .join(", ")
  )} FROM (SELECT d.micros AS month_micros, d.rest AS month_rest,
      CASE WHEN ${inDay} THEN d.micros ELSE 0 END AS day_micros, CASE WHEN ${inDay} THEN d.rest ELSE 0 END AS day_rest
      FROM cogni_ledger_days d WHERE d.billing_account_id = ${account}
        AND d.day >= ${dateOf(month.from)} AND d.day < ${dateOf(month.to)}) d`
}

/** The parts of reservations that count for runs with calls of unknown amount. Only their calls are read. */
const beyondOf = (sql: SqlClient, account: string, { day, month }: Periods): Fragment => {
  const inDay = sql`e.called_at >= ${day.from} AND e.called_at < ${day.to}`
  const inMonth = (alias: "e" | "u") =>
    sql`${sql.literal(`${alias}.billing_account_id`)} = ${account}
      AND ${sql.literal(`${alias}.called_at`)} >= ${month.from} AND ${sql.literal(`${alias}.called_at`)} < ${month.to}`
  return sql`SELECT ${sql.literal(
    (["day", "month"] as const)
      .flatMap((period) =>
        (["micros", "rest"] as const).map((part) =>
          bigSum(beyondKnown(period, part), `${period}_beyond_${part}`)
        )
      )
      .join(", ")
  )} FROM
    (SELECT e.run_id, e.attempt,
      ${sql.literal(parts("e.amount", "month"))}, COUNT(*) - COUNT(e.amount) AS month_unknown,
      ${sql.literal(parts("e.day_amount", "day"))},
      SUM(CASE WHEN e.in_day = 1 AND e.amount IS NULL THEN 1 ELSE 0 END) AS day_unknown
      FROM (SELECT e.run_id, e.attempt, COALESCE(e.cost_pico, e.reserved_pico) AS amount,
        CASE WHEN ${inDay} THEN 1 ELSE 0 END AS in_day,
        CASE WHEN ${inDay} THEN COALESCE(e.cost_pico, e.reserved_pico) END AS day_amount
        FROM (SELECT DISTINCT u.run_id, u.attempt FROM cogni_ledger_entries u
          WHERE ${inMonth("u")} AND u.cost_pico IS NULL AND u.reserved_pico IS NULL) u
        CROSS JOIN cogni_ledger_entries e
        WHERE e.run_id = u.run_id AND e.attempt = u.attempt AND ${inMonth("e")} AND ${newest(sql)}) e
      GROUP BY e.run_id, e.attempt) c
    JOIN cogni_account_reservations r ON r.run_id = c.run_id AND r.attempt = c.attempt`
}

/** Reads the only row of `standing`, or of `places`, which knows no amount. */
export const standingOf = (row: Row | undefined): AccountStanding => {
  const sum = (name: string): Money.Pico =>
    amountOf(row?.[`${name}_micros`] ?? 0, row?.[`${name}_rest`] ?? 0) ?? MoneySums.zero
  return {
    runs: Number(row?.["runs"] ?? 0),
    processes: Number(row?.["processes"] ?? 0),
    day: { spent: MoneySums.add(sum("day_spent"), sum("day_beyond")), reserved: sum("day_reserved") },
    month: { spent: MoneySums.add(sum("month_spent"), sum("month_beyond")), reserved: sum("month_reserved") }
  }
}
