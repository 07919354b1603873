/**
 * `ConnectionStore` in a database, through Effect's `SqlClient`: one table of connections and one of their uses.
 *
 * Connections and uses are stored as JSON, which escapes characters that PostgreSQL's text type refuses. Secrets have a
 * column of their own, so that no list reads them. They are encrypted before they get here.
 */
import { Connection } from "@cogni/sandbox-connections/Connection"
import {
  ConnectionExists,
  type ConnectionRefused,
  ConnectionStoreUnavailable
} from "@cogni/sandbox-connections/ConnectionReason"
import { hostPrefix, lifetimeSecondsMax } from "@cogni/sandbox-connections/ConnectionFields"
import {
  connectionsListedMax,
  connectionsMax,
  refusedEvents,
  removedMax,
  tooMany,
  UsesKept,
  type UsesKeptShape
} from "@cogni/sandbox-connections/ConnectionLimits"
import { ConnectionStore } from "@cogni/sandbox-connections/ConnectionStore"
import { ConnectionUse, listedMax } from "@cogni/sandbox-connections/ConnectionUse"
import { Clock, Effect, Layer, Option, Schema } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import { escaped } from "./internal/LedgerTables.ts"
import * as SchemaVersion from "./SchemaVersion.ts"

/** Columns that differ between databases: a counter, and text that is compared byte by byte. */
const columnsOf = (sql: SqlClient) => ({
  counted: sql.literal(
    sql.onDialectOrElse({
      pg: () => "BIGSERIAL PRIMARY KEY",
      orElse: () => "INTEGER PRIMARY KEY AUTOINCREMENT"
    })
  ),
  text: sql.literal(sql.onDialectOrElse({ pg: () => `TEXT COLLATE "C"`, orElse: () => "TEXT" }))
})

/** Creates or migrates the tables. */
const bring = SchemaVersion.bring({
  versionTable: "cogni_connections_version",
  steps: [
    {
      name: "connections",
      run: (sql) => {
        const { counted, text } = columnsOf(sql)
        return sql`CREATE TABLE cogni_connections (
          ordinal ${counted}, connection_id ${text} NOT NULL UNIQUE, billing_account_id ${text} NOT NULL,
          name ${text} NOT NULL, described TEXT NOT NULL, secret TEXT, claim_id ${text},
          claimed_until ${text}, revoked_at ${text})`
      }
    },
    {
      name: "live connections",
      run: (sql) => sql`CREATE UNIQUE INDEX cogni_connections_live
        ON cogni_connections (billing_account_id, name) WHERE revoked_at IS NULL`
    },
    {
      name: "connections of an account",
      run: (sql) =>
        sql`CREATE INDEX cogni_connections_account ON cogni_connections (billing_account_id, ordinal)`
    },
    {
      name: "uses",
      run: (sql) => {
        const { counted, text } = columnsOf(sql)
        return sql`CREATE TABLE cogni_connection_uses (
          ordinal ${counted}, entry_id ${text} NOT NULL UNIQUE, billing_account_id ${text} NOT NULL,
          lease_id ${text} NOT NULL, connection_id ${text}, run_id ${text}, event ${text} NOT NULL,
          recorded_at ${text} NOT NULL, entry TEXT NOT NULL)`
      }
    },
    {
      name: "uses of an account",
      run: (sql) =>
        // With the event, which deletions count.
        sql`CREATE INDEX cogni_connection_uses_account
          ON cogni_connection_uses (billing_account_id, ordinal, event)`
    },
    {
      name: "uses of a lease",
      run: (sql) => sql`CREATE INDEX cogni_connection_uses_lease ON cogni_connection_uses (lease_id)`
    },
    {
      name: "old uses",
      run: (sql) => sql`CREATE INDEX cogni_connection_uses_at ON cogni_connection_uses (recorded_at)`
    }
  ]
})

/** Requires the tables, which {@link layer} creates. */
const make = Effect.gen(function* () {
  const sql = yield* SqlClient
  const kept = yield* UsesKept
  return ConnectionStore.of({ ...connectionsOf(sql), ...secretsOf(sql), ...usesOf(sql, kept) })
})

export const layer: Layer.Layer<
  ConnectionStore,
  ConnectionStoreUnavailable | SchemaVersion.SchemaRefused,
  SqlClient
