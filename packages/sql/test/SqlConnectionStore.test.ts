/** Connections in a file: the contract, and the contents of the file. */
import { assert, describe, it } from "@effect/vitest"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import { ConnectionStoreContract } from "@cogni/sandbox-connections/testing"
import * as SqlConnectionStore from "@cogni/sandbox-sql/SqlConnectionStore"
import { Context, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as Stores from "./Stores.ts"

const stored = (path: string) =>
  SqlConnectionStore.layer.pipe(
    Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "connections.db") }))
  )

ConnectionStoreContract.suite("SQLite", Layer.unwrap(Effect.map(Stores.directory, (path) => stored(path))))

const input = {
  billingAccountId: "account-a",
  name: "gitlab",
  server: "https://gitlab.com",
  means: { kind: "token" as const },
  expiresAt: null
}

describe("SqlConnectionStore", () => {
  it.effect("stores a secret only as ciphertext, which another process with the key opens", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const keys = SecretBox.layerKeys(Effect.succeed(Redacted.make(Buffer.alloc(32, 7).toString("base64"))))
      const opened = () => Layer.fresh(Layer.merge(stored(path), Layer.provide(SecretBox.layer, keys)))
      const connection = yield* Effect.gen(function* () {
        const store = yield* ConnectionStore.ConnectionStore
        const box = yield* SecretBox.SecretBox
        const drafted = yield* ConnectionStore.draft(input)
        yield* store.add(drafted, yield* box.seal(drafted, Redacted.make("planted-token-at-rest")))
        return drafted
      }).pipe(Effect.provide(opened()))
      const bytes = readdirSync(path)
        .map((name) => readFileSync(join(path, name), "latin1"))
        .join("")
      assert.include(bytes, connection.id)
      assert.notInclude(bytes, "planted-token")
      assert.notInclude(bytes, Buffer.from("planted-token").toString("base64").slice(0, 16))
      const found = yield* Effect.gen(function* () {
        const store = yield* ConnectionStore.ConnectionStore
        const box = yield* SecretBox.SecretBox
        return yield* box.open(connection, (yield* store.secret(connection.id))!)
      }).pipe(Effect.provide(opened()))
      assert.strictEqual(Redacted.value(found), "planted-token-at-rest")
    })
  )

  it.effect("refuses the account of a connection that this version cannot read, until it is removed", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(stored(yield* Stores.directory))
      const store = Context.get(context, ConnectionStore.ConnectionStore)
      const sql = Context.get(context, SqlClient)
      const connection = yield* ConnectionStore.draft(input)
      yield* store.add(connection, "ciphertext")
      const later = JSON.stringify({ ...connection, onlyOnWeekdays: true })
      yield* sql`UPDATE cogni_connections SET described = ${later}`
      const error = yield* Effect.flip(store.list("account-a"))
      assert.include(error.message, "this version cannot read")
      assert.deepStrictEqual(yield* store.withSecret(undefined), [
        { id: connection.id, connection: undefined }
      ])
      assert.isTrue(yield* store.revoke("account-a", "gitlab"))
      assert.isEmpty(yield* store.list("account-a"))
      assert.isUndefined(yield* store.secret(connection.id))
    })
  )

  it.effect("refuses a connection whose row was copied to another account or name", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(stored(yield* Stores.directory))
      const store = Context.get(context, ConnectionStore.ConnectionStore)
      const sql = Context.get(context, SqlClient)
      yield* store.add(yield* ConnectionStore.draft(input), "ciphertext")
      for (const change of [
        sql`UPDATE cogni_connections SET billing_account_id = 'account-b'`,
        sql`UPDATE cogni_connections SET billing_account_id = 'account-a', name = 'other'`,
        sql`UPDATE cogni_connections SET name = 'gitlab', connection_id = 'connection-other'`
      ]) {
        yield* change
        for (const account of ["account-a", "account-b"]) {
          const found = yield* Effect.orElseSucceed(store.list(account), () => [])
          assert.isEmpty(found)
        }
      }
    })
  )

  it.effect("fails without the database's message, which may repeat a statement", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(stored(yield* Stores.directory))
      const store = Context.get(context, ConnectionStore.ConnectionStore)
      yield* Context.get(context, SqlClient)`DROP TABLE cogni_connections`
      const error = yield* Effect.flip(store.secret("connection-planted-token"))
      assert.strictEqual(error._tag, "ConnectionStoreUnavailable")
      assert.notInclude(error.message, "planted")
    })
  )
})
