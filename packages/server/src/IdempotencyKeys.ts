/**
 * Run ids that follow from an account and its idempotency key, under a secret of the server.
 *
 * The same key of the same account is the same run, also after a restart and in another process on the same database.
 * Another account can neither compute such an id nor ask for one: it is an HMAC, and callers may not name ids of its
 * form themselves.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SchemaVersion from "@cogni/sandbox-core/SchemaVersion"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"

export class IdempotencyKeys extends Context.Service<
  IdempotencyKeys,
  {
    readonly runIdOf: (billingAccountId: string, idempotencyKey: string) => Effect.Effect<RunId>
  }
>()("@cogni/sandbox-server/IdempotencyKeys") {}

/** What ids that follow from a key begin with. */
export const prefix = "key-"

/**
 * Whether only the server may make an id of this form: its own, and that of earlier versions, whose ids followed from
 * account and key without a secret and may still be on record.
 */
export const isReserved = (runId: string): boolean =>
  runId.startsWith(prefix) || /^run-[0-9a-f]{32}$/u.test(runId)

/** Bytes of the secret. */
export const secretBytes = 32

/** From a secret of {@link secretBytes} bytes; it cannot be read back. */
export const make = Effect.fnUntraced(function* (secret: Uint8Array<ArrayBuffer>) {
  const key = yield* Effect.promise(() =>
    crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"])
  )
  return IdempotencyKeys.of({
    runIdOf: (billingAccountId, idempotencyKey) =>
      Effect.map(
        Effect.promise(() =>
          crypto.subtle.sign(
            "HMAC",
            key,
            new TextEncoder().encode(JSON.stringify([billingAccountId, idempotencyKey]))
          )
        ),
        (mac) => RunId.make(`${prefix}${hex(new Uint8Array(mac, 0, 16))}`)
      )
  })
})

/** In the database's table of secrets, where the first process that asks makes the secret. */
export const makeSql: Effect.Effect<
  IdempotencyKeys["Service"],
  SchemaVersion.SchemaRefused | SqlError,
  SqlClient
> = Effect.gen(function* () {
  yield* bring
  const sql = yield* SqlClient
  const row = { name: "idempotency-keys", secret: hex(randomSecret()) }
  // Of processes that begin together one is first; all of them read what it wrote.
  yield* sql`INSERT INTO cogni_server_secrets ${sql.insert(row)} ON CONFLICT (name) DO NOTHING`
  const [kept] = yield* sql<{ readonly secret: string }>`
    SELECT secret FROM cogni_server_secrets WHERE name = ${row.name}`
  const secret = Uint8Array.from(kept?.secret.match(/../gu) ?? [], (byte) => Number.parseInt(byte, 16))
  if (secret.length !== secretBytes) {
    return yield* new SchemaVersion.SchemaRefused({
      detail: `the secret of idempotency keys in cogni_server_secrets does not have ${secretBytes} bytes`,
      remedy: "Delete its row: a new secret is made, and keys that were used before start new runs"
    })
  }
  return yield* make(secret)
})

/** A secret of this process: after a restart, a key starts a new run. */
export const layerMemory: Layer.Layer<IdempotencyKeys> = Layer.effect(
  IdempotencyKeys,
  Effect.suspend(() => make(randomSecret()))
)

/** A secret that all processes on one database share. */
export const layerSql: Layer.Layer<IdempotencyKeys, SchemaVersion.SchemaRefused, SqlClient> = Layer.effect(
  IdempotencyKeys,
  // Without what the database said: it may repeat what it was sent.
  Effect.catchTag(makeSql, "SqlError", ({ reason }) =>
    Effect.fail(
      new SchemaVersion.SchemaRefused({
        detail: `the table of secrets cannot be used (${reason._tag})`,
        remedy: "Check the database and the connection to it, then try again"
      })
    )
  )
)

const bring = SchemaVersion.bring({
  versionTable: "cogni_server_version",
  steps: [
    {
      name: "secrets",
      run: Effect.flatMap(
        SqlClient,
        (sql) => sql`CREATE TABLE cogni_server_secrets (name TEXT PRIMARY KEY, secret TEXT NOT NULL)`
      )
    }
  ]
})

const randomSecret = () => crypto.getRandomValues(new Uint8Array(secretBytes))

const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")
