/**
 * A query of PostgreSQL by a cursor, in a read-only transaction that is always rolled back.
 *
 * A cursor exists only for one SELECT, and the protocol takes one statement at a time. A read-only transaction still
 * calls functions that act outside of tables. So the role must not have special rights, and functions that signal other
 * sessions, take locks or run SQL from a text are refused by name.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import type * as PgConnection from "@effect/sql-pg/PgConnection"
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Duration, Effect, type Redacted } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { limits, type QueryAnswer, QueryFailed, slow } from "./QueryLimits.ts"
import * as StatementEnd from "./StatementEnd.ts"

interface PostgresPlace {
  readonly host: string
  readonly port?: number
  readonly database: string
  readonly username: string
  readonly tls?: boolean
}

/** Longest message of the server, and so the largest row, in bytes. */
const messageBytesMax = 1024 * 1024

/** Rows of one message. */
const pageRows = 10

const port = 5432

/** Runs a query. */
export const run = (
  place: PostgresPlace,
  sql: string,
  password: Redacted.Redacted<string> | undefined
): Effect.Effect<QueryAnswer, QueryFailed> => {
  const refused = refusalOf(sql)
  if (refused !== undefined) return new QueryFailed({ reason: "refused", detail: refused })
  const isSocket = place.host.startsWith("/")
  return read(sql).pipe(
    // A decoder of the client, or a date out of range.
    Effect.catchDefect(() => Effect.fail(unshown)),
    Effect.provide(
      PgClient.layer({
        ...(isSocket
          ? { path: `${place.host}/.s.PGSQL.${place.port ?? port}` }
          : { host: place.host, port: place.port ?? port }),
        ssl: place.tls ?? !isSocket,
        database: place.database,
        username: place.username,
        ...(password === undefined ? {} : { password }),
        applicationName: "cogni-sandbox sql__query",
        connectTimeout: Duration.seconds(5),
        maxConnections: 1,
        maxMessageSize: messageBytesMax,
        startupParameters: {
          default_transaction_read_only: "on",
          statement_timeout: String(limits.secondsMax * 1000),
          lock_timeout: "2000",
          idle_in_transaction_session_timeout: String(limits.secondsMax * 1000)
        }
      })
    ),
    Effect.catchTag("SqlError", (error) => Effect.fail(failureOf(error))),
    Effect.timeoutOrElse({
      duration: Duration.seconds(limits.secondsMax + 5),
      orElse: () => Effect.fail(slow)
    })
  )
}

/** Carries the rows out of the transaction, which rolls back because it fails. */
class RolledBack {
  readonly _tag = "RolledBack"
  readonly answer: QueryAnswer
  constructor(answer: QueryAnswer) {
    this.answer = answer
  }
}

const read = Effect.fnUntraced(function* (text: string) {
  const sql = yield* SqlClient
  const [role] = yield* sql<{ readonly mighty: boolean }>`SELECT rolsuper OR rolreplication OR EXISTS (
    SELECT FROM pg_roles other WHERE other.rolname IN ('pg_read_server_files', 'pg_write_server_files',
      'pg_execute_server_program', 'pg_signal_backend') AND pg_has_role(current_user, other.oid, 'member')
    ) AS mighty FROM pg_roles WHERE rolname = current_user`
  if (role?.mighty !== false) return yield* mighty
  return yield* sql
    .withTransaction(
      Effect.gen(function* () {
        const { columns, cursor } = yield* opened(sql, text)
        const rows: Array<Readonly<Record<string, unknown>>> = []
        let bytes = 0
        while (true) {
          const page = yield* sql.unsafe(`FETCH ${pageRows} FROM ${cursor}`).values
          for (const values of page) {
            const told = Object.fromEntries(columns.map((name, index) => [name, plain(values[index])]))
            bytes += Buffer.byteLength(JSON.stringify(told)) + 1
            if (rows.length >= limits.rowsMax || bytes > limits.bytesMax)
              return yield* Effect.fail(new RolledBack({ rows, isTruncated: true }))
            rows.push(told)
          }
          if (page.length < pageRows) return yield* Effect.fail(new RolledBack({ rows, isTruncated: false }))
        }
      })
    )
    .pipe(Effect.catchTag("RolledBack", ({ answer }) => Effect.succeed(answer)))
})

/**
 * Opens the cursor. If a column has a type that the client does not read, the server converts its values to text: the
 * query becomes a part of another one, after the server accepted it alone.
 */
