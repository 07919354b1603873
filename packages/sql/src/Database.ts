/**
 * Opens a database by its address as Effect's `SqlClient`, and explains its errors.
 *
 * The layer fails if the database does not answer, so that nothing starts without it.
 */
import { Duration, Effect, Layer } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { type DatabaseAddress, DatabaseUnavailable, nameOf } from "./DatabaseAddress.ts"
import * as SqliteDatabase from "./SqliteDatabase.ts"

/** Timeout in seconds for the first answer of a database. */
export const connectSecondsMax = 10

/** Opens a database and checks that it answers. The PostgreSQL client is loaded only if needed. */
export const layer = (address: DatabaseAddress): Layer.Layer<SqlClient.SqlClient, DatabaseUnavailable> => {
  const unavailable = (error: SqlError) => {
    const { detail, remedy } = explain(error)
    return new DatabaseUnavailable({ what: `the database ${nameOf(address)} ${detail}`, remedy })
  }
  const client =
    address._tag === "Sqlite"
      ? SqliteDatabase.layer(address)
      : Layer.provideMerge(
          answering(nameOf(address)),
          Layer.unwrap(Effect.promise(async () => (await import("./PostgresDatabase.ts")).layer(address)))
        )
  return client.pipe(
    Layer.catch((error) =>
      Layer.effect(SqlClient.SqlClient, Effect.fail(error._tag === "SqlError" ? unavailable(error) : error))
    )
  )
}

/** Returns whether a retry may succeed. Includes a PostgreSQL that is starting, stopping or out of connections. */
export const isPassing = ({ isRetryable, reason: { cause } }: SqlError): boolean =>
  isRetryable ||
  (typeof cause === "object" && cause !== null && "code" in cause && /^(?:53|57P)/u.test(String(cause.code)))

/** Describes why a statement failed and what to do. */
export const explain = (error: SqlError): { readonly detail: string; readonly remedy: string } => {
  const [what, remedy] = wordsOf(error)
  return { detail: `${what}${because(error.reason.cause, error.reason.message ?? "")}`, remedy }
}

const wordsOf = (error: SqlError): readonly [what: string, remedy: string] => {
  switch (error.reason._tag) {
    case "ConnectionError":
      return ["cannot be reached", "Start it, or check its host, port or path, then try again"]
    case "AuthenticationError":
    case "AuthorizationError":
      return [
        "denied access to this user",
        "Check the user and password in its URL, and the user's permissions"
      ]
    case "LockTimeoutError":
    case "StatementTimeoutError":
    case "DeadlockError":
    case "SerializationError":
      return ["is too busy", "Try again; if it stays busy, check what else writes to it"]
    default:
      return isPassing(error)
        ? ["is temporarily unavailable", "Try again in a moment"]
        : ["answered with an error", "Check its log, disk and permissions, then try again"]
  }
}

const messageCharactersMax = 300

/** Formats the message of the cause, which is that of the server or the kernel. */
const because = (cause: unknown, otherwise: string): string => {
  const said = cause instanceof Error && cause.message !== "" ? cause.message : otherwise
  return said === "" ? "" : `: ${said.replaceAll(/\s+/gu, " ").slice(0, messageCharactersMax)}`
}

/** Checks that a server answers. A file needs no check: opening it is enough. */
const answering = (name: string) =>
  Layer.effectDiscard(
    Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT 1`).pipe(
      Effect.timeoutOrElse({
        duration: Duration.seconds(connectSecondsMax),
        orElse: () =>
          new DatabaseUnavailable({
            what: `the database ${name} did not answer within ${connectSecondsMax} s`,
            remedy: "Start it, or check its host and port, then try again"
          })
      })
    )
  )