> = Layer.effect(
  ConnectionStore,
  Effect.andThen(
    Effect.catchTag(bring, "SqlError", (error) => Effect.fail(unavailable(error))),
    make
  )
)

type Service = ConnectionStore["Service"]

const connectionsOf = (sql: SqlClient): Pick<Service, "add" | "list" | "revoke"> => {
  /** Excludes other processes that add a connection to the account. In SQLite, the transaction does. */
  const locked = (account: string) =>
    sql.onDialectOrElse({
      pg: () =>
        Effect.asVoid(
          sql`SELECT pg_advisory_xact_lock(hashtextextended(${`cogni-connections ${account}`}, 0))`
        ),
      orElse: () => Effect.void
    })

  return {
    add: Effect.fn("ConnectionStore.add")(function* (connection, secret) {
      const account = escaped(connection.billingAccountId ?? "")
      const row = {
        connection_id: connection.id,
        billing_account_id: account,
        name: connection.name,
        described: encodeConnection(connection),
        secret: secret ?? null,
        revoked_at: null
      }
      const refusal = yield* database.again(
        sql.withTransaction(
          Effect.gen(function* (): Effect.fn.Return<
            ConnectionExists | ConnectionRefused | undefined,
            SqlError
          > {
            yield* locked(account)
            const live = yield* sql<{ readonly connection_id: string; readonly name: string }>`
              SELECT connection_id, name FROM cogni_connections
              WHERE billing_account_id = ${account} AND revoked_at IS NULL`
            // An earlier attempt, whose answer was lost, has added it.
            if (live.some((one) => one.connection_id === connection.id)) return undefined
            if (live.some(({ name }) => name === connection.name)) {
              return new ConnectionExists({ connection: connection.name })
            }
            if (live.length >= connectionsMax) return tooMany
            yield* sql`INSERT INTO cogni_connections ${sql.insert(row)}`
            yield* sql`DELETE FROM cogni_connections
              WHERE billing_account_id = ${account} AND revoked_at IS NOT NULL AND ordinal <= (
                SELECT ordinal FROM cogni_connections
                WHERE billing_account_id = ${account} AND revoked_at IS NOT NULL
                ORDER BY ordinal DESC LIMIT 1 OFFSET ${sql.literal(String(removedMax))})`
            return undefined
          })
        )
      )
      if (refusal !== undefined) return yield* refusal
    }),

    list: (billingAccountId) =>
      database
        .again(
          Effect.map(
            sql<ConnectionRow>`SELECT ${sql.literal(columns)} FROM cogni_connections
            WHERE billing_account_id = ${escaped(billingAccountId)}
            ORDER BY CASE WHEN revoked_at IS NULL THEN 0 ELSE 1 END, ordinal DESC
            LIMIT ${sql.literal(String(connectionsListedMax))}`,
            (rows) => rows.map((row) => ({ row, connection: connectionOf(row) }))
          )
        )
        .pipe(
          Effect.flatMap((found) =>
            found.some(({ connection, row }) => connection === undefined && row.revoked_at === null)
              ? Effect.fail(unreadable)
              : Effect.succeed(found.flatMap(({ connection }) => connection ?? []))
          )
        ),

    revoke: Effect.fn("ConnectionStore.revoke")(function* (billingAccountId, name) {
      const revokedAt = new Date(yield* Clock.currentTimeMillis).toISOString()
      const rows = yield* database.again(
        sql`UPDATE cogni_connections
          SET revoked_at = ${revokedAt}, secret = NULL, claim_id = NULL, claimed_until = NULL
          WHERE billing_account_id = ${escaped(billingAccountId)} AND name = ${escaped(name)}
            AND revoked_at IS NULL
          RETURNING connection_id`
      )
      return rows.length > 0
    })
  }
}

