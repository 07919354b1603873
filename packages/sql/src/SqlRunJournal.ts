/**
 * `RunJournal` in the run database, so that the events of a run can be followed on every host.
 *
 * Lines of all runs of a process wait in memory, and are written together, five times a second. A database that does
 * not answer delays events, and never a run. If too much waits, output is dropped. Journals are removed after some
 * days, and sooner if all of them take too much room.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { Array as Arr, Clock, Deferred, Effect, Layer, Schedule, type Scope } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { explain } from "./internal/DatabaseFault.ts"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import * as JournalTable from "./internal/JournalTable.ts"
import * as RunTables from "./internal/RunTables.ts"
import type * as SchemaVersion from "./SchemaVersion.ts"

export interface SqlRunJournalOptions {
  /** Time for which journals are kept (default 7 days). */
  readonly keptDays?: number | undefined
  /**
   * Size of all journals (default 1 GiB). Beyond it, journals of the account that has the most are removed: first the
   * oldest ones that have ended.
   */
  readonly keptBytesMax?: number | undefined
  /**
   * Size of what waits for the database, of all runs of this process (default 64 MiB). A run may use as much as is
   * still free. Beyond it, its output, messages and tools are dropped.
   */
  readonly waitingBytesMax?: number | undefined
}

const defaults = { keptDays: 7, keptBytesMax: 2 ** 30, waitingBytesMax: 64 * 1024 * 1024 }

/** Maximum size of a transaction, which must end within the time of a call. */
const batchMax = { rowsMax: 64, bytesMax: 4 * 1024 * 1024 }

/** The same after a failure: the database may be slow. */
const batchAgainMax = { rowsMax: 8, bytesMax: 512 * 1024 }

/** Time for which lines wait for others. */
const gatherMillis = 200

/** Time after which a database that did not answer is asked again. */
const againMillis = 2000

/** Time for which the end of a run waits until its journal is written. */
const closeSecondsMax = 5

/** Rows that are read at once. */
const rowsMax = 16

/** Entries of a run that are not written yet. */
interface Pages {
  readonly pen: ReturnType<typeof RunJournal.makePen>
  readonly waiting: Array<JournalTable.Piece>
  waitingBytes: number
  /** Nothing of this run is in the table yet, except rows of a forgotten run with its ID. */
  isNew: boolean
  isClosed: boolean
  /** Completes when everything is written after the close. */
  readonly done: Deferred.Deferred<void>
}

/** Pieces of a run that are written together. */
interface Due {
  readonly runId: RunId
  readonly pages: Pages
  readonly pieces: ReadonlyArray<JournalTable.Piece>
}

/** Writes pieces that wait. A repetition after a lost answer writes the same rows again. */
const put = Effect.fnUntraced(function* (sql: SqlClient, due: ReadonlyArray<Due>) {
  const written_at = new Date(yield* Clock.currentTimeMillis).toISOString()
  const rows: ReadonlyArray<Record<string, unknown>> = due.flatMap(({ pieces, runId }) =>
    pieces.map(({ bytes, first, isEnd, last, text }) => ({
      run_id: runId,
      first_seq: first,
      last_seq: last,
      ended: isEnd ? 1 : 0,
      bytes,
      written_at,
      lines: text
    }))
  )
  if (!Arr.isReadonlyArrayNonEmpty(rows)) return
  const fresh = due.flatMap(({ pages, runId }) => (pages.isNew ? [runId] : []))
  if (fresh.length > 0) yield* sql`DELETE FROM cogni_run_journal WHERE ${sql.in("run_id", fresh)}`
  yield* sql`INSERT INTO cogni_run_journal ${sql.insert(rows)}
    ON CONFLICT (run_id, first_seq) DO UPDATE SET last_seq = excluded.last_seq, ended = excluded.ended,
      bytes = excluded.bytes, written_at = excluded.written_at, lines = excluded.lines`
})

