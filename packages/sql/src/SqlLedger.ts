/**
 * `Ledger` in a database, through Effect's `SqlClient`, shared by all processes and hosts that use it.
 *
 * Entries are only inserted. An entry whose key and revision exist changes nothing, so every operation is repeated
 * after a lost answer. Several statements of one operation are one transaction, each with a bounded number of rows.
 */
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import { type Appended, openRunsMax } from "@cogni/sandbox-ledger/LedgerRun"
import { check, isSameRun, notACursor } from "@cogni/sandbox-ledger/LedgerCheck"
import { decodeCursor, encodeCursor, placeOf } from "@cogni/sandbox-ledger/LedgerCursor"
import { corrections } from "@cogni/sandbox-ledger/LedgerEntries"
import { type LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import { revisionKey } from "@cogni/sandbox-ledger/EntryKey"
import { LedgerRunInUse, LedgerRunUnknown, LedgerUnavailable } from "@cogni/sandbox-ledger/LedgerError"
import { groupsDefault, pageEntriesMax } from "@cogni/sandbox-ledger/LedgerQuery"
import { isKeyed, type RunKey } from "@cogni/sandbox-ledger/LedgerRun"
import { Array as Arr, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import * as Database from "./Database.ts"
import * as DatabaseFault from "./internal/DatabaseFault.ts"
import { type DatabaseUnavailable, parse } from "./DatabaseAddress.ts"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import * as DaySums from "./internal/DaySums.ts"
import * as LedgerTables from "./internal/LedgerTables.ts"
import type { SchemaRefused } from "./SchemaVersion.ts"

/** Maximum number of rows that one statement inserts or looks up. */
const rowsMax = 200

/** Requires the tables, which {@link layer} creates. */
const make = Effect.gen(function* () {
  const sql = yield* SqlClient
  const writer = makeWriter(sql)

  return Ledger.of({
    open: Effect.fn("Ledger.open")(function* (run) {
      yield* check.run(run)
      const isOurs = Effect.gen(function* () {
        const row = {
          run_id: run.runId,
          attempt: run.attempt,
          host: LedgerTables.escaped(run.host),
          opened_at: run.openedAt,
          run: LedgerTables.encodeRun(run)
        }
        const inserted = yield* sql`INSERT INTO cogni_ledger_runs ${sql.insert(row)}
          ON CONFLICT (run_id, attempt) DO NOTHING RETURNING run_id`
        if (inserted.length > 0) return true
        const [found] = yield* runs(run)
        return found !== undefined && isSameRun(found, run)
      })
      if (!(yield* calls.again(isOurs)))
        return yield* new LedgerRunInUse({ runId: run.runId, attempt: run.attempt })
    }),

    append: Effect.fn("Ledger.append")(function* (given) {
      const entries = yield* check.entries(given)
      return yield* calls.again(sql.withTransaction(writer.append(entries)))
    }),

    settle: Effect.fn("Ledger.settle")(function* ({ closedAt, entries, run, runKeyHash }) {
      const valid = yield* check.entries(entries)
      yield* check.instant(closedAt)
      if (runKeyHash !== undefined) yield* check.keyHash(runKeyHash)
      const { attempt, runId } = run
      const settled = yield* calls.again(
        sql.withTransaction(
          Effect.gen(function* () {
            const known =
              yield* sql`UPDATE cogni_ledger_runs SET closed_at = COALESCE(closed_at, ${closedAt}),
              run_key_hash = COALESCE(run_key_hash, ${runKeyHash ?? null}),
              key_due_at = CASE WHEN closed_at IS NULL THEN ${closedAt} ELSE key_due_at END
              WHERE run_id = ${runId} AND attempt = ${attempt} RETURNING run_id`
            return known.length === 0 ? undefined : yield* writer.settle(valid)
          })
        )
      )
      return settled ?? (yield* new LedgerRunUnknown({ runId, attempt }))
    }),

    openRuns: (host) =>
      calls.again(
        Effect.map(
          sql<LedgerTables.RunRow>`SELECT run, closed_at, run_key_hash FROM cogni_ledger_runs
            WHERE host = ${LedgerTables.escaped(host)} AND closed_at IS NULL
            ORDER BY opened_at, run_id, attempt LIMIT ${sql.literal(String(openRunsMax))}`,
          (rows) => rows.map(LedgerTables.runOf)
        )
      ),

    keysDue: Effect.fn("Ledger.keysDue")(function* (dueBefore) {
      yield* check.instant(dueBefore)
      const rows = yield* calls.again(
        sql<LedgerTables.RunRow>`SELECT run, closed_at, run_key_hash FROM cogni_ledger_runs
          WHERE key_due_at < ${dueBefore} AND run_key_hash IS NOT NULL AND closed_at IS NOT NULL
          ORDER BY key_due_at, run_id, attempt LIMIT ${sql.literal(String(openRunsMax))}`
      )
      return rows.map(LedgerTables.runOf).filter(isKeyed)
    }),

    keyChecked: Effect.fn("Ledger.keyChecked")(function* ({ attempt, runId }, dueAgainAt) {
      if (dueAgainAt !== undefined) yield* check.instant(dueAgainAt)
      yield* calls.again(
        sql`UPDATE cogni_ledger_runs SET key_due_at = ${dueAgainAt ?? null}
          WHERE run_id = ${runId} AND attempt = ${attempt} AND key_due_at IS NOT NULL`
      )
    }),

    attempts: (...runIds) =>
      calls.again(
        Effect.map(
          sql<LedgerTables.RunRow>`SELECT run, closed_at, run_key_hash FROM cogni_ledger_runs
            WHERE ${runIds.length === 0 ? sql`1 = 0` : sql.in("run_id", [...runIds])} ORDER BY attempt, run_id`,
          (rows) => rows.map(LedgerTables.runOf)
        )
      ),

    list: Effect.fn("Ledger.list")(function* (filter, page = {}) {
      yield* check.filter(filter)
      const { after, limit = pageEntriesMax } = yield* check.page(page)
      const place = after === undefined ? undefined : decodeCursor(after)
      if (after !== undefined && place === undefined) return yield* notACursor
      const rows = yield* calls.again(
        sql<LedgerTables.Row>`SELECT ${sql.literal(LedgerTables.columns)} FROM cogni_ledger_entries e
          ${LedgerTables.where(sql, filter, place)}
          ORDER BY ${sql.literal(LedgerTables.order)} LIMIT ${sql.literal(String(limit + 1))}`
      )
      const found = rows.slice(0, limit).map(LedgerTables.entryOf)
      const last = found.at(-1)
      return rows.length > limit && last !== undefined
        ? { entries: found, next: encodeCursor(placeOf(last)) }
        : { entries: found }
    }),

    sums: Effect.fn("Ledger.sums")(function* (request) {
      const { by, filter = {}, limit = groupsDefault } = yield* check.sums(request)
      const which = LedgerTables.where(sql, { ...filter, revisions: "newest" })
      const rows = yield* calls.again(LedgerTables.sumsOf(sql, by, { which, limit }))
      const sums = rows.map(LedgerTables.sumOf).filter(({ calls }) => calls > 0)
      return { sums: sums.slice(0, limit), truncated: sums.length > limit }
    })
  })

  function runs({ attempt, runId }: RunKey) {
    return Effect.map(
      sql<LedgerTables.RunRow>`SELECT run, closed_at, run_key_hash FROM cogni_ledger_runs
        WHERE run_id = ${runId} AND attempt = ${attempt}`,
      (rows) => rows.map(LedgerTables.runOf)
    )
  }
})

/** Creates or migrates the tables. */
export const layer: Layer.Layer<Ledger, LedgerUnavailable | SchemaRefused, SqlClient> = Layer.effect(
  Ledger,
  Effect.gen(function* () {
    yield* LedgerTables.bring
    yield* DaySums.bring
    return yield* make
  }).pipe(Effect.catchTag("SqlError", (error) => Effect.fail(unavailable(error))))
)

/** Opens a ledger by the path of a SQLite file, or by the URL of a database, as `DatabaseAddress.parse` reads it. */
export const layerAt = (
  database: string
): Layer.Layer<Ledger, DatabaseUnavailable | LedgerUnavailable | SchemaRefused> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(parse(database)), (address) => Layer.provide(layer, Database.layer(address)))
  )

