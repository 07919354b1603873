/**
 * Opens a database by its address as Effect's `SqlClient`, and explains its errors.
 *
 * The layer fails if the database does not answer, so that nothing starts without it.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { Duration, Effect, Layer } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { dirname } from "node:path"
import { type DatabaseAddress, DatabaseUnavailable, nameOf } from "./DatabaseAddress.ts"
import * as SqliteDatabase from "./SqliteDatabase.ts"
import { explain, connectSecondsMax } from "./internal/DatabaseFault.ts"

/** Opens a database and checks that it answers. The PostgreSQL client is loaded only if needed. */
export const layer = (address: DatabaseAddress): Layer.Layer<SqlClient.SqlClient, DatabaseUnavailable> => {
  const unavailable = (error: SqlError) => {
    const { detail, remedy } =
      address._tag === "Sqlite" && error.reason._tag === "ConnectionError"
        ? unopened(dirname(address.path), error.reason.cause)
        : explain(error)
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

/** Describes why the file of a database, or its directory, cannot be made. */
const unopened = (directory: string, cause: unknown) =>
  cause instanceof HostPathRefused
    ? {
        detail: `cannot be opened: its directory ${JSON.stringify(directory)} ${cause.detail}`,
        remedy: cause.remedy
      }
    : {
        detail: `cannot be opened: ${messageOf(cause)}`,
        remedy: "Name a directory that this user can write to, or check the permissions of this one"
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
