/**
 * Reads another database with one query of an untrusted author, such as an agent.
 *
 * The database itself keeps it read-only: SQLite by a read-only connection in a process of its own, and PostgreSQL by a
 * read-only transaction that is always rolled back, for a role without special rights. A query is one SELECT. Its rows,
 * bytes and time are limited.
 */
import { type Effect, type Redacted, Schema } from "effect"
import * as ReadOnlyPostgres from "./internal/ReadOnlyPostgres.ts"
import * as ReadOnlySqlite from "./internal/ReadOnlySqlite.ts"
import { limits, type QueryAnswer, QueryFailed } from "./internal/QueryLimits.ts"

export { limits, type QueryAnswer, QueryFailed }

const AbsolutePath = Schema.String.check(
  Schema.isMaxLength(1000),
  Schema.isPattern(/^\/[^\0]+$/u, { expected: "an absolute path" })
)

const Name = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** A database that agents may read. */
export const ReadOnlyDatabase = Schema.Union([
  Schema.Struct({ type: Schema.Literal("sqlite"), path: AbsolutePath }),
  Schema.Struct({
    type: Schema.Literal("postgres"),
    /** Name or address of the server, or the directory of its socket. */
    host: Name,
    /** Default: 5432. */
    port: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65_535 }))),
    database: Name,
    /** A role that is no superuser and cannot read files of the server. */
    username: Name,
    /** Whether the connection is encrypted, and its certificate verified (default true, except for a socket). */
    tls: Schema.optionalKey(Schema.Boolean)
  })
])

export type ReadOnlyDatabase = typeof ReadOnlyDatabase.Type

/** Runs one query. The password is that of the role; SQLite has none. */
export const run = (
  database: ReadOnlyDatabase,
  sql: string,
  password?: Redacted.Redacted<string>
): Effect.Effect<QueryAnswer, QueryFailed> =>
  sql.length > limits.sqlCharactersMax
    ? new QueryFailed({
        reason: "refused",
        detail: `the query is longer than ${limits.sqlCharactersMax} characters`
      })
    : database.type === "sqlite"
      ? ReadOnlySqlite.run(database.path, sql)
      : ReadOnlyPostgres.run(database, sql, password)
