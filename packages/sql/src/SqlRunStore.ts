/**
 * `RunStore` in a database, so that all processes and hosts that use it share the same run records.
 *
 * The process that inserts the row of a run owns its ID. The spool on this host, the run's directory, gets each final
 * record first. Records that the database could not store are synced from it later. So if the database is unavailable
 * when a run ends, no record is lost. If it is unavailable before the start, the run does not start.
 */
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunSearch from "@cogni/sandbox-core/RunSearch"
import { type OpenRun, RunStore, type RunStoreError } from "@cogni/sandbox-core/RunStore"
import { abandonedIfOver, begun, briefOf, outputOf } from "@cogni/sandbox-core/RecordForms"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import { type HostFailed, RunIdInUse, StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import type { SchemaRefused } from "./SchemaVersion.ts"
import { Context, DateTime, Effect, Layer, type Schema, type Scope } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { explain, isPassing } from "./internal/DatabaseFault.ts"
import * as BriefTable from "./internal/BriefTable.ts"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import * as RunTables from "./internal/RunTables.ts"

/** Maximum number of listed records. The newest are listed. */
const listedMax = 500

/** Maximum number of runs in one sync of the spool. The next sync continues. */
const syncedMax = 500

/** Maximum number of readings of one search. If few of the runs that they return fit, the page is short. */
const readingsMax = 20

/** The run records that this host keeps, independent of the database. */
interface Spool {
  readonly store: RunStore["Service"]
  /** Runs whose records in the database may be incomplete. */
  readonly pending: Effect.Effect<ReadonlyArray<RunId>, HostFailed>
  readonly mark: (runId: RunId) => Effect.Effect<void, HostFailed>
  readonly clear: (runId: RunId) => Effect.Effect<void, HostFailed>
}

export interface Options {
  readonly spool: Spool
  /** `ResourceLabels.formatOwner` of this process. */
  readonly owner: string
  /** Name of this machine, the same in every boot. */
  readonly host: string
  /** Returns whether a run that is recorded as running is over. */
  readonly isOver: (record: RunRecord) => boolean
}

/** Operations of a run database in addition to `RunStore`. */
export class SqlRunStore extends Context.Service<
  SqlRunStore,
  {
    /** Syncs the spool to the database. Returns the synced runs that have ended. Runs under way keep their mark. */
    readonly sync: Effect.Effect<ReadonlyArray<RunId>, RunStoreError>
    /** Syncs these runs again, because the spool has new data about them. */
    readonly refresh: (runIds: ReadonlyArray<RunId>) => Effect.Effect<void, RunStoreError>
    /**
     * Deletes the records of ended runs, of this machine or of all, but not their files. Returns their IDs. With
     * `dryRun`, nothing is deleted.
     */
    readonly forget: (options: {
      readonly everyHost: boolean
      readonly dryRun?: boolean | undefined
    }) => Effect.Effect<ReadonlyArray<RunId>, RunStoreError>
  }
>()("@cogni/sandbox-sql/SqlRunStore") {}

/** Requires existing tables, which {@link layer} creates. */
const make = Effect.fnUntraced(function* (options: Options) {
  const { isOver, spool } = options
  const sql = yield* SqlClient
  const writer = makeWriter(sql, options)

  const asTold = (record: RunRecord): RunRecord => abandonedIfOver(record, isOver)

  const describe = Effect.fnUntraced(function* (runId: RunId) {
    const record = RunTables.annotatedOf(yield* RunTables.rowsOf(sql, runId, false))
    return record && asTold(record)
  })

  const get = Effect.fnUntraced(function* (runId: RunId) {
    const rows = yield* RunTables.rowsOf(sql, runId, true)
    const record = RunTables.annotatedOf(rows)
    if (record === undefined || outputOf(record) === undefined) return record && asTold(record)
    const outputs = yield* sql<RunTables.OutputRow>`SELECT channel, encoding, bytes FROM cogni_run_outputs
      WHERE run_id = ${runId}`
    return RunTables.withOutput(record, outputs)
  })

  const list = Effect.gen(function* () {
    const rows = yield* sql<RunTables.RunRow>`SELECT run_id, record FROM cogni_runs
      ORDER BY started_at DESC, run_id DESC LIMIT ${sql.literal(String(listedMax))}`
    return yield* recordsOf(rows)
  })

  /** Reads the annotations of rows, and returns their records. */
  const recordsOf = Effect.fnUntraced(function* (rows: ReadonlyArray<RunTables.RunRow>) {
    if (rows.length === 0) return []
    const notes = yield* RunTables.annotationsOf(sql, rows)
    return rows
      .map((row) => RunTables.recordOf(row, notes.get(row.run_id) ?? []))
      .filter((record) => record !== undefined)
      .map(asTold)
  })

  /** Returns the briefs of rows. One that an earlier version did not write, or left behind, is made of its record. */
  const briefsOf = Effect.fnUntraced(function* (rows: ReadonlyArray<BriefTable.BriefRow>) {
    const lacking = rows.flatMap(({ brief, run_id }) => (brief === null ? [run_id] : []))
    const others = lacking.length === 0 ? [] : yield* recordsOf(yield* RunTables.someOf(sql, lacking))
    const made = new Map<string, RunRecord>(others.map((record) => [record.runId, briefOf(record)]))
    return rows.flatMap((row) => {
      const record = BriefTable.recordOf(row)
      return record === undefined ? (made.get(row.run_id) ?? []) : asTold(record)
    })
  })

  /** Reads briefs in the order of pages until enough of them fit, or until it has read many that do not. */
  const search = Effect.fnUntraced(function* (asked: RunSearch.RunSearch) {
    const limit = RunSearch.limitOf(asked)
    const found: Array<RunRecord> = []
    let { after } = asked
    for (let reading = 0; reading < readingsMax; reading++) {
      const rows = yield* BriefTable.read(sql, { filter: asked.filter ?? {}, after, limit: limit + 1 })
      for (const record of yield* briefsOf(rows)) {
        // A run that is stored as running may have been abandoned since.
        if (!RunSearch.matches(RunFacts.of(record), asked.filter)) continue
        const last = found.at(-1)
        if (found.length === limit && last !== undefined)
          return { records: found, next: RunSearch.placeOf(last) }
        found.push(record)
      }
      const last = rows.at(-1)
      if (last === undefined || rows.length <= limit) return { records: found }
      after = { startedAt: last.started_at, runId: RunId.make(last.run_id) }
    }
    return { records: found, ...(after === undefined ? {} : { next: after }) }
  })

  /** Writes a record. One that the database rejects is logged and skipped, so that it does not block the others. */
  const written = (record: RunRecord) =>
    Effect.as(writer.write(record), true).pipe(
      Effect.catchIf(
        (error) => !isPassing(error),
        (error) =>
          Effect.as(
            Effect.logWarning(`run ${record.runId} was not stored: the database ${explain(error).detail}`),
            false
          )
      )
    )

  const sync = Effect.gen(function* () {
    const synced: Array<RunId> = []
    for (const runId of yield* spool.pending) {
      if (synced.length >= syncedMax) break
      const record = yield* spool.store.get(runId)
      if (record?.outcome.status === "running") {
        // The run may belong to an earlier version that does not use the database.
        yield* database.once(writer.claim(record, "synced"))
        continue
      }
      if (record !== undefined) {
        if (!(yield* database.once(written(record)))) continue
        synced.push(runId)
      }
      yield* spool.clear(runId)
    }
    return synced
  })

  const forget = Effect.fnUntraced(function* (asked: Parameters<SqlRunStore["Service"]["forget"]>[0]) {
    const rows = yield* sql<RunTables.RunRow>`SELECT run_id, record FROM cogni_runs
      ${asked.everyHost ? sql.literal("") : sql`WHERE host = ${options.host}`}`
    const over = rows.flatMap((row) => {
      const record = RunTables.recordOf(row, [])
      return record === undefined || asTold(record).outcome.status === "running" ? [] : [record.runId]
    })
    if (asked.dryRun === true) return over
    yield* sql.withTransaction(
      Effect.forEach(over, (runId) => sql`DELETE FROM cogni_runs WHERE run_id = ${runId}`, { discard: true })
    )
    return over
  })

  return {
    store: RunStore.of({
      open: makeOpen(writer, options),
      annotate: makeAnnotate(writer, options),
      get: (runId) => database.once(get(runId)),
      describe: (runId) => database.once(describe(runId)),
      list: database.once(list),
      search: (asked) => database.once(search(asked)),
      // The audits of runs are on this host, so this host recovers them.
      settle: spool.store.settle,
      recover: spool.store.recover
    }),
    operations: SqlRunStore.of({
      sync,
      refresh: (runIds) => Effect.andThen(Effect.forEach(runIds, spool.mark, { discard: true }), sync),
      forget: Effect.fn("SqlRunStore.forget")(function* (asked) {
        const runIds = yield* database.once(forget(asked))
        if (asked.dryRun !== true) yield* Effect.forEach(runIds, spool.clear, { discard: true })
        return runIds
      })
    })
  }
})

/** Creates or migrates the tables, and syncs the spool to them. */
export const layer = (
  options: Options
): Layer.Layer<RunStore | SqlRunStore, StoreUnavailable | SchemaRefused, SqlClient> =>
  Layer.effectContext(
    Effect.gen(function* () {
      yield* Effect.catchTag(RunTables.bring, "SqlError", (error) => Effect.fail(unavailable(error)))
      const { operations, store } = yield* make(options)
      // Runs that cannot be synced now keep their mark.
      yield* operations.sync.pipe(
        Effect.catch((error) =>
          Effect.logWarning(`some runs of this host are not in the database yet. ${error.message}`)
        )
      )
      return Context.make(RunStore, store).pipe(Context.add(SqlRunStore, operations))
    })
  )

const unavailable = (error: SqlError): StoreUnavailable => new StoreUnavailable(explain(error))

const database = DatabaseCall.make(unavailable, (words) => new StoreUnavailable(words))

/** The statements that write, each atomic. */
const makeWriter = (sql: SqlClient, { host }: Pick<Options, "host">) => {
  const annotate = (runId: RunId, annotations: Readonly<Record<string, Schema.Json>>) =>
    Effect.forEach(
      RunTables.annotationRowsOf(runId, annotations),
      (row) => sql`INSERT INTO cogni_run_annotations ${sql.insert({ ...row })}
        ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value`,
      { discard: true }
    )

  /** Writes what follows from the record of a run and all its annotations. */
  const derived = Effect.fnUntraced(function* (runId: RunId) {
    const record = RunTables.annotatedOf(yield* RunTables.rowsOf(sql, runId, false))
    if (record !== undefined) yield* RunTables.writeDerived(sql, record)
  })

  return {
    /** Claims a run ID, and returns whether this claim holds it. Idempotent, for a retry after a lost response. */
    claim: Effect.fnUntraced(function* (record: RunRecord, claimId: string) {
      const row = { ...RunTables.rowOf(record), host, claim_id: claimId }
      const won = yield* sql.withTransaction(
        Effect.tap(
          sql`INSERT INTO cogni_runs ${sql.insert(row)} ON CONFLICT (run_id) DO NOTHING RETURNING run_id`,
          ({ length }) => (length === 0 ? Effect.void : RunTables.writeDerived(sql, record))
        )
      )
      if (won.length > 0) return true
      const [holder] = yield* sql<{ readonly claim_id: string }>`SELECT claim_id FROM cogni_runs
        WHERE run_id = ${record.runId}`
      return holder?.claim_id === claimId
    }),

    unclaim: (runId: RunId, claimId: string) =>
      sql`DELETE FROM cogni_runs WHERE run_id = ${runId} AND claim_id = ${claimId}`,

    /** Replaces the record of a run. Annotations by others stay. */
    write: (record: RunRecord) =>
      sql.withTransaction(
        Effect.gen(function* () {
          const row = { ...RunTables.rowOf(record), host, claim_id: "synced" }
          yield* sql`INSERT INTO cogni_runs ${sql.insert(row)}
            ON CONFLICT (run_id) DO UPDATE SET owner = excluded.owner, status = excluded.status,
              started_at = excluded.started_at, ended_at = excluded.ended_at, record = excluded.record`
          yield* sql`DELETE FROM cogni_run_outputs WHERE run_id = ${record.runId}`
          for (const output of RunTables.outputRowsOf(record)) {
            yield* sql`INSERT INTO cogni_run_outputs ${sql.insert({ ...output })}`
          }
          yield* annotate(record.runId, record.annotations ?? {})
          yield* derived(record.runId)
        })
      ),

    /** Adds annotations, and returns the status of the run. Returns `undefined` if the run is not stored. */
    annotate: (runId: RunId, annotations: Readonly<Record<string, Schema.Json>>) =>
      sql.withTransaction(
        Effect.gen(function* () {
          // Two writers of one run would each miss the other's annotation in what follows from them.
          const locked = sql.literal(sql.onDialectOrElse({ pg: () => "FOR UPDATE", orElse: () => "" }))
          const [row] = yield* sql<{ readonly status: string }>`SELECT status FROM cogni_runs
            WHERE run_id = ${runId} ${locked}`
          if (row !== undefined) {
            yield* annotate(runId, annotations)
            yield* derived(runId)
          }
          return row?.status
        })
      )
  }
}

type Writer = ReturnType<typeof makeWriter>

const now = Effect.map(DateTime.now, DateTime.formatIso)

const makeOpen = (writer: Writer, { owner, spool }: Options) => {
  /** Writes the record to the database, or leaves it for a later sync. Never fails a run that has ended. */
  const deliver = (record: RunRecord) =>
    Effect.andThen(database.again(writer.write(record)), spool.clear(record.runId)).pipe(
      Effect.catch((error) =>
        // Marked again, because `annotate` may have cleared the mark.
        Effect.andThen(
          Effect.ignore(spool.mark(record.runId)),
          Effect.logWarning(
            `the record of run ${record.runId} is kept on this host and synced to the database later. ${error.message}`
          )
        )
      )
    )

  return Effect.fn("RunStore.open")(function* (
    runId: RunId,
    spec: SandboxSpec.SandboxSpec
  ): Effect.fn.Return<OpenRun, RunIdInUse | RunStoreError, Scope.Scope> {
    const first = begun({ runId, spec, owner, startedAt: yield* now })
    const claimId = crypto.randomUUID()
    // Action of the finalizer. Set before each step, so that an interruption cannot come in between.
    let owed: "nothing" | "unclaim" | "interrupted" = "nothing"
    yield* Effect.addFinalizer(() => {
      if (owed === "nothing") return Effect.void
      if (owed === "unclaim") {
        // The mark stays, because the spool may have another run with this ID.
        return Effect.ignore(database.once(writer.unclaim(runId, claimId)), { log: "Debug" })
      }
      return Effect.flatMap(now, (endedAt) =>
        deliver({ ...first, endedAt, outcome: { status: "interrupted" } })
      )
    })
    owed = "unclaim"
    if (!(yield* database.again(writer.claim(first, claimId)))) {
      owed = "nothing"
      return yield* new RunIdInUse({ runId })
    }
    yield* spool.mark(runId)
    owed = "interrupted"
    const inner = yield* Effect.tapError(spool.store.open(runId, spec), () =>
      Effect.sync(() => {
        owed = "unclaim"
      })
    )
    return {
      directory: inner.directory,
      owner,
      save: (record) =>
        Effect.suspend(() => {
          owed = "nothing"
          return Effect.andThen(inner.save(record), deliver(record))
        })
    }
  })
}

const makeAnnotate = (writer: Writer, { spool }: Options) =>
  Effect.fn("RunStore.annotate")(function* (
    runId: RunId,
    annotations: Readonly<Record<string, Schema.Json>>
  ): Effect.fn.Return<void, RunStoreError> {
    yield* spool.mark(runId)
    yield* spool.store.annotate(runId, annotations)
    const asked = Effect.gen(function* () {
      const status = yield* database.again(writer.annotate(runId, annotations))
      if (status === "running") return
      // If only the spool has the run, write its whole record.
      const record = status === undefined ? yield* spool.store.get(runId) : undefined
      if (record?.outcome.status === "running") return
      if (record !== undefined) yield* database.again(writer.write(record))
      yield* spool.clear(runId)
    })
    yield* Effect.catchTag(asked, "StoreUnavailable", (error) =>
      Effect.flatMap(spool.store.get(runId), (record) =>
        record === undefined
          ? Effect.fail(error)
          : Effect.logWarning(
              `the annotations of run ${runId} are kept on this host and synced to the database later. ${error.message}`
            )
      )
    )
  })
