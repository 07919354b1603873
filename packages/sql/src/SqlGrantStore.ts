/**
 * `GrantStore` in a database, through Effect's `SqlClient`: a table of grants, and one of sign-ins, with a schema
 * version of their own.
 *
 * A grant is stored as JSON, which escapes characters that PostgreSQL's text type refuses. `revoked_at` is a separate
 * column, because it is the only value that changes. `permissions` is a separate column too: rows of versions without
 * permissions get its default, which allows no tool and no repository, and such a version refuses the table.
 */
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { GrantPermissions } from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { draft, listedMax } from "@cogni/sandbox-graph-provider/grants/GrantDraft"
import { GrantStoreUnavailable } from "@cogni/sandbox-graph-provider/grants/GrantError"
import type { SqlError } from "effect/sql/SqlError"
import { Clock, Effect, Layer, Option, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { Fragment } from "effect/sql/Statement"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import * as SignInTable from "./internal/SignInTable.ts"
import * as SchemaVersion from "./SchemaVersion.ts"

/** Creates or migrates the tables. */
const bring = SchemaVersion.bring({
  versionTable: "cogni_grants_version",
  steps: [
    {
      name: "grants",
      run: (sql) => {
        const counted = sql.literal(
          sql.onDialectOrElse({
            pg: () => "BIGSERIAL PRIMARY KEY",
            orElse: () => "INTEGER PRIMARY KEY AUTOINCREMENT"
          })
        )
        return sql`CREATE TABLE cogni_grants (
            ordinal ${counted},
            grant_id TEXT NOT NULL UNIQUE,
            token_hash TEXT NOT NULL UNIQUE,
            granted TEXT NOT NULL,
            revoked_at TEXT
          )`
      }
    },
    {
      name: "permissions",
      run: (sql) => sql`ALTER TABLE cogni_grants ADD COLUMN permissions TEXT NOT NULL DEFAULT '{}'`
    },
    ...SignInTable.steps
  ]
})

/** Requires the tables, which {@link layer} creates. */
const make = Effect.gen(function* () {
  const sql = yield* SqlClient
  const grantOf = makeGrantOf()
  const grants = (which: Fragment) =>
    database.again(
      Effect.map(sql<Row>`SELECT granted, permissions, revoked_at FROM cogni_grants ${which}`, (rows) =>
        rows.map(grantOf).filter((grant) => grant !== undefined)
      )
    )
  const firstGrant = (which: Fragment) => Effect.map(grants(which), ([first]) => first)

  const issue = Effect.fn("GrantStore.issue")(function* (
    input: Parameters<GrantStore["Service"]["issue"]>[0]
  ) {
    const { grant, token, tokenHash } = yield* draft(input)
    const row = {
      grant_id: grant.id,
      token_hash: tokenHash,
      granted: encodeGrant(grant),
      permissions: encodePermissions(grant.permissions),
      revoked_at: null
    }
    // No retry: a second insert of the same ID would fail, and a second grant must not be issued.
    yield* database.once(sql`INSERT INTO cogni_grants ${sql.insert(row)}`)
    return { grant, token }
  })

  const find = (grantId: string) =>
    grantIdPattern.test(grantId) ? firstGrant(sql`WHERE grant_id = ${grantId}`) : Effect.succeed(undefined)

  return GrantStore.of({
    issue,
    find: Effect.fn("GrantStore.find")(find),
    authenticate: Effect.fn("GrantStore.authenticate")(function* (token) {
      return yield* firstGrant(sql`WHERE token_hash = ${yield* GrantToken.hash(token)}`)
    }),
    revoke: Effect.fn("GrantStore.revoke")(function* (grantId) {
      if (!grantIdPattern.test(grantId)) return undefined
      const revokedAt = new Date(yield* Clock.currentTimeMillis).toISOString()
      yield* database.again(sql`UPDATE cogni_grants SET revoked_at = ${revokedAt}
        WHERE grant_id = ${grantId} AND revoked_at IS NULL`)
      return yield* find(grantId)
    }),
    list: grants(sql`ORDER BY ordinal DESC LIMIT ${sql.literal(String(listedMax))}`),
    ofAccount: Effect.fn("GrantStore.ofAccount")(function* ({ after, billingAccountId, limit }) {
      if (after !== undefined && !grantIdPattern.test(after)) return []
      // A quote inside of a JSON text is escaped, so no other value contains this property.
      const property = `"billingAccountId":${JSON.stringify(billingAccountId)}`
      const isOwn = sql.onDialectOrElse({
        pg: () => sql`strpos(granted, ${property}) > 0`,
        orElse: () => sql`instr(granted, ${property}) > 0`
      })
      const isLater =
        after === undefined
          ? sql`1 = 1`
          : sql`ordinal < (SELECT ordinal FROM cogni_grants WHERE grant_id = ${after} AND ${isOwn})`
      const rows = Math.max(0, Math.min(Math.trunc(limit), listedMax))
      const found = yield* grants(
        sql`WHERE ${sql.and([isOwn, isLater])} ORDER BY ordinal DESC LIMIT ${sql.literal(String(rows))}`
      )
      // Decided by the grant itself, not by its text.
      return found.filter((grant) => grant.billingAccountId === billingAccountId)
    }),
    ...SignInTable.make(sql, database, firstGrant)
  })
})

export const layer: Layer.Layer<GrantStore, GrantStoreUnavailable | SchemaVersion.SchemaRefused, SqlClient> =
  Layer.effect(
    GrantStore,
    Effect.andThen(
      Effect.catchTag(bring, "SqlError", (error) => Effect.fail(unavailable(error))),
      make
    )
  )

interface Row {
  readonly granted: string
  readonly permissions: string
  readonly revoked_at: string | null
}

/** Format of the grant IDs of `GrantStore.draft`. No row has any other ID. */
const grantIdPattern = /^grant-[0-9a-f-]{36}$/u

const Granted = Schema.fromJsonString(
  Schema.toCodecJson(ExecutionGrant.mapFields(Struct.omit(["permissions"])))
)
const Permissions = Schema.fromJsonString(Schema.toCodecJson(GrantPermissions))
const encodeGrant = Schema.encodeSync(Granted)
const decodeGrant = Schema.decodeUnknownOption(Granted)
const encodePermissions = Schema.encodeSync(Permissions)
/** Refuses unknown properties, because a later version may use one to forbid something: such a grant is ignored. */
const decodePermissions = Schema.decodeUnknownOption(Permissions, { onExcessProperty: "error" })

const decode = (row: Row): ExecutionGrant | undefined => {
  const granted = Option.getOrUndefined(decodeGrant(row.granted))
  const permissions = Option.getOrUndefined(decodePermissions(row.permissions))
  return granted === undefined || permissions === undefined ? undefined : { ...granted, permissions }
}

/** Maximum number of remembered grants. The least recently used one is evicted. */
const decodedMax = 1000

/**
 * Returns the grant of a row. Each request reads the row of its grant, whose text does not change, and decoding it
 * takes longer than reading it. So the meaning of a text is remembered, and never what the database says about it.
 */
const makeGrantOf = () => {
  const decoded = new Map<string, ExecutionGrant>()
  return (row: Row): ExecutionGrant | undefined => {
    const text = `${row.granted}\n${row.permissions}`
    const grant = decoded.get(text) ?? decode(row)
    if (grant === undefined) return undefined
    decoded.delete(text)
    decoded.set(text, grant)
    const [oldest] = decoded.keys()
    if (decoded.size > decodedMax && oldest !== undefined) decoded.delete(oldest)
    return row.revoked_at === null ? grant : { ...grant, revokedAt: new Date(row.revoked_at) }
  }
}

/** Converts an error without the database's message, which may repeat the statement and the token's hash. */
const unavailable = ({ reason }: SqlError): GrantStoreUnavailable =>
  new GrantStoreUnavailable({
    detail: `cannot be used (${reason._tag})`,
    remedy: "Check the database and the connection to it, then try again"
  })

const database = DatabaseCall.make(unavailable, (words) => new GrantStoreUnavailable(words))