const secretsOf = (sql: SqlClient): Pick<Service, "claim" | "secret" | "settle" | "withSecret"> => ({
  withSecret: (afterId = "") =>
    database.again(
      Effect.map(
        sql<ConnectionRow>`SELECT ${sql.literal(columns)} FROM cogni_connections
          WHERE secret IS NOT NULL AND revoked_at IS NULL AND connection_id > ${escaped(afterId)}
          ORDER BY connection_id LIMIT ${sql.literal(String(connectionsListedMax))}`,
        (rows) => rows.map((row) => ({ id: row.connection_id, connection: connectionOf(row) }))
      )
    ),
  secret: (connectionId) =>
    database.again(
      Effect.map(
        sql<{ readonly secret: string | null }>`SELECT secret FROM cogni_connections
          WHERE connection_id = ${escaped(connectionId)} AND revoked_at IS NULL`,
        ([row]) => row?.secret ?? undefined
      )
    ),
  claim: ({ claimId, connectionId, now, until }) =>
    database.again(
      Effect.map(
        // An earlier attempt, whose answer was lost, may have made this claim.
        sql`UPDATE cogni_connections SET claim_id = ${claimId}, claimed_until = ${until.toISOString()}
          WHERE connection_id = ${escaped(connectionId)} AND revoked_at IS NULL
            AND (claimed_until IS NULL OR claimed_until <= ${now.toISOString()} OR claim_id = ${claimId})
          RETURNING connection_id`,
        (rows) => rows.length > 0
      )
    ),
  settle: ({ claimId, connectionId }, secret) => {
    const isOurs = sql`claim_id = ${claimId}`
    const change =
      secret === undefined
        ? sql`UPDATE cogni_connections SET claim_id = NULL, claimed_until = NULL
            WHERE connection_id = ${escaped(connectionId)} AND revoked_at IS NULL AND ${isOurs}
            RETURNING connection_id`
        : // An earlier attempt, whose answer was lost, may have stored it. Another claim may be held since then.
          sql`UPDATE cogni_connections SET secret = ${secret},
              claim_id = CASE WHEN ${isOurs} THEN NULL ELSE claim_id END,
              claimed_until = CASE WHEN ${isOurs} THEN NULL ELSE claimed_until END
            WHERE connection_id = ${escaped(connectionId)} AND revoked_at IS NULL
              AND (${isOurs} OR secret = ${secret})
            RETURNING connection_id`
    return database.again(Effect.map(change, (rows) => rows.length > 0))
  }
})

const usesOf = (sql: SqlClient, kept: UsesKeptShape): Pick<Service, "isLive" | "record" | "uses"> => {
  const deletion = deletionOf(sql, kept)
  return {
    record: (use) =>
      Effect.suspend(() => {
        const account = escaped(use.billingAccountId)
        const row = {
          // Made before the first attempt, so that a retry does not add a second entry.
          entry_id: crypto.randomUUID(),
          billing_account_id: account,
          lease_id: escaped(use.leaseId),
          connection_id: use.connectionId === null ? null : escaped(use.connectionId),
          run_id: use.runId === null ? null : escaped(use.runId),
          event: use.event,
          recorded_at: use.at.toISOString(),
          entry: encodeUse(use)
        }
        const added = database.again(
          sql`INSERT INTO cogni_connection_uses ${sql.insert(row)} ON CONFLICT (entry_id) DO NOTHING`
        )
        return Effect.andThen(added, deletion(account))
      }),
    ...listingOf(sql)
  }
}

/** Accounts whose entries a process counts. Beyond, it counts anew, and deletes earlier. */
const countedMax = 10_000

/**
 * Deletes entries that are not kept: with the first entry of an account in this process, and then now and then. A
 * revocation is kept as long as its lease could live.
 */
const deletionOf = (sql: SqlClient, { daysMax, entriesBetween, entriesMax, refusedMax }: UsesKeptShape) => {
  const counts = new Map<string, number>()
  const refused = sql`event IN ${sql.in(refusedEvents)}`
  const handedOut = sql`NOT ${refused}`
  const ordinalOf = (account: string, which: Fragment, kept: number) =>
    sql`SELECT ordinal FROM cogni_connection_uses WHERE billing_account_id = ${account} AND ${which}
      ORDER BY ordinal DESC LIMIT 1 OFFSET ${sql.literal(String(kept))}`
  return (account: string): Effect.Effect<void> =>
    Effect.gen(function* () {
      const count = counts.get(account) ?? 0
      if (counts.size >= countedMax) counts.clear()
      counts.set(account, (count + 1) % entriesBetween)
      if (count !== 0) return
      const now = yield* Clock.currentTimeMillis
      const before = (seconds: number) => new Date(now - seconds * 1000).toISOString()
      yield* database.once(
        sql`DELETE FROM cogni_connection_uses WHERE recorded_at < ${before(daysMax * daySeconds)}`
      )
      yield* database.once(sql`DELETE FROM cogni_connection_uses
        WHERE billing_account_id = ${account} AND ${refused}
          AND ordinal <= (${ordinalOf(account, refused, refusedMax)})`)
      yield* database.once(sql`DELETE FROM cogni_connection_uses
        WHERE billing_account_id = ${account} AND ${handedOut}
          AND (event <> 'revoked' OR recorded_at < ${before(lifetimeSecondsMax)})
          AND ordinal <= (${ordinalOf(account, handedOut, entriesMax)})`)
    }).pipe(
      Effect.catch(({ message }) =>
        Effect.logWarning(`old entries of the audit of connections were not deleted: ${message}`)
      )
    )
}