const makeJournals = Effect.fnUntraced(function* ({
  waitingBytesMax = defaults.waitingBytesMax
}: SqlRunJournalOptions) {
  const sql = yield* SqlClient
  const scope = yield* Effect.scope
  const written = new Map<RunId, Pages>()
  let waitingBytes = 0
  let isWriting = false
  /** Completes when the lines are not to wait for others: a run has ended. */
  let urgent = Deferred.makeUnsafe<void>()
  let isFailing = false
  let isCrowded = false

  /** Takes what the next transaction writes: of runs in turn, as much as a database takes at once. */
  const take = (): { readonly due: ReadonlyArray<Due>; readonly isMore: boolean } => {
    const runs = [...written].filter(([, { waiting }]) => waiting.length > 0)
    const counts = JournalTable.countsOf(
      runs.map(([, { waiting }]) => waiting),
      isFailing ? batchAgainMax : batchMax
    )
    const due = runs.flatMap(([runId, pages], at) => {
      const pieces = pages.waiting.slice(0, counts[at])
      for (const piece of pieces) piece.isTaken = true
      return pieces.length === 0 ? [] : [{ runId, pages, pieces }]
    })
    return { due, isMore: runs.some(([, { waiting }], at) => waiting.length > counts[at]!) }
  }

  /** Notes what was written. */
  const settle = (due: ReadonlyArray<Due>) => {
    for (const { pages, pieces, runId } of due) {
      const bytes = pieces.reduce((sum, piece) => sum + piece.bytes, 0)
      pages.waiting.splice(0, pieces.length)
      pages.waitingBytes -= bytes
      waitingBytes -= bytes
      pages.isNew = false
      // The other runs are first the next time.
      written.delete(runId)
      written.set(runId, pages)
    }
    for (const [runId, { done, isClosed, waiting }] of written) {
      if (!isClosed || waiting.length > 0) continue
      written.delete(runId)
      Deferred.doneUnsafe(done, Effect.void)
    }
  }

  /** Writes some of what waits. Returns `again` if the database did not take it. */
  const flush = Effect.suspend(() => {
    const { due, isMore } = take()
    const putting = due.length === 0 ? Effect.void : database.again(sql.withTransaction(put(sql, due)))
    return putting.pipe(
      Effect.map(() => {
        settle(due)
        isFailing = false
        isCrowded &&= isMore
        return isMore ? ("more" as const) : ("done" as const)
      }),
      Effect.catch(({ message }) => {
        const isFirst = !isFailing
        isFailing = true
        return Effect.as(
          isFirst ? Effect.logWarning(`the events of runs are written later. ${message}`) : Effect.void,
          "again" as const
        )
      })
    )
  })

  const isDue = () => [...written.values()].some(({ isClosed, waiting }) => isClosed || waiting.length > 0)

  /** Writes until nothing waits. */
  const writing = Effect.suspend(() => {
    if (isWriting || !isDue()) return Effect.void
    isWriting = true
    const gather = Effect.raceFirst(
      Effect.sleep(gatherMillis),
      Effect.suspend(() => Deferred.await(urgent))
    )
    const round = Effect.gen(function* () {
      for (let before = "done"; ;) {
        // Noted in the same step: a line that comes later begins another round.
        if (!isDue()) return void (isWriting = false)
        if (before === "done") yield* gather
        urgent = Deferred.makeUnsafe<void>()
        before = yield* flush
        if (before === "again") yield* Effect.sleep(againMillis)
      }
    })
    return round.pipe(
      Effect.onInterrupt(() => Effect.sync(() => void (isWriting = false))),
      Effect.forkIn(scope, { startImmediately: true }),
      Effect.asVoid
    )
  })
  // Writes the rest when the process ends in order, for as long as one call may take.
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      const end = (yield* Clock.currentTimeMillis) + DatabaseCall.callSecondsMax * 1000
      while (isDue() && (yield* Clock.currentTimeMillis) < end) if ((yield* flush) === "again") return
    })
  )

  /** Logs that output is dropped, once until the database has taken what waits. */
  const crowded = Effect.suspend(() => {
    if (isCrowded) return Effect.void
    isCrowded = true
    return Effect.logWarning(
      `output of runs is missing in their events: more than ${waitingBytesMax} bytes would wait for the database`
    )
  })

  /** Reads rows until a page is full. */
  const read = Effect.fnUntraced(function* (
    runId: RunId,
    asked: { readonly after: number; readonly bytesMax: number; readonly limit: number }
  ) {
    const entries: Array<RunJournal.JournalEntry> = []
    for (let from = asked.after; ;) {
      const limit = sql.literal(String(rowsMax))
      const rows = yield* sql<{ readonly last_seq: number; readonly lines: string }>`
        SELECT last_seq, lines FROM cogni_run_journal
        WHERE run_id = ${runId} AND last_seq > ${from} ORDER BY first_seq LIMIT ${limit}`
      entries.push(...rows.flatMap(({ lines }) => JournalTable.entriesOf(lines)))
      const page = RunJournal.pageOf(entries, asked)
      const last = rows.at(-1)
      if (rows.length === rowsMax && last !== undefined && page.entries.at(-1)?.seq === entries.at(-1)?.seq) {
        from = Number(last.last_seq)
        continue
      }
      if (page.entries.length > 0) return page
      const [state] = yield* sql<{ readonly ended: number | null }>`
        SELECT MAX(ended) AS ended FROM cogni_run_journal WHERE run_id = ${runId}`
      if (state === undefined || state.ended === null) return undefined
      return { entries: [], ended: Number(state.ended) === 1 }
    }
  })

  return RunJournal.withHolds({
    write: (runId, event) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        // A journal begins with its run: later events of a run that has ended are not written.
        if (event.type === "run.started" && !written.has(runId))
          written.set(runId, {
            pen: RunJournal.makePen(),
            waiting: [],
            waitingBytes: 0,
            isNew: true,
            isClosed: false,
            done: Deferred.makeUnsafe()
          })
        const pages = written.get(runId)
        if (pages === undefined || pages.isClosed) return Effect.void
        // Marks and ends of runs have as much room again.
        if (waitingBytes >= 2 * waitingBytesMax) return Effect.andThen(crowded, writing)
        const isTooMuch = pages.waitingBytes >= waitingBytesMax - waitingBytes
        for (const { entry, line } of pages.pen(event, new Date(now).toISOString(), isTooMuch)) {
          const isEnd = entry.type === "run.ended"
          const bytes = JournalTable.add(pages.waiting, { seq: entry.seq, line, isEnd })
          pages.waitingBytes += bytes
          waitingBytes += bytes
        }
        if (isTooMuch) return Effect.andThen(crowded, writing)
        return writing
      }),
    close: (runId) =>
      Effect.suspend(() => {
        const pages = written.get(runId)
        if (pages === undefined) return Effect.void
        pages.isClosed = true
        Deferred.doneUnsafe(urgent, Effect.void)
        // A database that does not answer gets the rest later.
        return Effect.andThen(
          writing,
          Effect.timeoutOption(Deferred.await(pages.done), `${closeSecondsMax} seconds`)
        )
      }),
    read: ({ after = 0, bytesMax = RunJournal.journalBytesMax, limit = RunJournal.pageEntriesMax, runId }) =>
      database.again(read(runId, { after, bytesMax, limit }))
  })
})

