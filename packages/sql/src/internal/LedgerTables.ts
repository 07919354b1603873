/**
 * Tables of the ledger: runs, and entries that are only ever inserted.
 *
 * Amounts are 64-bit integers of pico-dollars, because SQLite has no decimal numbers and sums of floats drift. They are
 * sent and read as text, so that no driver makes a float of them. Names are stored as inside a JSON string, which
 * escapes characters that PostgreSQL's text type refuses; different names stay different.
 */
import { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import { State } from "@cogni/sandbox-ledger/EntryFields"
import type { Place } from "@cogni/sandbox-ledger/LedgerCursor"
import type { Filter, GroupBy, SpendSum } from "@cogni/sandbox-ledger/LedgerQuery"
import { LedgerRun, type SettledRun } from "@cogni/sandbox-ledger/LedgerRun"
import * as Money from "@cogni/sandbox-ledger/Money"
import { Schema } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import * as SchemaVersion from "../SchemaVersion.ts"

/** Creates or migrates the tables. */
export const bring = SchemaVersion.bring({
  versionTable: "cogni_ledger_version",
  steps: [
    {
      name: "runs",
      run: (sql) => sql`CREATE TABLE cogni_ledger_runs (
        run_id TEXT NOT NULL, attempt INTEGER NOT NULL, host TEXT NOT NULL,
        opened_at TEXT NOT NULL, closed_at TEXT, run TEXT NOT NULL,
        PRIMARY KEY (run_id, attempt))`
    },
    {
      name: "open runs",
      run: (sql) =>
        sql`CREATE INDEX cogni_ledger_open ON cogni_ledger_runs (host, opened_at) WHERE closed_at IS NULL`
    },
    {
      name: "entries",
      run: (sql) => {
        // The order of pages must not depend on the locale of the database.
        const text = sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
        return sql`CREATE TABLE cogni_ledger_entries (
          run_id ${text} NOT NULL, attempt INTEGER NOT NULL, usage_unit_id ${text} NOT NULL,
          revision INTEGER NOT NULL, called_at ${text} NOT NULL, recorded_at TEXT NOT NULL,
          billing_account_id ${text} NOT NULL, user_id ${text}, graph_id ${text}, agent_id ${text},
          virtual_key_id ${text}, run_key_hash ${text}, upstream ${text} NOT NULL, model ${text} NOT NULL,
          input_tokens BIGINT, output_tokens BIGINT, cache_read_tokens BIGINT, cache_write_tokens BIGINT,
          cache_write_1h_tokens BIGINT, cost_pico BIGINT, currency TEXT NOT NULL, price_source TEXT NOT NULL,
          reserved_pico BIGINT, streamed INTEGER NOT NULL, outcome TEXT, state TEXT NOT NULL, reason TEXT,
          detail TEXT, PRIMARY KEY (run_id, attempt, usage_unit_id, revision))`
      }
    },
    {
      name: "entries by time",
      run: (sql) => sql`CREATE INDEX cogni_ledger_called ON cogni_ledger_entries (called_at)`
    },
    {
      name: "entries by account",
      run: (sql) =>
        sql`CREATE INDEX cogni_ledger_account ON cogni_ledger_entries (billing_account_id, called_at)`
    },
    {
      name: "entries by key of a run",
      run: (sql) =>
        sql`CREATE INDEX cogni_ledger_key ON cogni_ledger_entries (run_key_hash) WHERE run_key_hash IS NOT NULL`
    },
    {
      name: "entries by call",
      run: (sql) => sql`CREATE INDEX cogni_ledger_call ON cogni_ledger_entries (usage_unit_id)`
    },
    {
      name: "upstream's ID of a call",
      run: (sql) => sql`ALTER TABLE cogni_ledger_entries ADD COLUMN upstream_call_id TEXT`
    },
    {
      name: "key of a run",
      run: (sql) => sql`ALTER TABLE cogni_ledger_runs ADD COLUMN run_key_hash TEXT`
    },
    {
      // Empty while the run is open, after the last check, and for runs that were settled before this step.
      name: "time of the next check of a key",
      run: (sql) => sql`ALTER TABLE cogni_ledger_runs ADD COLUMN key_due_at TEXT`
    },
    {
      name: "keys to check",
      run: (sql) =>
        sql`CREATE INDEX cogni_ledger_keys_due ON cogni_ledger_runs (key_due_at)
          WHERE key_due_at IS NOT NULL AND run_key_hash IS NOT NULL`
    }
  ]
})

/** Text as inside a JSON string. */
export const escaped = (text: string): string => JSON.stringify(text).slice(1, -1)

export const unescaped = (text: unknown): unknown =>
  typeof text === "string" ? (JSON.parse(`"${text}"`) as unknown) : undefined

const RunText = Schema.fromJsonString(Schema.toCodecJson(LedgerRun))
export const encodeRun = Schema.encodeSync(RunText)
const decodeRun = Schema.decodeUnknownSync(RunText)

/** Columns with a name that a host, an upstream or an agent gave, and their fields. */
const names = {
  usage_unit_id: "usageUnitId",
  upstream_call_id: "upstreamCallId",
  billing_account_id: "billingAccountId",
  user_id: "userId",
  graph_id: "graphId",
  agent_id: "agentId",
  virtual_key_id: "virtualKeyId",
  run_key_hash: "runKeyHash",
  upstream: "upstream",
  model: "model",
  detail: "detail"
} as const

const numbers = {
  input_tokens: "inputTokens",
  output_tokens: "outputTokens",
  cache_read_tokens: "cacheReadTokens",
  cache_write_tokens: "cacheWriteTokens",
  cache_write_1h_tokens: "cacheWrite1hTokens"
} as const

const amounts = { cost_pico: "costUsd", reserved_pico: "reservedUsd" } as const

/** Columns whose text needs no escape, because a schema allows few characters. */
const plain = {
  run_id: "runId",
  called_at: "at",
  recorded_at: "recordedAt",
  currency: "currency",
  price_source: "priceSource",
  outcome: "outcome",
  state: "state",
  reason: "reason"
} as const

const mapped = <Columns extends Readonly<Record<string, keyof LedgerEntry>>, A>(
  columns: Columns,
  entry: LedgerEntry,
  write: (value: NonNullable<LedgerEntry[Columns[keyof Columns]]>) => A
) =>
  Object.entries(columns).map(([column, field]) => {
    const value = entry[field] as NonNullable<LedgerEntry[Columns[keyof Columns]]> | undefined
    return [column, value === undefined ? null : write(value)] as const
  })

/** Converts an entry to a row. Every row has every column. */
export const rowOf = (entry: LedgerEntry): Record<string, number | string | null> =>
  Object.fromEntries([
    ["attempt", entry.attempt],
    ["revision", entry.revision],
    ["streamed", entry.streamed ? 1 : 0],
    ...mapped(plain, entry, String),
    ...mapped(names, entry, escaped),
    ...mapped(numbers, entry, String),
    ...mapped(amounts, entry, (usd) => String(Money.fromUsd(usd)))
  ])

/** The columns of an entry, with 64-bit integers as text. */
export const columns = [
  "attempt",
  "revision",
  "streamed",
  ...Object.keys(plain),
  ...Object.keys(names),
  ...[...Object.keys(numbers), ...Object.keys(amounts)].map((name) => `CAST(${name} AS TEXT) AS ${name}`)
].join(", ")

export type Row = Readonly<Record<string, number | string | null>>

const isEntry = Schema.decodeUnknownSync(Schema.toType(LedgerEntry))

/** Converts a row to an entry. Throws if a later version wrote what this one does not know. */
export const entryOf = (row: Row): LedgerEntry => {
  const found = <Columns extends Readonly<Record<string, string>>>(
    all: Columns,
    read: (text: string) => unknown
  ) =>
    Object.entries(all).flatMap(([column, field]) => {
      const value = row[column]
      return value === null || value === undefined ? [] : [[field, read(String(value))] as const]
    })
  return isEntry(
    Object.fromEntries([
      ["attempt", Number(row["attempt"])],
      ["revision", Number(row["revision"])],
      ["streamed", Number(row["streamed"]) === 1],
      ...found(plain, (text) => text),
      ...found(names, unescaped),
      ...found(numbers, Number),
      ...found(amounts, (text) => Money.toUsd(Money.Pico.make(BigInt(text))))
    ])
  )
}

export interface RunRow {
  readonly run: string
  readonly closed_at: string | null
  readonly run_key_hash: string | null
}

export const runOf = ({ closed_at: closedAt, run, run_key_hash: runKeyHash }: RunRow): SettledRun => ({
  ...decodeRun(run),
  ...(closedAt === null ? {} : { closedAt }),
  ...(runKeyHash === null ? {} : { runKeyHash })
})

/** Only what counts: the newest revision of each call. */
export const newest = (sql: SqlClient): Fragment =>
  sql`NOT EXISTS (SELECT 1 FROM cogni_ledger_entries n WHERE n.run_id = e.run_id AND n.attempt = e.attempt
    AND n.usage_unit_id = e.usage_unit_id AND n.revision > e.revision)`

/** Conditions of a filter on entries `e`. */
export const where = (sql: SqlClient, filter: Filter, after?: Place): Fragment => {
  const { from, revisions, runId, runIds, states, to, usageUnitIds } = filter
  const among = (column: string, values: ReadonlyArray<string>) =>
    values.length === 0 ? sql`1 = 0` : sql.in(`e.${column}`, [...values])
  const equal = Object.entries(names).flatMap(([column, field]) => {
    const value = (filter as Readonly<Record<string, unknown>>)[field]
    return typeof value === "string" ? [sql`${sql(`e.${column}`)} = ${escaped(value)}`] : []
  })
  const conditions: ReadonlyArray<Fragment> = [
    ...(revisions === "all" ? [] : [newest(sql)]),
    ...equal,
    ...(runId === undefined ? [] : [sql`e.run_id = ${runId}`]),
    ...(runIds === undefined ? [] : [among("run_id", runIds)]),
    ...(states === undefined ? [] : [among("state", states)]),
    ...(usageUnitIds === undefined ? [] : [among("usage_unit_id", usageUnitIds.map(escaped))]),
    ...(from === undefined ? [] : [sql`e.called_at >= ${from}`]),
    ...(to === undefined ? [] : [sql`e.called_at < ${to}`]),
    ...(after === undefined ? [] : [beyond(sql, after)])
  ]
  return conditions.length === 0 ? sql.literal("") : sql`WHERE ${sql.and([...conditions])}`
}

/** Entries after a place in the order of pages. */
const beyond = (sql: SqlClient, [at, runId, attempt, unit, revision]: Place): Fragment =>
  sql`(e.called_at, e.run_id, e.attempt, e.usage_unit_id, e.revision)
    > (${at}, ${runId}, ${attempt}, ${escaped(unit)}, ${revision})`

export const order = "e.called_at, e.run_id, e.attempt, e.usage_unit_id, e.revision"

/** SQL of each group. */
const groups: Readonly<Record<GroupBy, string>> = {
  total: "NULL",
  account: "e.billing_account_id",
  user: "e.user_id",
  graph: "e.graph_id",
  agent: "e.agent_id",
  model: "e.model",
  upstream: "e.upstream",
  run: "e.run_id",
  day: "SUBSTR(e.called_at, 1, 10)"
}

const count = (condition: string) => `SUM(CASE WHEN ${condition} THEN 1 ELSE 0 END)`
const tokens = (column: string) => `CAST(COALESCE(SUM(e.${column}), 0) AS TEXT)`

/** Pico-dollars in a micro-dollar. Sums are split there, so that no sum of amounts exceeds 64 bits. */
export const micro = 1_000_000

const microsOf = (amount: string) => `CAST(SUM(${amount} / ${micro}) AS BIGINT)`
const restOf = (amount: string) => `CAST(SUM(${amount} % ${micro}) AS BIGINT)`
const estimated = "CASE WHEN e.price_source = 'reservation' THEN e.cost_pico END"

/** The statement of sums, the most expensive group first, and one group more than the limit. */
export const sumsOf = (
  sql: SqlClient,
  by: GroupBy,
  { limit, which }: { readonly limit: number; readonly which: Fragment }
) => {
  const group = groups[by]
  const columns = [
    `${group} AS grouped`,
    "COUNT(*) AS calls",
    `${count("e.cost_pico IS NULL")} AS without_cost`,
    `${count("e.price_source <> 'free' AND (e.input_tokens IS NULL OR e.output_tokens IS NULL)")} AS without_tokens`,
    `${tokens("input_tokens")} AS input_tokens`,
    `${tokens("output_tokens")} AS output_tokens`,
    `${tokens("cache_read_tokens")} AS cache_read_tokens`,
    `${tokens("cache_write_tokens")} AS cache_write_tokens`,
    `CAST(${microsOf("e.cost_pico")} AS TEXT) AS micros`,
    `CAST(${restOf("e.cost_pico")} AS TEXT) AS rest`,
    `CAST(${microsOf(estimated)} AS TEXT) AS estimated_micros`,
    `CAST(${restOf(estimated)} AS TEXT) AS estimated_rest`,
    ...State.literals.map((state) => `${count(`e.state = '${state}'`)} AS ${state}`)
  ].join(", ")
  const whole = `(${microsOf("e.cost_pico")} + ${restOf("e.cost_pico")} / ${micro})`
  const ordered = `COALESCE(${whole}, -1) DESC, COALESCE(${restOf("e.cost_pico")} % ${micro}, -1) DESC`
  const grouped =
    by === "total"
      ? ""
      : `GROUP BY ${group} ORDER BY ${ordered}, ${group} IS NULL, ${group} LIMIT ${limit + 1}`
  return sql<Row>`SELECT ${sql.literal(columns)} FROM cogni_ledger_entries e ${which} ${sql.literal(grouped)}`
}

export const amountOf = (micros: unknown, rest: unknown): Money.Pico | undefined =>
  micros === null || rest === null
    ? undefined
    : Money.Pico.make(BigInt(String(micros)) * BigInt(micro) + BigInt(String(rest)))

export const sumOf = (row: Row): SpendSum => {
  const cost = amountOf(row["micros"], row["rest"])
  const estimatedCost = amountOf(row["estimated_micros"], row["estimated_rest"])
  const group = unescaped(row["grouped"]) as string | undefined
  return {
    ...(group === undefined ? {} : { group }),
    calls: Number(row["calls"]),
    callsWithoutCost: Number(row["without_cost"]),
    callsWithoutTokens: Number(row["without_tokens"]),
    inputTokens: Number(row["input_tokens"]),
    outputTokens: Number(row["output_tokens"]),
    cacheReadTokens: Number(row["cache_read_tokens"]),
    cacheWriteTokens: Number(row["cache_write_tokens"]),
    ...(cost === undefined ? {} : { cost }),
    ...(estimatedCost === undefined ? {} : { estimatedCost }),
    states: Object.fromEntries(
      State.literals.map((state) => [state, Number(row[state])])
    ) as SpendSum["states"]
  }
}