const daySeconds = 24 * 60 * 60

const listingOf = (sql: SqlClient): Pick<Service, "isLive" | "uses"> => ({
  uses: ({ billingAccountId, connectionId, leaseId, limit = listedMax, runId }) => {
    const equal = (column: string, value: string | undefined): ReadonlyArray<Fragment> =>
      value === undefined ? [] : [sql`${sql(column)} = ${escaped(value)}`]
    const conditions = [
      ...equal("billing_account_id", billingAccountId),
      ...equal("connection_id", connectionId),
      ...equal("lease_id", leaseId),
      ...equal("run_id", runId)
    ]
    const rows = Math.max(0, Math.min(Math.trunc(limit), listedMax))
    return database.again(
      Effect.map(
        sql<{ readonly entry: string }>`SELECT entry FROM cogni_connection_uses
          WHERE ${sql.and(conditions)} ORDER BY ordinal DESC LIMIT ${sql.literal(String(rows))}`,
        (found) => found.flatMap(({ entry }) => Option.toArray(decodeUse(entry)))
      )
    )
  },
  isLive: ({ connectionId, leaseId }) =>
    database.again(
      Effect.map(
        sql<{ readonly live: number | string; readonly revoked: number | string }>`SELECT
          (SELECT COUNT(*) FROM cogni_connection_uses
            WHERE lease_id = ${escaped(leaseId)} AND event = 'revoked') AS revoked,
          (SELECT COUNT(*) FROM cogni_connections
            WHERE connection_id = ${escaped(connectionId)} AND revoked_at IS NULL) AS live`,
        ([row]) =>
          Number(row?.revoked) === 0 && (connectionId.startsWith(hostPrefix) || Number(row?.live) > 0)
      )
    )
})

const columns = "connection_id, billing_account_id, name, described, revoked_at"

interface ConnectionRow {
  readonly connection_id: string
  readonly billing_account_id: string
  readonly name: string
  readonly described: string
  readonly revoked_at: string | null
}

const Described = Schema.fromJsonString(Schema.toCodecJson(Connection))
const encodeConnection = Schema.encodeSync(Described)
/** Refuses unknown properties, because a later version may use one to limit a connection. */
const decodeConnection = Schema.decodeUnknownOption(Described, { onExcessProperty: "error" })

const connectionOf = (row: ConnectionRow): Connection | undefined =>
  Option.getOrUndefined(
    decodeConnection(row.described).pipe(
      // The columns decide which account has it, so its description must not say otherwise.
      Option.filter(
        ({ billingAccountId, id, name }) =>
          id === row.connection_id &&
          name === row.name &&
          billingAccountId !== null &&
          escaped(billingAccountId) === row.billing_account_id
      ),
      Option.map((connection) => ({
        ...connection,
        revokedAt: row.revoked_at === null ? null : new Date(row.revoked_at)
      }))
    )
  )

const unreadable = new ConnectionStoreUnavailable({
  detail: "has a connection of this account that this version cannot read",
  remedy: "Update this host, or remove the connection"
})

const Entry = Schema.fromJsonString(Schema.toCodecJson(ConnectionUse))
const encodeUse = Schema.encodeSync(Entry)
const decodeUse = Schema.decodeUnknownOption(Entry)

/** Converts an error without the database's message, which may repeat the statement and a secret. */
const unavailable = ({ reason }: SqlError): ConnectionStoreUnavailable =>
  new ConnectionStoreUnavailable({
    detail: `cannot be used (${reason._tag})`,
    remedy: "Check the database and the connection to it, then try again"
  })

const database = DatabaseCall.make(unavailable, (words) => new ConnectionStoreUnavailable(words))