/** Removes journals that are too old, and those of the largest account while all of them take too much room. */
const sweep = ({
  keptBytesMax = defaults.keptBytesMax,
  keptDays = defaults.keptDays
}: SqlRunJournalOptions) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient
    const oldest = new Date((yield* Clock.currentTimeMillis) - keptDays * 86_400_000).toISOString()
    yield* sql`DELETE FROM cogni_run_journal WHERE written_at < ${oldest}`
    // The accounts of runs are in the tables of the run store, which may not have been opened yet.
    yield* RunTables.bring
    const rows = yield* sql<{
      readonly run_id: string
      readonly bytes: string
      readonly account: string | null
    }>`
      SELECT j.run_id, CAST(SUM(j.bytes) AS TEXT) AS bytes, MAX(f.billing_account_id) AS account
      FROM cogni_run_journal j LEFT JOIN cogni_run_facts f ON f.run_id = j.run_id
      GROUP BY j.run_id ORDER BY MAX(j.ended) DESC, MAX(j.written_at)`
    const runs = rows.map(({ account, bytes, run_id }) => ({
      runId: run_id,
      bytes: Number(bytes),
      account: account ?? ""
    }))
    yield* Effect.forEach(
      JournalTable.beyond(runs, keptBytesMax),
      (runId) => sql`DELETE FROM cogni_run_journal WHERE run_id = ${runId}`,
      { discard: true }
    )
  })

/** Journals in the database. Old ones are removed when the layer is built, and every hour. */
export const layer = (
  options: SqlRunJournalOptions = {}
): Layer.Layer<never, StoreUnavailable | SchemaVersion.SchemaRefused, SqlClient> =>
  Layer.effect(RunJournal.RunJournal, make(options))

/** The same, without a layer: until the end of the scope. */
export const make = Effect.fnUntraced(function* (
  options: SqlRunJournalOptions = {}
): Effect.fn.Return<
  RunJournal.RunJournals,
  StoreUnavailable | SchemaVersion.SchemaRefused,
  SqlClient | Scope.Scope
> {
  yield* JournalTable.bring.pipe(
    Effect.catchTag("SqlError", (error: SqlError) => Effect.fail(unavailable(error)))
  )
  yield* sweep(options).pipe(
    Effect.catchTag("SqlError", (error) => Effect.fail(unavailable(error))),
    Effect.catch(({ message }) => Effect.logWarning(`old events of runs were not removed. ${message}`)),
    Effect.repeat(Schedule.spaced("1 hour")),
    Effect.forkScoped
  )
  return yield* makeJournals(options)
})

/** Removes the journals of runs, such as those whose records are deleted. */
export const forget = Effect.fnUntraced(function* (
  runIds: ReadonlyArray<string>
): Effect.fn.Return<void, StoreUnavailable | SchemaVersion.SchemaRefused, SqlClient> {
  const sql = yield* SqlClient
  yield* JournalTable.bring.pipe(
    Effect.catchTag("SqlError", (error: SqlError) => Effect.fail(unavailable(error)))
  )
  yield* Effect.forEach(
    runIds,
    (runId) => database.again(sql`DELETE FROM cogni_run_journal WHERE run_id = ${runId}`),
    { discard: true }
  )
})

const unavailable = (error: SqlError): StoreUnavailable => new StoreUnavailable(explain(error))

const database = DatabaseCall.make(unavailable, (words) => new StoreUnavailable(words))
