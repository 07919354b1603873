/** Tests SQLite as a `SqlClient`: locks, rollbacks and error reasons. */
import { assert, describe, it } from "@effect/vitest"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import { Context, Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Stores from "./Stores.ts"

const client = (path: string) =>
  Effect.map(Layer.build(Layer.fresh(SqliteDatabase.layer({ path }))), (context) =>
    Context.get(context, SqlClient)
  )

const opened = Effect.gen(function* () {
  const path = join(yield* Stores.directory, "made", "state", "cogni.db")
  const sql = yield* client(path)
  yield* sql`CREATE TABLE t (a TEXT PRIMARY KEY, b INTEGER UNIQUE, c TEXT NOT NULL DEFAULT 'x')`
  return { path, sql }
})

const names = (sql: SqlClient) =>
  Effect.map(sql<{ a: string }>`SELECT a FROM t ORDER BY a`, (rows) => rows.map(({ a }) => a))

describe("SqliteDatabase", () => {
  it.effect("restricts the file and the files beside it to their owner, also if the file existed", () =>
    Effect.gen(function* () {
      const { path, sql } = yield* opened
      yield* sql`INSERT INTO t (a) VALUES ('x')`
      const state = join(path, "..")
      assert.strictEqual(statSync(state).mode & 0o777, 0o700)
      assert.isAtLeast(readdirSync(state).length, 2)
      for (const name of readdirSync(state))
        assert.strictEqual(statSync(join(state, name)).mode & 0o777, 0o600)
      const other = join(yield* Stores.directory, "open.db")
      writeFileSync(other, "", { mode: 0o644 })
      yield* client(other)
      assert.strictEqual(statSync(other).mode & 0o777, 0o600)
    })
  )

  it.effect("rolls back a failed transaction, and of a nested one only its own changes", () =>
    Effect.gen(function* () {
      const { sql } = yield* opened
      const insert = (a: string) => sql`INSERT INTO t (a) VALUES (${a})`
      yield* Effect.exit(sql.withTransaction(Effect.andThen(insert("undone"), Effect.fail("no"))))
      yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* insert("outer")
          yield* Effect.exit(sql.withTransaction(Effect.andThen(insert("inner"), Effect.fail("no"))))
          yield* sql.withTransaction(insert("kept"))
        })
      )
      assert.deepStrictEqual(yield* names(sql), ["kept", "outer"])
    })
  )

  it.effect("rolls back an interrupted transaction and releases its lock", () =>
    Effect.gen(function* () {
      const { path, sql } = yield* opened
      const inside = yield* Deferred.make<void>()
      const fiber = yield* sql
        .withTransaction(
          Effect.andThen(
            sql`INSERT INTO t (a) VALUES ('x')`,
            Effect.andThen(Deferred.succeed(inside, undefined), Effect.never)
          )
        )
        .pipe(Effect.forkChild)
      yield* Deferred.await(inside)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(yield* names(yield* client(path)), [])
      yield* sql`INSERT INTO t (a) VALUES ('y')`
    })
  )

  it.live("retries on a locked file without blocking the process", () =>
    Effect.gen(function* () {
      const { path, sql } = yield* opened
      const other = yield* client(path)
      const locked = yield* Deferred.make<void>()
      const release = yield* Deferred.make<void>()
      const holder = yield* other
        .withTransaction(Effect.andThen(Deferred.succeed(locked, undefined), Deferred.await(release)))
        .pipe(Effect.forkChild)
      yield* Deferred.await(locked)
      const waiting = yield* sql.withTransaction(sql`INSERT INTO t (a) VALUES ('x')`).pipe(Effect.forkChild)
      let beats = 0
      // Longer than SQLite waits by itself.
      const until = performance.now() + 20 * SqliteDatabase.lockWaitMillisMax
      yield* Effect.sync(() => beats++).pipe(
        Effect.andThen(Effect.promise(() => new Promise(setImmediate))),
        Effect.repeat({ while: () => beats <= 50 || performance.now() < until })
      )
      assert.isUndefined(waiting.pollUnsafe())
      yield* Deferred.succeed(release, undefined)
      yield* Fiber.join(waiting)
      yield* Fiber.join(holder)
      assert.isAbove(beats, 50)
      assert.deepStrictEqual(yield* names(other), ["x"])
    })
  )

  it.effect("maps SQLite errors to reasons", () =>
    Effect.gen(function* () {
      const { sql } = yield* opened
      const reason = (effect: Effect.Effect<unknown, unknown>) =>
        Effect.map(Effect.flip(effect), (error) => (error as { reason: { _tag: string } }).reason._tag)
      yield* sql`INSERT INTO t (a, b) VALUES ('x', 1)`
      assert.strictEqual(yield* reason(sql`INSERT INTO t (a) VALUES ('x')`), "UniqueViolation")
      assert.strictEqual(yield* reason(sql`INSERT INTO t (a, b) VALUES ('y', 1)`), "UniqueViolation")
      assert.strictEqual(yield* reason(sql`INSERT INTO t (a, c) VALUES ('y', NULL)`), "ConstraintError")
      assert.strictEqual(yield* reason(sql`SELECT FROM`), "UnknownError")
    })
  )

  it.effect("refuses a file that is not a database or cannot be opened, and leaves it unchanged", () =>
    Effect.gen(function* () {
      const directory = yield* Stores.directory
      const text = join(directory, "text.db")
      writeFileSync(text, "this is a letter, and no database at all\n".repeat(100))
      mkdirSync(join(directory, "folder.db"))
      for (const name of ["text.db", "folder.db", "text.db/below/it.db"]) {
        assert.isTrue(Exit.isFailure(yield* Effect.exit(client(join(directory, name)))), name)
      }
      assert.strictEqual(statSync(text).size, 41 * 100)
    })
  )

  it.effect("executes more statements than the cache of prepared statements holds", () =>
    Effect.gen(function* () {
      const { sql } = yield* opened
      for (let index = 0; index < SqliteDatabase.preparedStatementsMax * 3; index++) {
        const [row] = yield* sql<{ n: number }>`SELECT ${sql.literal(String(index))} AS n`
        assert.strictEqual(row?.n, index)
      }
    })
  )
})
