/** Queries of an agent against a real PostgreSQL: what they read, and what they cannot do. */
import { assert, describe, it } from "@effect/vitest"
import * as Database from "@cogni/sandbox-sql/Database"
import * as ReadOnlyQuery from "@cogni/sandbox-sql/ReadOnlyQuery"
import { Context, Effect, Exit, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { existsSync } from "node:fs"
import * as PostgresServer from "../harness/PostgresServer.ts"

const failure = <A>(query: Effect.Effect<A, ReadOnlyQuery.QueryFailed>) =>
  Effect.map(Effect.flip(query), ({ detail, reason }) => [reason, detail] as const)

class Postgres extends Context.Service<
  Postgres,
  {
    readonly admin: (sql: string) => Effect.Effect<ReadonlyArray<Record<string, unknown>>>
    readonly as: (
      username: string,
      password: string
    ) => (sql: string) => Effect.Effect<ReadOnlyQuery.QueryAnswer, ReadOnlyQuery.QueryFailed>
    readonly query: (sql: string) => Effect.Effect<ReadOnlyQuery.QueryAnswer, ReadOnlyQuery.QueryFailed>
  }
>()("test/Postgres") {}

const secret = "reader-p@ss"

const postgres = Layer.effect(
  Postgres,
  Effect.gen(function* () {
    const server = yield* PostgresServer.acquire
    const address = yield* server.database("app")
    const host = decodeURIComponent(server.url("app").split("?host=")[1]!)
    const admin = (sql: string) =>
      Effect.flatMap(SqlClient, (client) => client.unsafe<Record<string, unknown>>(sql)).pipe(
        Effect.provide(Layer.fresh(Database.layer(address))),
        Effect.orDie
      )
    yield* admin("CREATE TABLE notes (id bigint, text text, at timestamptz DEFAULT now())")
    yield* admin("INSERT INTO notes (id, text) VALUES (1, 'one'), (2, 'two')")
    yield* admin("CREATE SEQUENCE counter")
    yield* admin(
      "CREATE FUNCTION erase() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'DELETE FROM notes RETURNING 1'"
    )
    yield* admin(`CREATE ROLE reader LOGIN PASSWORD '${secret}'`)
    yield* admin("GRANT ALL ON ALL TABLES IN SCHEMA public TO reader")
    yield* admin("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO reader")
    yield* admin("GRANT ALL ON SCHEMA public TO reader")
    const as = (username: string, password: string) => (sql: string) =>
      ReadOnlyQuery.run({ type: "postgres", host, database: "app", username }, sql, Redacted.make(password))
    return { admin, as, query: as("reader", secret) }
  })
)

describe("a query of PostgreSQL", () => {
  it.layer(postgres, { excludeTestServices: true, timeout: "5 minutes" })((it) => {
    it.effect("reads rows as JSON, at most a limit of them", () =>
      Effect.gen(function* () {
        const { query } = yield* Postgres
        const told = yield* query("SELECT id, text FROM notes ORDER BY id -- a comment")
        assert.deepStrictEqual(JSON.parse(JSON.stringify(told.rows)), [
          { id: "1", text: "one" },
          { id: "2", text: "two" }
        ])
        const many = yield* query("SELECT i FROM generate_series(1, 1000000) AS i")
        assert.strictEqual(many.rows.length, ReadOnlyQuery.limits.rowsMax)
        assert.isTrue(many.isTruncated)
        assert.isTrue((yield* query("SELECT repeat('x', 300000) AS big FROM notes")).isTruncated)
      })
    )

    it.effect("shows every column and every type", () =>
      Effect.gen(function* () {
        const { query } = yield* Postgres
        const told = yield* query(
          "SELECT a.id, b.id, a.id AS \"id:1\", B'1010' AS bits, B'1'::varbit AS more, to_tsvector('a fat cat') AS words," +
            " interval '1 day 2 hours' AS span, time '10:00' AS at, int4range(1, 5) AS range, point(1, 2) AS point," +
            " ROW(1, 'x') AS record, ARRAY[B'01', NULL] AS list, NULL::tsvector AS none, '10.0.0.1'::inet AS host," +
            " '{\"a\": 1}'::jsonb AS document, ARRAY[1, NULL] AS numbers" +
            " FROM notes a JOIN notes b ON a.id <> b.id ORDER BY a.id DESC -- a comment"
        )
        const rest = {
          bits: "1010",
          more: "1",
          words: "'cat':3 'fat':2",
          span: "1 day 02:00:00",
          at: "10:00:00",
          range: "[1,5)",
          point: "(1,2)",
          record: "(1,x)",
          list: "{01,NULL}",
          none: null,
          host: "10.0.0.1",
          document: { a: 1 },
          numbers: [1, null]
        }
        assert.deepStrictEqual(told.rows, [
          { id: "2", "id:1": "1", "id:1:1": "2", ...rest },
          { id: "1", "id:1": "2", "id:1:1": "1", ...rest }
        ])
        // The query alone is one SELECT before it is a part of another.
        for (const [sql, reason] of [
          ["SELECT 1) AS q(c0), (SELECT B'1'", "failed"],
          ["SELECT B'1') AS q(c0); DELETE FROM notes; --", "refused"],
          ["SELECT 1; -- words", "refused"],
          ["SELECT interval '1 day'; -- words", "refused"]
        ] as const)
          assert.strictEqual((yield* failure(query(sql)))[0], reason, sql)
        assert.deepStrictEqual((yield* query("TABLE notes LIMIT 0")).rows, [])
        assert.deepStrictEqual((yield* query("VALUES (B'1', 1) ;")).rows, [{ column1: "1", column2: 1 }])
        const many = yield* query("SELECT int4range(i, i + 1) AS r FROM generate_series(1, 1000000) AS i")
        assert.deepStrictEqual([many.rows.length, many.isTruncated], [ReadOnlyQuery.limits.rowsMax, true])
      })
    )

    it.effect("cannot do anything else", () =>
      Effect.gen(function* () {
        const { admin, query } = yield* Postgres
        const corpus = [
          "INSERT INTO notes (id) VALUES (3)",
          "UPDATE notes SET text = 'x'",
          "DELETE FROM notes",
          "DELETE FROM notes RETURNING *",
          "TRUNCATE notes",
          "DROP TABLE notes",
          "CREATE TABLE more (id int)",
          "SELECT * INTO more FROM notes",
          "WITH gone AS (DELETE FROM notes RETURNING *) SELECT * FROM gone",
          "SELECT * FROM notes FOR UPDATE",
          "SELECT erase()",
          "SELECT nextval('counter')",
          "SELECT setval('counter', 9)",
          "SELECT \"nextval\"('counter')",
          "COPY notes TO PROGRAM 'touch /tmp/cogni-copied'",
          "COPY (SELECT 1) TO '/tmp/cogni-copied'",
          "COPY notes FROM '/etc/passwd'",
          "SELECT pg_read_file('/etc/passwd')",
          "SELECT pg_ls_dir('/')",
          "SELECT lo_import('/etc/passwd')",
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
          'SELECT U&"pg\\005fterminate_backend"(1)',
          "SELECT query_to_xml('DELETE FROM notes', true, false, '')",
          "SELECT pg_advisory_lock(1)",
          "SELECT pg_notify('a', 'b')",
          "SELECT set_config('transaction_read_only', 'off', false)",
          "SET transaction_read_only = off",
          "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
          "COMMIT",
          "SELECT 1; DELETE FROM notes",
          "SELECT 1; COMMIT; DELETE FROM notes",
          "LISTEN a",
          "NOTIFY a",
          "DO $$ BEGIN DELETE FROM notes; END $$",
          "CALL erase()",
          "EXPLAIN ANALYZE DELETE FROM notes",
          "LOCK TABLE notes",
          "VACUUM",
          "GRANT ALL ON notes TO PUBLIC",
          "ALTER ROLE reader SUPERUSER",
          "",
          "SELECT \0 1"
        ]
        for (const sql of corpus) {
          const exit = yield* Effect.exit(query(sql))
          assert.isTrue(Exit.isFailure(exit), `${sql} was answered with ${JSON.stringify(exit)}`)
        }
        assert.strictEqual((yield* admin("SELECT * FROM notes")).length, 2)
        assert.isFalse(existsSync("/tmp/cogni-copied"))
      })
    )

    it.effect("is not run for a superuser, or with a wrong password", () =>
      Effect.gen(function* () {
        const { as } = yield* Postgres
        const [reason, detail] = yield* failure(as("cogni", PostgresServer.password)("SELECT 1"))
        assert.strictEqual(reason, "unavailable")
        assert.include(detail, "superuser")
        const [wrong, words] = yield* failure(as("reader", "wrong")("SELECT 1"))
        assert.strictEqual(wrong, "unavailable")
        assert.notInclude(words, "reader")
      })
    )
  })
})
