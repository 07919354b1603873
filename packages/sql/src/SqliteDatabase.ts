/**
 * Effect's `SqlClient` over Node's built-in SQLite: one file, one connection, no server.
 *
 * Several processes may have the file open. A call into SQLite blocks the whole process, including the gateway, so it
 * waits for a lock only briefly, and is retried later. Every transaction begins as a writer, because a reader cannot
 * become a writer after another process wrote.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Duration, Effect, Layer, Schedule, type Scope, Semaphore, Stream } from "effect"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as SqlClient from "effect/sql/SqlClient"
import type { Connection } from "effect/sql/SqlConnection"
import { classifySqliteError, ConnectionError, SqlError } from "effect/sql/SqlError"
import * as Statement from "effect/sql/Statement"
import { dirname } from "node:path"
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite"

/** Maximum time in milliseconds that one call blocks the process when the file is locked. */
export const lockWaitMillisMax = 10

/** Seconds during which a statement, or the start of a transaction, is retried while the file is locked. */
export const lockRetrySecondsMax = 15

/** Maximum number of cached prepared statements. The least recently used one is evicted. */
export const preparedStatementsMax = 100

/** Opens the file. Creates it and missing parent directories with access for the owner only. */
export const make = Effect.fnUntraced(function* (options: {
  /** Absolute path of the file. */
  readonly path: string
}): Effect.fn.Return<SqlClient.SqlClient, SqlError, Scope.Scope | Reactivity.Reactivity> {
  const connection = yield* connect(options.path)
  const acquirers = SqlClient.makeSqliteAcquirers<SqliteConnection>({
    connection: Effect.succeed(connection),
    semaphore: yield* Semaphore.make(1),
    isTransaction: ({ isTransaction }) => isTransaction()
  })
  return yield* SqlClient.make({
    ...acquirers,
    compiler,
    driver: "node:sqlite",
    prepareTransactionControls: true,
    beginTransaction: "BEGIN IMMEDIATE",
    releaseSavepoint: (name) => `RELEASE SAVEPOINT ${name}`,
    spanAttributes: [["db.system.name", "sqlite"]]
  })
})

export const layer = (options: { readonly path: string }): Layer.Layer<SqlClient.SqlClient, SqlError> =>
  Layer.effect(SqlClient.SqlClient, make(options)).pipe(Layer.provide(Reactivity.layer))

interface SqliteConnection extends Connection {
  readonly isTransaction: () => boolean
}

const compiler = Statement.makeCompilerSqlite()

/** Retry schedule for a locked file. Locks last milliseconds. Jitter avoids retries at the same moment. */
const untilUnlocked = Schedule.exponential("2 millis", 1.5).pipe(
  Schedule.modifyDelay(({ duration }) => Effect.succeed(Duration.min(duration, Duration.millis(100)))),
  Schedule.jittered,
  Schedule.upTo({ duration: `${lockRetrySecondsMax} seconds` })
)

const connect = Effect.fnUntraced(function* (
  path: string
): Effect.fn.Return<SqliteConnection, SqlError, Scope.Scope> {
  yield* Effect.tryPromise({ try: () => OwnFiles.makeDirectory(dirname(path)), catch: failedTo("open") })
  const database = yield* Effect.acquireRelease(
    attempt("open", () => {
      // SQLite gives the files that it creates beside this one the same mode.
      OwnFiles.secureSync(path)
      return new DatabaseSync(path, { timeout: lockWaitMillisMax, enableForeignKeyConstraints: true })
    }),
    (opened) => Effect.sync(() => opened.close())
  )
  for (const pragma of ["journal_mode = WAL", "synchronous = NORMAL"]) {
    yield* retried(
      database,
      attempt("open", () => database.exec(`PRAGMA ${pragma}`))
    )
  }
  return makeConnection(database)
})

const makeConnection = (database: DatabaseSync): SqliteConnection => {
  const prepared = new Map<string, StatementSync>()
  const prepare = (sql: string): StatementSync => {
    const found = prepared.get(sql) ?? database.prepare(sql)
    prepared.delete(sql)
    prepared.set(sql, found)
    for (const [oldest] of prepared) {
      if (prepared.size <= preparedStatementsMax) break
      prepared.delete(oldest)
    }
    return found
  }

  const query = <A>(run: () => A) => retried(database, attempt("execute", run))
  const all = <A>(statement: () => StatementSync, params: ReadonlyArray<unknown>, returnArrays: boolean) =>
    query(() => {
      const made = statement()
      made.setReturnArrays(returnArrays)
      return made.all(...params.map(inputOf)) as unknown as ReadonlyArray<A>
    })
  const rows =
    (prepared: typeof prepare): Connection["execute"] =>
    (sql, params, transformRows = (found) => found) =>
      Effect.map(
        all<object>(() => prepared(sql), params, false),
        transformRows
      )

  const execute = rows(prepare)
  const unprepared = (sql: string) => database.prepare(sql)
  return {
    isTransaction: () => database.isTransaction,
    execute,
    executeUnprepared: rows(unprepared),
    executeRaw: (sql, params) => query(() => prepare(sql).run(...params.map(inputOf))),
    executeValues: (sql, params) => all(() => prepare(sql), params, true),
    executeValuesUnprepared: (sql, params) => all(() => unprepared(sql), params, true),
    // Not a real stream, because other statements use the one connection meanwhile.
    executeStream: (sql, params, transformRows) =>
      Stream.unwrap(Effect.map(execute(sql, params, transformRows), (found) => Stream.fromIterable(found)))
  }
}

const inputOf = (value: unknown): SQLInputValue =>
  typeof value === "boolean"
    ? Number(value)
    : value instanceof Date
      ? value.toISOString()
      : value === undefined
        ? null
        : (value as SQLInputValue)

const attempt = <A>(operation: string, run: () => A): Effect.Effect<A, SqlError> =>
  Effect.try({ try: run, catch: failedTo(operation) })

const failedTo = (operation: string) => (thrown: unknown) =>
  new SqlError({ reason: reasonOf(thrown, operation) })

/** SQLITE_CONSTRAINT_PRIMARYKEY and SQLITE_CONSTRAINT_ROWID, which are also unique violations. */
const alsoUnique = new Set([1555, 2579])
const uniqueNumber = 2067

/** Maps an error to a reason. Node reports SQLite's error number in `errcode`, and the same `code` for all errors. */
const reasonOf = (thrown: unknown, operation: string) => {
  const { errcode, message = String(thrown) } = thrown as { errcode?: number; message?: string }
  // An error of the directory or the file, before SQLite opened it.
  if (errcode === undefined && operation === "open") {
    return new ConnectionError({ cause: thrown, message: `SQLite: ${message}`, operation })
  }
  const errno = errcode !== undefined && alsoUnique.has(errcode) ? uniqueNumber : errcode
  const cause = errno === undefined ? thrown : Object.assign(new Error(message, { cause: thrown }), { errno })
  return classifySqliteError(cause, { message: `SQLite: ${message}`, operation })
}

/** Retries a statement while the file is locked. Not in a transaction, which already holds the lock. */
const retried = <A>(database: DatabaseSync, statement: Effect.Effect<A, SqlError>) =>
  Effect.retry(statement, {
    schedule: untilUnlocked,
    while: ({ reason }) => reason._tag === "LockTimeoutError" && !database.isTransaction
  })
