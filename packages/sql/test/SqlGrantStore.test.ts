/** Tests grants in a file: the contract, and the contents of the file. */
import { assert, describe, it } from "@effect/vitest"
import * as SqlGrantStore from "@cogni/sandbox-sql/SqlGrantStore"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import { GrantStoreContract } from "@cogni/sandbox-graph-provider/testing"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import { Context, Effect, Layer, Redacted } from "effect"
import * as SchemaVersion from "@cogni/sandbox-sql/SchemaVersion"
import { SqlClient } from "effect/sql/SqlClient"
import { TestClock } from "effect/testing"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-grants-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const stored = (path: string) =>
  SqlGrantStore.layer.pipe(Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "grants.db") })))

GrantStoreContract.suite("SQLite", Layer.unwrap(Effect.map(directory, (path) => stored(path))))

describe("SqlGrantStore", () => {
  it.effect("stores the hash of a token and no part of the token", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const { hash, secret } = yield* Effect.gen(function* () {
        const store = yield* GrantStore
        const { token } = yield* store.issue({
          userId: "u",
          billingAccountId: "b",
          scopes: [],
          allowSandbox: false,
          expiresAt: null
        })
        return { secret: Redacted.value(token), hash: yield* GrantToken.hash(token) }
      }).pipe(Effect.provide(stored(path)))
      const bytes = readdirSync(path)
        .map((name) => readFileSync(join(path, name), "latin1"))
        .join("")
      assert.match(secret, /^cgs_[A-Za-z0-9_-]{43}$/u)
      assert.notInclude(bytes, secret.slice(4, 20))
      assert.include(bytes, hash)
    })
  )

  it.effect("stores the hash of a sign-in's secret, and removes what has expired", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const open = Context.get(yield* Layer.build(stored(path)), GrantStore)
      const sql = Context.get(yield* Layer.build(stored(path)), SqlClient)
      const hashes = Effect.map(sql<{ readonly secret_hash: string }>`SELECT * FROM cogni_sign_ins`, (rows) =>
        rows.map((row) => row.secret_hash)
      )
      const secrets = [yield* open.openSignIn("grant-a", 60), yield* open.openSignIn("grant-b", 120)]
      const expected = yield* Effect.forEach(secrets, GrantToken.hash)
      assert.deepStrictEqual(yield* hashes, expected)
      for (const secret of secrets) assert.notInclude(expected.join(), Redacted.value(secret).slice(4, 20))
      yield* TestClock.adjust("61 seconds")
      const third = yield* open.openSignIn("grant-c", 60)
      assert.deepStrictEqual(yield* hashes, [expected[1], yield* GrantToken.hash(third)])
    })
  )

  it.effect("finds grants after the process that issued them has ended", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const issued = yield* Effect.provide(
        GrantStore.use((store) =>
          store.issue({ userId: "u", billingAccountId: "b", scopes: [], allowSandbox: true, expiresAt: null })
        ),
        stored(path)
      )
      const found = yield* Effect.provide(
        GrantStore.use((store) => store.authenticate(issued.token)),
        Layer.fresh(stored(path))
      )
      assert.deepStrictEqual(found, issued.grant)
    })
  )

  it.effect("gives a grant of a version without permissions access to no tool and no repository", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const database = SqliteDatabase.layer({ path: join(path, "grants.db") })
      const token = yield* GrantToken.generate
      const tokenHash = yield* GrantToken.hash(token)
      const id = "grant-00000000-0000-4000-8000-000000000001"
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient
        yield* SchemaVersion.bring({
          versionTable: "cogni_grants_version",
          steps: [
            {
              name: "grants",
              run: () => sql`CREATE TABLE cogni_grants (ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
                grant_id TEXT NOT NULL UNIQUE, token_hash TEXT NOT NULL UNIQUE, granted TEXT NOT NULL,
                revoked_at TEXT)`
            }
          ]
        })
        const granted = JSON.stringify({
          id,
          userId: "u",
          billingAccountId: "b",
          scopes: ["graph:execute:*"],
          allowSandbox: true,
          expiresAt: null,
          revokedAt: null,
          createdAt: "2026-01-01T00:00:00.000Z"
        })
        yield* sql`INSERT INTO cogni_grants ${sql.insert({ grant_id: id, token_hash: tokenHash, granted })}`
      }).pipe(Effect.provide(Layer.fresh(database)))
      yield* Effect.gen(function* () {
        const store = yield* GrantStore
        const found = yield* store.authenticate(token)
        assert.deepStrictEqual([found?.id, found?.permissions], [id, {}])
        const signIn = yield* store.openSignIn(id, 60)
        assert.deepStrictEqual(yield* store.authenticateSignIn(signIn), found)
        assert.deepStrictEqual(yield* store.list, found === undefined ? [] : [found])
        const sql = yield* SqlClient
        yield* sql`UPDATE cogni_grants SET permissions = ${'{"forbids":["everything"]}'}`
        assert.isUndefined(yield* store.authenticate(token), "an unknown permission disables the grant")
      }).pipe(Effect.provide(Layer.fresh(stored(path))))
    })
  )

  it.effect("refuses tables of a later version, with a remedy", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const sql = Context.get(yield* Layer.build(stored(path)), SqlClient)
      yield* sql`INSERT INTO cogni_grants_version (migration_id, name) VALUES (99, 'later')`
      const error = yield* Effect.flip(Layer.build(Layer.fresh(stored(path))))
      assert.strictEqual(error._tag, "SchemaRefused")
      assert.include(error.message, "is at version 99")
      assert.include(error.message, "Update Cogni Sandbox")
    })
  )
})
