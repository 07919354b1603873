/**
 * Effect's `SqlClient` over PostgreSQL, through `@effect/sql-pg`, with a bound on every wait.
 *
 * The server ends what takes too long, so that a statement whose client went away holds no lock either. A pooler in
 * between has to pass these settings on, and keep prepared statements.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Duration, type Layer, type Redacted } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"

export const connectionsMax = 8

/** For reaching the server, TLS, and being let in. */
export const connectionSecondsMax = 5

export const statementSecondsMax = 15

/** A transaction that nobody goes on with is ended after this. */
export const idleTransactionSecondsMax = 30

/** A connection that nobody uses is closed after this. */
export const idleSecondsMax = 60

/** One answer of the server: more than twice the most that is kept of one channel of a run. */
export const answerBytesMax = 768 * 1024 * 1024

/** Connects when the first statement needs it. */
export const layer = (options: {
  readonly url: Redacted.Redacted<string>
}): Layer.Layer<SqlClient, SqlError> =>
  PgClient.layer({
    url: options.url,
    applicationName: "cogni-sandbox",
    connectTimeout: Duration.seconds(connectionSecondsMax),
    keepAlive: Duration.seconds(idleSecondsMax),
    maxConnections: connectionsMax,
    idleTimeout: Duration.seconds(idleSecondsMax),
    maxMessageSize: answerBytesMax,
    startupParameters: {
      statement_timeout: milliseconds(statementSecondsMax),
      lock_timeout: milliseconds(statementSecondsMax),
      idle_in_transaction_session_timeout: milliseconds(idleTransactionSecondsMax)
    }
  })

const milliseconds = (seconds: number): string => String(seconds * 1000)
