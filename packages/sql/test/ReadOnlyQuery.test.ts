/**
 * Queries of an agent against a real SQLite file: what they read, and what they cannot do.
 * `test/integration/ReadOnlyQuery.test.ts` has those of PostgreSQL.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { DatabaseSync } from "node:sqlite"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as ReadOnlyQuery from "@cogni/sandbox-sql/ReadOnlyQuery"
import * as ReadOnlyPostgres from "../src/internal/ReadOnlyPostgres.ts"
import * as ReadOnlySqlite from "../src/internal/ReadOnlySqlite.ts"

const failure = <A>(query: Effect.Effect<A, ReadOnlyQuery.QueryFailed>) =>
  Effect.map(Effect.flip(query), ({ detail, reason }) => [reason, detail] as const)

const sqlite = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-query-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  ),
  (directory) => {
    const path = join(directory, "data.db")
    const other = join(directory, "other.db")
    for (const place of [path, other]) {
      const db = new DatabaseSync(place)
      db.exec("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, blob BLOB)")
      db.exec(
        "INSERT INTO notes VALUES (1, 'one', x'00ff'), (2, 'two', NULL), (9007199254740993, 'far', NULL)"
      )
      db.close()
    }
    const notes = () => {
      const db = new DatabaseSync(path, { readOnly: true })
      const rows = db.prepare("SELECT text FROM notes").all()
      db.close()
      return rows.map((row) => row["text"])
    }
    return {
      directory,
      path,
      other,
      notes,
      query: (sql: string) => ReadOnlyQuery.run({ type: "sqlite", path }, sql)
    }
  }
)

describe("a query of SQLite", () => {
  it.live("reads rows as JSON", () =>
    Effect.gen(function* () {
      const { query } = yield* sqlite
      const told = yield* query("SELECT * FROM notes ORDER BY id -- a comment")
      assert.deepStrictEqual(told, {
        isTruncated: false,
        rows: [
          { id: 1, text: "one", blob: { bytes: 2 } },
          { id: 2, text: "two", blob: null },
          { id: "9007199254740993", text: "far", blob: null }
        ]
      })
      const named = yield* query("WITH a AS (SELECT count(*) AS n FROM notes) SELECT n FROM a")
      assert.deepStrictEqual(named.rows, [{ n: 3 }])
      assert.deepStrictEqual((yield* query("SELECT 9e999 AS n")).rows, [{ n: "Infinity" }])
      assert.deepStrictEqual((yield* query("SELECT 1 AS id, 2 AS id")).rows, [{ id: 1, "id:1": 2 }])
    })
  )

  it.live("cannot do anything else", () =>
    Effect.gen(function* () {
      const { directory, notes, other, query } = yield* sqlite
      const out = join(directory, "written.db")
      const corpus = [
        "INSERT INTO notes VALUES (3, 'three', NULL)",
        "UPDATE notes SET text = 'x'",
        "DELETE FROM notes",
        "DROP TABLE notes",
        "CREATE TABLE more (id)",
        "CREATE TEMP TABLE more (id)",
        "WITH gone AS (DELETE FROM notes RETURNING *) SELECT * FROM gone",
        "DELETE FROM notes RETURNING *",
        `ATTACH '${other}' AS other`,
        `VACUUM INTO '${out}'`,
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "BEGIN; DELETE FROM notes; COMMIT",
        "SELECT 1; DELETE FROM notes",
        "SELECT 1) ; DELETE FROM notes; --",
        "SELECT 1) ; DELETE FROM notes; SELECT * FROM (SELECT 1",
        "SELECT load_extension('/tmp/x.so')",
        `SELECT writefile('${out}', 'x')`,
        "SELECT readfile('/etc/passwd')",
        "SELECT fts3_tokenizer('simple', x'00')",
        "SELECT edit('x', '/bin/sh')",
        "EXPLAIN DELETE FROM notes",
        "",
        "-- nothing",
        "SELECT \0 1"
      ]
      for (const sql of corpus) {
        const exit = yield* Effect.exit(query(sql))
        assert.isTrue(Exit.isFailure(exit), `${sql} was answered with ${JSON.stringify(exit)}`)
      }
      assert.deepStrictEqual(notes(), ["one", "two", "far"])
      assert.isFalse(existsSync(out))
      assert.include((yield* failure(query("SELECT 1) ; SELECT * FROM (SELECT 2")))[1], "one SELECT")
    })
  )

  it.live("has limits on rows, bytes, memory and time", () =>
    Effect.gen(function* () {
      const { path, query } = yield* sqlite
      const many =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT i FROM n"
      const told = yield* query(many)
      assert.strictEqual(told.rows.length, ReadOnlyQuery.limits.rowsMax)
      assert.isTrue(told.isTruncated)
      assert.strictEqual((yield* query("SELECT 1 AS a) LIMIT 5 /*")).rows.length, 1)
      const big = yield* query("SELECT hex(zeroblob(100000)) FROM notes")
      assert.isTrue(big.isTruncated)
      assert.strictEqual(big.rows.length, 1)
      assert.strictEqual((yield* failure(query("SELECT zeroblob(900000000)")))[0], "failed")
      const long = "x".repeat(ReadOnlyQuery.limits.sqlCharactersMax + 1)
      assert.strictEqual((yield* failure(query(long)))[0], "refused")
      const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
      // The whole time would be 15 seconds of a processor.
      assert.deepStrictEqual((yield* failure(ReadOnlySqlite.run(path, endless, 1)))[0], "slow")
    })
  )

  it.live("has a limit on temporary files", () =>
    Effect.gen(function* () {
      const { query } = yield* sqlite
      const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
      const [reason, detail] = yield* failure(
        query(`${endless} SELECT count(*) FROM (SELECT DISTINCT zeroblob(900000) || i AS v FROM n)`)
      )
      assert.strictEqual(reason, "failed")
      assert.include(detail, "disk")
    })
  )

  it.live("says that a missing database cannot be read, and makes none", () =>
    Effect.gen(function* () {
      const { directory } = yield* sqlite
      const path = join(directory, "missing.db")
      yield* Effect.flip(ReadOnlyQuery.run({ type: "sqlite", path }, "SELECT 1"))
      assert.isFalse(existsSync(path))
      writeFileSync(path, "this is no database, but a text of some length")
      yield* Effect.flip(ReadOnlyQuery.run({ type: "sqlite", path }, "SELECT * FROM sqlite_schema"))
    })
  )
})

describe("a query of PostgreSQL", () => {
  it("has numbers as text that JSON does not have, and fails for a date that nothing shows", () => {
    assert.deepStrictEqual(ReadOnlyPostgres.plain([Number.NaN, Number.POSITIVE_INFINITY, 1, 2n]), [
      "NaN",
      "Infinity",
      1,
      "2"
    ])
    assert.throws(() => ReadOnlyPostgres.plain(new Date(Number.NaN)))
  })

  it.each(["SELECT PG_SLEEP(1)", "select dblink_connect('x')", "SELECT 'lo_export'", "SELECT u& 'x'"])(
    "is refused before the database sees it: %s",
    (sql) => {
      assert.isDefined(ReadOnlyPostgres.refusalOf(sql))
    }
  )

  it("is not refused for words that only look similar", () => {
    assert.isUndefined(ReadOnlyPostgres.refusalOf("SELECT blo_x, nextvalue FROM setvalues WHERE us& 1"))
  })
})
