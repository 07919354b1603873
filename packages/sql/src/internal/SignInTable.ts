/**
 * Sign-ins of browsers in the database of the grants: a table beside theirs, so that a secret and its grant are one
 * question, and every server on the same grants accepts a sign-in.
 */
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import type { GrantStoreUnavailable } from "@cogni/sandbox-graph-provider/grants/GrantError"
import { Clock, Effect, type Redacted } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import type { Fragment } from "effect/sql/Statement"
import type * as DatabaseCall from "./DatabaseCall.ts"

/** Steps of the schema, after those of the grants. */
export const steps = [
  {
    name: "sign-ins",
    run: (sql: SqlClient) => {
      const counted = sql.literal(
        sql.onDialectOrElse({
          pg: () => "BIGSERIAL PRIMARY KEY",
          orElse: () => "INTEGER PRIMARY KEY AUTOINCREMENT"
        })
      )
      return sql`CREATE TABLE cogni_sign_ins (ordinal ${counted}, secret_hash TEXT NOT NULL UNIQUE,
        grant_id TEXT NOT NULL, expires_at_millis BIGINT NOT NULL)`
    }
  },
  {
    name: "sign-ins of a grant",
    run: (sql: SqlClient) => sql`CREATE INDEX cogni_sign_ins_grant ON cogni_sign_ins (grant_id, ordinal)`
  },
  {
    name: "expired sign-ins",
    run: (sql: SqlClient) => sql`CREATE INDEX cogni_sign_ins_expiry ON cogni_sign_ins (expires_at_millis)`
  }
] as const

type Calls = ReturnType<typeof DatabaseCall.make<GrantStoreUnavailable>>

/** `firstGrant` finds the grant with a condition. */
export const make = (
  sql: SqlClient,
  database: Calls,
  firstGrant: (which: Fragment) => Effect.Effect<ExecutionGrant | undefined, GrantStoreUnavailable>
) => {
  /** Two openings of one grant at the same time would each miss the other's row. SQLite has one writer anyway. */
  const locked = (grantId: string) =>
    sql.onDialectOrElse({
      pg: () =>
        Effect.asVoid(sql`SELECT pg_advisory_xact_lock(hashtextextended(${`cogni-sign-ins ${grantId}`}, 0))`),
      orElse: (): Effect.Effect<void, SqlError> => Effect.void
    })

  return {
    openSignIn: Effect.fn("GrantStore.openSignIn")(function* (grantId: string, seconds: number) {
      const nowMillis = yield* Clock.currentTimeMillis
      const secret = yield* GrantToken.generateSignIn
      const row = {
        secret_hash: yield* GrantToken.hash(secret),
        grant_id: grantId,
        expires_at_millis: nowMillis + seconds * 1000
      }
      // No retry: a second insert of the same secret would fail. The caller signs in again.
      yield* database.once(
        Effect.gen(function* () {
          yield* locked(grantId)
          yield* sql`DELETE FROM cogni_sign_ins WHERE expires_at_millis <= ${nowMillis}`
          yield* sql`INSERT INTO cogni_sign_ins ${sql.insert(row)}`
          yield* sql`DELETE FROM cogni_sign_ins WHERE grant_id = ${grantId} AND ordinal NOT IN (
            SELECT ordinal FROM cogni_sign_ins WHERE grant_id = ${grantId}
            ORDER BY ordinal DESC LIMIT ${sql.literal(String(GrantToken.signInsPerGrantMax))})`
        }).pipe(sql.withTransaction)
      )
      return secret
    }),
    authenticateSignIn: Effect.fn("GrantStore.authenticateSignIn")(function* (
      secret: Redacted.Redacted<string>
    ) {
      const hash = yield* GrantToken.hash(secret)
      const nowMillis = yield* Clock.currentTimeMillis
      return yield* firstGrant(sql`WHERE grant_id = (SELECT grant_id FROM cogni_sign_ins
        WHERE secret_hash = ${hash} AND expires_at_millis > ${nowMillis})`)
    }),
    closeSignIn: Effect.fn("GrantStore.closeSignIn")(function* (secret: Redacted.Redacted<string>) {
      yield* database.again(
        sql`DELETE FROM cogni_sign_ins WHERE secret_hash = ${yield* GrantToken.hash(secret)}`
      )
    })
  }
}
