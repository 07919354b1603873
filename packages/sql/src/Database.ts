/**
 * From an address to Effect's `SqlClient`, and from what goes wrong with it to a sentence.
 *
 * Whether a database answers is known before anything is begun.
 */
import { Duration, Effect, Layer } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { type DatabaseAddress, DatabaseUnavailable, nameOf } from "./DatabaseAddress.ts"
import * as SqliteDatabase from "./SqliteDatabase.ts"

/** How long a database may take until it answers for the first time. */
export const connectSecondsMax = 10

/** The client of a database that answered. PostgreSQL's is loaded where it is asked for. */
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

/**
 * Whether the same may go well in a moment. PostgreSQL says so of itself when it starts, ends or has too many guests.
 */
export const isPassing = ({ isRetryable, reason: { cause } }: SqlError): boolean =>
  isRetryable ||
  (typeof cause === "object" && cause !== null && "code" in cause && /^(?:53|57P)/u.test(String(cause.code)))

/** What went wrong with a statement, and what to do. */
export const explain = (error: SqlError): { readonly detail: string; readonly remedy: string } => {
  const [what, remedy] = wordsOf(error)
  return { detail: `${what}${because(error.reason.cause, error.reason.message ?? "")}`, remedy }
}

const wordsOf = (error: SqlError): readonly [what: string, remedy: string] => {
  switch (error.reason._tag) {
    case "ConnectionError":
      return ["cannot be reached", "Start it, or look at its host, port or path, then try again"]
    case "AuthenticationError":
    case "AuthorizationError":
      return [
        "lets this user not in",
        "Look at the user and the password of its URL, and at what the user may do"
      ]
    case "LockTimeoutError":
    case "StatementTimeoutError":
    case "DeadlockError":
    case "SerializationError":
      return ["is too busy", "Try again; if it stays so, look at what else writes to it"]
    default:
      return isPassing(error)
        ? ["cannot be used now", "Try again in a moment"]
        : ["answered with an error", "Look at its log, its disk and its permissions, then try again"]
  }
}

const messageCharactersMax = 300

/** The innermost sentence is the server's or the kernel's own. */
const because = (cause: unknown, otherwise: string): string => {
  const said = cause instanceof Error && cause.message !== "" ? cause.message : otherwise
  return said === "" ? "" : `: ${said.replaceAll(/\s+/gu, " ").slice(0, messageCharactersMax)}`
}

/** A file that could be opened is one that answers; a server is asked. */
const answering = (name: string) =>
  Layer.effectDiscard(
    Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT 1`).pipe(
      Effect.timeoutOrElse({
        duration: Duration.seconds(connectSecondsMax),
        orElse: () =>
          new DatabaseUnavailable({
            what: `the database ${name} did not answer within ${connectSecondsMax} s`,
            remedy: "Start it, or look at its host and port, then try again"
          })
      })
    )
  )
