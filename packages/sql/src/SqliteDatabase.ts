/**
 * Effect's `SqlClient` over the SQLite that is in Node: one file, one connection, no server.
 *
 * Several processes may have the file open. A call into SQLite stops the whole process, with the gateway in it, so it
 * never waits in there for long: who finds the file locked lets go, and asks again a little later. Every transaction
 * begins as a writer, because one that began as a reader cannot become one once somebody else wrote.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Duration, Effect, Layer, Schedule, type Scope, Semaphore, Stream } from "effect"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as SqlClient from "effect/sql/SqlClient"
import type { Connection } from "effect/sql/SqlConnection"
import { classifySqliteError, ConnectionError, SqlError } from "effect/sql/SqlError"
import * as Statement from "effect/sql/Statement"
import { mkdirSync } from "node:fs"
import { dirname } from "node:path"
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite"

/** How long one call may stop the process when the file is locked. */
export const lockWaitMillisMax = 10

/** How long a statement, or the beginning of a transaction, is asked for again. */
export const lockRetrySecondsMax = 15

/** Statements that are kept prepared; the one that was not used for longest goes. */
export const preparedStatementsMax = 100

/** Opens the file, and makes it where it is not there: for its owner alone, as are directories that have to be made. */
export const make = Effect.fnUntraced(function* (options: {
  /** Absolute. */
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

/** Somebody else's lock is gone in milliseconds. Not all who wait ask again at the same moment. */
const untilUnlocked = Schedule.exponential("2 millis", 1.5).pipe(
  Schedule.modifyDelay(({ duration }) => Effect.succeed(Duration.min(duration, Duration.millis(100)))),
  Schedule.jittered,
  Schedule.upTo({ duration: `${lockRetrySecondsMax} seconds` })
)

const secretFile = (path: string): void => {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  // What SQLite makes beside the file has the mode of the file.
  OwnFiles.secureSync(path)
}

const connect = Effect.fnUntraced(function* (
  path: string
): Effect.fn.Return<SqliteConnection, SqlError, Scope.Scope> {
  const database = yield* Effect.acquireRelease(
    attempt("open", () => {
      secretFile(path)
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
    // SQLite has no way of reading on while others use its one connection.
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
  Effect.try({ try: run, catch: (thrown) => new SqlError({ reason: reasonOf(thrown, operation) }) })

/** SQLITE_CONSTRAINT_PRIMARYKEY and SQLITE_CONSTRAINT_ROWID: unique as well, with numbers of their own. */
const alsoUnique = new Set([1555, 2579])
const uniqueNumber = 2067

/** Node has the number of SQLite in `errcode`, beside a `code` that is the same for all. */
const reasonOf = (thrown: unknown, operation: string) => {
  const { errcode, message = String(thrown) } = thrown as { errcode?: number; message?: string }
  // Of the directory or the file, before there was a database.
  if (errcode === undefined && operation === "open") {
    return new ConnectionError({ cause: thrown, message: `SQLite: ${message}`, operation })
  }
  const errno = errcode !== undefined && alsoUnique.has(errcode) ? uniqueNumber : errcode
  const cause = errno === undefined ? thrown : Object.assign(new Error(message, { cause: thrown }), { errno })
  return classifySqliteError(cause, { message: `SQLite: ${message}`, operation })
}

/** Inside a transaction a lock is already ours, and waiting would hold it. */
const retried = <A>(database: DatabaseSync, statement: Effect.Effect<A, SqlError>) =>
  Effect.retry(statement, {
    schedule: untilUnlocked,
    while: ({ reason }) => reason._tag === "LockTimeoutError" && !database.isTransaction
  })
