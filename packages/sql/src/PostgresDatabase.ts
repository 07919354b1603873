/**
 * Effect's `SqlClient` over PostgreSQL, through `@effect/sql-pg`, with a timeout for every wait.
 *
 * The server enforces the timeouts, so that a statement whose client disconnected holds no lock either. A connection
 * pooler must forward these settings and support prepared statements.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Duration, type Layer, type Redacted } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"

export const connectionsMax = 8

/** Timeout in seconds for the connection, TLS and authentication. */
export const connectionSecondsMax = 5

export const statementSecondsMax = 15

/** Seconds after which the server ends an idle transaction. */
export const idleTransactionSecondsMax = 30

/** Seconds after which an idle connection is closed. */
export const idleSecondsMax = 60

/** Maximum size of a server message: more than twice the maximum stored output of one channel of a run. */
export const answerBytesMax = 768 * 1024 * 1024

/** Creates a client, which connects on the first statement. */
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
      // Whatever the server's default is: a statement after a lock must see what its last holder has committed.
      default_transaction_isolation: "read committed",
      statement_timeout: milliseconds(statementSecondsMax),
      lock_timeout: milliseconds(statementSecondsMax),
      idle_in_transaction_session_timeout: milliseconds(idleTransactionSecondsMax)
    }
  })

const milliseconds = (seconds: number): string => String(seconds * 1000)
