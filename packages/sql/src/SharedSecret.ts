/**
 * A secret that all processes on one database share: random bytes, made by the first that asks for them.
 *
 * It is kept in the table `cogni_server_secrets`, under a name.
 */
import { Effect, Result } from "effect"
import * as Hex from "effect/encoding/Hex"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import * as SchemaVersion from "./SchemaVersion.ts"

/** The secret of this name, of so many bytes. */
export const make = Effect.fn("SharedSecret.make")(
  function* (
    name: string,
    bytes: number
  ): Effect.fn.Return<Uint8Array<ArrayBuffer>, SchemaVersion.SchemaRefused | SqlError, SqlClient> {
    yield* bring
    const sql = yield* SqlClient
    const row = { name, secret: Hex.encode(crypto.getRandomValues(new Uint8Array(bytes))) }
    // Of processes that begin together one is first; all of them read what it wrote.
    yield* sql`INSERT INTO cogni_server_secrets ${sql.insert(row)} ON CONFLICT (name) DO NOTHING`
    const [kept] = yield* sql<{ readonly secret: string }>`
      SELECT secret FROM cogni_server_secrets WHERE name = ${name}`
    const secret = Result.getOrUndefined(Hex.decode(kept?.secret ?? ""))
    if (secret?.length !== bytes) {
      return yield* new SchemaVersion.SchemaRefused({
        detail: `the secret ${name} in cogni_server_secrets does not have ${bytes} bytes`,
        remedy: "Delete its row: a new secret is made, and what followed from the old one is not found again"
      })
    }
    return new Uint8Array(secret)
  },
  // Without what the database said: it may repeat what it was sent.
  Effect.catchTag(
    "SqlError",
    ({ reason }) =>
      new SchemaVersion.SchemaRefused({
        detail: `the table of secrets cannot be used (${reason._tag})`,
        remedy: "Check the database and the connection to it, then try again"
      })
  )
)

const bring = SchemaVersion.bring({
  versionTable: "cogni_server_version",
  steps: [
    {
      name: "secrets",
      run: (sql) => sql`CREATE TABLE cogni_server_secrets (name TEXT PRIMARY KEY, secret TEXT NOT NULL)`
    }
  ]
})