const opened = Effect.fnUntraced(function* (sql: SqlClient, text: string) {
  yield* sql.unsafe(`DECLARE cogni_rows NO SCROLL CURSOR FOR ${text}`)
  const { fields } = (yield* sql.unsafe("FETCH 0 FROM cogni_rows").raw) as PgConnection.Result
  const columns = distinct(fields.map(({ name }) => name))
  if (fields.every(({ dataTypeId }) => readAsJson.has(dataTypeId))) return { columns, cursor: "cogni_rows" }
  const names = fields.map((_, index) => `c${index}`)
  const shown = fields.map(({ dataTypeId }, index) =>
    readAsJson.has(dataTypeId) ? `c${index}` : `c${index}::pg_catalog.text`
  )
  const part = text.replace(/[;\s]+$/u, "")
  yield* sql.unsafe(
    `DECLARE cogni_texts NO SCROLL CURSOR FOR SELECT ${shown.join(", ")} FROM (${part}\n) AS q(${names.join(", ")})`
  )
  return { columns, cursor: "cogni_texts" }
})

/** Types whose values the client reads as JSON has them. It would return others as bytes of the protocol. */
const readAsJson: ReadonlySet<number> = new Set(
  (
    [
      "bool",
      "bytea",
      "name",
      "int8",
      "int2",
      "int4",
      "text",
      "oid",
      "json",
      "float4",
      "float8",
      "inet",
      "cidr",
      "bpchar",
      "varchar",
      "date",
      "timestamp",
      "timestamptz",
      "numeric",
      "uuid",
      "jsonb"
    ] as const
  ).flatMap((name) => [PgTypes.OID[name], PgTypes.OID[`${name}Array`]])
)

/** Gives each column a name of its own, as SQLite does: `id`, `id:1`, `id:2`. */
export const distinct = (names: ReadonlyArray<string>): ReadonlyArray<string> => {
  const taken = new Set<string>()
  return names.map((name) => {
    let own = name
    for (let count = 1; taken.has(own); count++) own = `${name}:${count}`
    taken.add(own)
    return own
  })
}

const mighty = new QueryFailed({
  reason: "unavailable",
  detail:
    "the role of this host is a superuser, or may read files, start programs or signal sessions of the server, so " +
    "nothing is read with it. The operator of the host can name a role that only reads"
})

/** Converts a value to JSON. Throws for a date that JavaScript does not have, such as infinity. */
export const plain = (value: unknown): unknown => {
  if (typeof value === "bigint") return String(value)
  // JSON has no infinity, and would say null.
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value)
  if (value instanceof Uint8Array) return { bytes: value.byteLength }
  if (Array.isArray(value)) return value.map(plain)
  return value instanceof Date ? value.toISOString() : value
}

const unshown = new QueryFailed({
  reason: "failed",
  detail:
    "the answer has a value of a kind that cannot be shown. Name the columns, and cast each that is no number, date " +
    "or text to text"
})

/** Functions that act although a transaction only reads, and those that run SQL from a text. */
const acting = new RegExp(
  String.raw`\b(?:pg_(?:terminate|cancel)_backend|pg_(?:try_)?advisory\w*|pg_notify|pg_read_\w+|pg_ls_\w+` +
    String.raw`|pg_stat_file|pg_file_\w+|pg_logical\w*|pg_replication\w*|pg_reload_conf|pg_rotate\w*|pg_switch_wal|pg_create\w*` +
    String.raw`|pg_backup\w*|pg_export_snapshot|pg_log_\w+|pg_sleep\w*|pg_promote|set_config|setval|nextval|dblink\w*` +
    String.raw`|lo_\w+|query_to_xml\w*|cursor_to_xml\w*|table_to_xml\w*|schema_to_xml\w*|database_to_xml\w*` +
    String.raw`|ts_stat|ts_rewrite|crosstab\w*|connectby)\b`,
  "iu"
)

/** Returns why a query is refused before the database sees it. */
export const refusalOf = (sql: string): string | undefined => {
  if (/u&\s*["']/iu.test(sql)) return "names and texts with Unicode escapes (U&) are refused"
  const [found] = acting.exec(sql) ?? []
  if (found !== undefined)
    return `${found} is refused, also as a name or a text: it can act outside of the query`
  // The text can become a part of another query, in which a semicolon would be an error.
  return /[^;\s]/u.test(StatementEnd.restOf(sql) ?? "")
    ? "a query is one SELECT. Leave out the semicolon and what follows it"
    : undefined
}

/** Describes an error to the agent that wrote the query, in the words of PostgreSQL. */
const failureOf = ({ reason }: SqlError): QueryFailed => {
  const { _tag, cause } = reason as { readonly _tag: string; readonly cause?: unknown }
  if (/connection|authentication/iu.test(_tag))
    return new QueryFailed({
      reason: "unavailable",
      detail: "the database does not answer, or refuses this host"
    })
  if (/timeout/iu.test(_tag)) return slow
  const words = cause instanceof Error ? cause.message : _tag
  return new QueryFailed({
    reason: "failed",
    detail: `the database refused the query, which must be one SELECT that only reads: ${words}`
  })
}
