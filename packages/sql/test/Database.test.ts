/** Tests database addresses. No message ever contains a password. */
import { assert, describe, it } from "@effect/vitest"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import { Effect, Layer, Result, Schema } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { inspect } from "node:util"
import * as Stores from "./Stores.ts"

const named = (text: string) =>
  Result.match(DatabaseAddress.parse(text), { onFailure: () => undefined, onSuccess: DatabaseAddress.nameOf })

/** All printable forms of a value. */
const shown = (value: unknown) =>
  [String(value), inspect(value, { depth: 9, showHidden: true }), JSON.stringify(value)].join("\n")

describe("Database", () => {
  it("names the database of a path or a URL", () => {
    assert.strictEqual(named("/a/b.db"), "/a/b.db")
    assert.strictEqual(named("sqlite:///a/b%20c.db"), "/a/b c.db")
    assert.isTrue(named("./x.db")?.endsWith("/x.db"))
    assert.strictEqual(
      named("postgres://u:p@db.example:6543/runs?sslmode=require"),
      "postgres://db.example:6543/runs"
    )
    assert.strictEqual(named("postgresql://db.example/runs"), "postgres://db.example/runs")
    assert.strictEqual(
      named("postgres://u@localhost/runs?host=%2Frun%2Fpostgresql"),
      "postgres:///run/postgresql/runs"
    )
  })

  it.each([
    "",
    "cogni.db",
    "sqlite://relative.db",
    "sqlite:///%ZZ",
    "/a\0b",
    "mysql://u:hunter2@h/d",
    "postgress://u:hunter2@h/d",
    "u:hunter2@h/d",
    "postgres://u:12/hunter2@h/d",
    "postgres://u:12?hunter2@h/d",
    "postgres://u:12#hunter2@h/d",
    "postgres://u:12#hunter2",
    "postgres://u:hunter2@h:port/d"
  ])("refuses %j without repeating it", (text) => {
    const parsed = DatabaseAddress.parse(text)
    assert.isTrue(Result.isFailure(parsed))
    assert.notInclude(shown(parsed), "hunter2")
    assert.notInclude(shown(parsed), "u:12")
  })

  it.prop(
    "never shows a password, encoded or not",
    [Schema.String.check(Schema.isPattern(/^[ -~]{8,40}$/u)), Schema.Boolean],
    ([password, encoded]) => {
      const secret = `Q${password}Z`
      const parsed = DatabaseAddress.parse(
        `postgres://user:${encoded ? encodeURIComponent(secret) : secret}@db.example/runs`
      )
      for (const text of [secret, encodeURIComponent(secret), secret.slice(0, 6)]) {
        if (shown(parsed).includes(text)) return false
      }
      return (
        !encoded ||
        (Result.isSuccess(parsed) && DatabaseAddress.nameOf(parsed.success) === "postgres://db.example/runs")
      )
    }
  )

  it.effect("reports a file that is not a database as unavailable, with a remedy", () =>
    Effect.gen(function* () {
      const path = join(yield* Stores.directory, "x.db")
      writeFileSync(path, "a letter ".repeat(100))
      const error = yield* Effect.flip(Layer.build(Database.layer({ _tag: "Sqlite", path })))
      assert.strictEqual(error._tag, "DatabaseUnavailable")
      assert.include(
        error.message,
        `the database ${path} answered with an error: file is not a database. Check`
      )
    })
  )

  it.effect("names the file that lies in the place of its directory", () =>
    Effect.gen(function* () {
      const file = join(yield* Stores.directory, "state")
      writeFileSync(file, "x")
      const layer = Database.layer({ _tag: "Sqlite", path: join(file, "x.db") })
      const { message } = yield* Effect.flip(Layer.build(layer))
      assert.strictEqual(
        message,
        `the database ${file}/x.db cannot be opened: its directory "${file}" cannot be created, because it is a file. ` +
          "Name a directory, or move that file away"
      )
    })
  )

  it.effect("opens a file and executes a query", () =>
    Effect.gen(function* () {
      const path = join(yield* Stores.directory, "x.db")
      const rows = yield* Effect.provide(
        SqlClient.use((sql) => sql`SELECT 1 AS a`),
        Database.layer({ _tag: "Sqlite", path })
      )
      assert.deepStrictEqual({ ...rows[0] }, { a: 1 })
    })
  )
})