/** Statements that write entries, for use in a transaction. */
const makeWriter = (sql: SqlClient) => {
  const insert = Effect.fnUntraced(function* (entries: ReadonlyArray<LedgerEntry>) {
    const inserted = new Set<string>()
    for (const chunk of chunksOf(entries)) {
      const rows = yield* sql<LedgerTables.Row>`INSERT INTO cogni_ledger_entries
        ${sql.insert(Arr.map(chunk, LedgerTables.rowOf))}
        ON CONFLICT (run_id, attempt, usage_unit_id, revision) DO NOTHING
        RETURNING run_id, attempt, usage_unit_id, revision`
      for (const row of rows) inserted.add(keyOf(row))
    }
    return inserted
  })

  /** All revisions of the calls of these entries. */
  const revisions = Effect.fnUntraced(function* (entries: ReadonlyArray<LedgerEntry>) {
    const found: Array<LedgerEntry> = []
    for (const chunk of chunksOf(entries)) {
      const units = [...new Set(chunk.map(({ usageUnitId }) => LedgerTables.escaped(usageUnitId)))]
      const runIds = [...new Set(chunk.map(({ runId }) => runId))]
      const rows = yield* sql<LedgerTables.Row>`SELECT ${sql.literal(LedgerTables.columns)}
        FROM cogni_ledger_entries e WHERE ${sql.in("e.run_id", runIds)} AND ${sql.in("e.usage_unit_id", units)}`
      found.push(...rows.map(LedgerTables.entryOf))
    }
    return found
  })

  const write = Effect.fnUntraced(function* (given: ReadonlyArray<LedgerEntry>) {
    // One order in all processes, so that two transactions never wait for each other.
    const unique = new Map(given.toReversed().map((entry) => [revisionKey(entry), entry]))
    const entries = [...unique.values()].toSorted((a, b) => (revisionKey(a) < revisionKey(b) ? -1 : 1))
    const inserted = yield* insert(entries)
    const { added = [], lost = [] } = Object.groupBy(entries, (entry) =>
      inserted.has(keyOf(LedgerTables.rowOf(entry))) ? "added" : "lost"
    )
    return { added, lost, stored: lost.length === 0 ? [] : yield* revisions(lost) }
  })

  const existingOf = ({ lost, stored }: Effect.Success<ReturnType<typeof write>>) => {
    const taken = new Set(lost.map(revisionKey))
    const byKey = new Map(stored.map((entry) => [revisionKey(entry), entry]))
    return [...taken].flatMap((key) => byKey.get(key) ?? [])
  }

  return {
    append: Effect.fnUntraced(function* (
      entries: ReadonlyArray<LedgerEntry>
    ): Effect.fn.Return<Appended, SqlError> {
      const written = yield* write(entries)
      yield* DaySums.add(sql, written.added)
      return { added: written.added.length, existing: existingOf(written) }
    }),

    settle: Effect.fnUntraced(function* (
      entries: ReadonlyArray<LedgerEntry>
    ): Effect.fn.Return<Appended, SqlError> {
      const written = yield* write(entries)
      const more = corrections(written.stored, written.lost)
      const inserted = yield* insert(more)
      // A correction that another transaction has stored changes nothing: it is one of the revisions before.
      const ends = more.filter((entry) => inserted.has(keyOf(LedgerTables.rowOf(entry))))
      yield* DaySums.add(sql, [...written.added, ...ends])
      return { added: written.added.length + inserted.size, existing: existingOf(written) }
    })
  }
}

const keyOf = ({ attempt, revision, run_id, usage_unit_id }: LedgerTables.Row): string =>
  JSON.stringify([run_id, attempt, usage_unit_id, revision])

const chunksOf = <A>(all: ReadonlyArray<A>): ReadonlyArray<Arr.NonEmptyReadonlyArray<A>> =>
  Arr.chunksOf(all, rowsMax)

const unavailable = (error: SqlError): LedgerUnavailable =>
  new LedgerUnavailable(DatabaseFault.explain(error))

const calls = DatabaseCall.make(unavailable, (words) => new LedgerUnavailable(words))
