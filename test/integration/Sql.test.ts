/** The stores of runs and grants in a real PostgreSQL that restarts, and in one file of several processes. */
import { assert, describe, it, layer } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as SchemaVersion from "@cogni/sandbox-sql/SchemaVersion"
import { ApprovalsContract, RunStoreContract } from "@cogni/sandbox-core/testing"
import * as RunJournalContract from "@cogni/sandbox-core/testing/RunJournalContract"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as SharedSecret from "@cogni/sandbox-sql/SharedSecret"
import * as SqlApprovals from "@cogni/sandbox-sql/SqlApprovals"
import * as SqlGrantStore from "@cogni/sandbox-sql/SqlGrantStore"
import { ConnectionStoreContract } from "@cogni/sandbox-connections/testing"
import { keyOf, ThreadId } from "@cogni/sandbox-graph-provider/threads/Thread"
import { ThreadStore } from "@cogni/sandbox-graph-provider/threads/ThreadStore"
import * as SqlThreadStore from "@cogni/sandbox-sql/SqlThreadStore"
import * as SqlConnectionStore from "@cogni/sandbox-sql/SqlConnectionStore"
import { GrantStoreContract, ThreadStoreContract } from "@cogni/sandbox-graph-provider/testing"
import * as IdempotencyKeys from "@cogni/sandbox-server/IdempotencyKeys"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseFault from "../../packages/sql/src/internal/DatabaseFault.ts"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import * as SqlRunJournal from "@cogni/sandbox-sql/SqlRunJournal"
import * as SqlRunStore from "@cogni/sandbox-sql/SqlRunStore"
import { Clock, Context, Duration, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { readdirSync } from "node:fs"
import { createServer } from "node:net"
import { inspect } from "node:util"
import * as Behaviour from "../../packages/sql/test/Behaviour.ts"
import * as Stores from "../../packages/sql/test/Stores.ts"
import * as PostgresServer from "../harness/PostgresServer.ts"
import * as StoreProcess from "../harness/StoreProcess.ts"
import * as Pace from "../harness/Pace.ts"

class Server extends Context.Service<Server, PostgresServer.PostgresServer>()("test/Server") {
  static readonly layer = Layer.effect(Server, PostgresServer.acquire)
}

/** Client of a separate database on a separate server. */
const client = Layer.unwrap(
  Effect.map(
    Effect.flatMap(Server, (server) => server.database("contract")),
    (address) => Database.layer(address)
  )
).pipe(Layer.provide(Server.layer))

RunStoreContract.suite(
  "PostgreSQL",
  Layer.unwrap(Effect.map(Stores.directory, (path) => SqlRunStore.layer(Stores.options(path)))).pipe(
    Layer.provide(client)
  )
)

GrantStoreContract.suite("PostgreSQL", Layer.provide(SqlGrantStore.layer, client))

ThreadStoreContract.suite("PostgreSQL", Layer.provide(SqlThreadStore.layer, client))
RunJournalContract.suite("PostgreSQL", Layer.provide(SqlRunJournal.layer(), client), () => Effect.void)
ApprovalsContract.suite("PostgreSQL", Layer.provide(SqlApprovals.layer, client))
ConnectionStoreContract.suite("PostgreSQL", Layer.provide(SqlConnectionStore.layer, client))

Behaviour.suite(
  "PostgreSQL",
  Layer.effect(
    Behaviour.Database,
    Effect.map(
      Effect.flatMap(Server, (server) => server.database("behaviour")),
      (address) => ({
        client: Layer.orDie(Database.layer(address))
      })
    )
  ).pipe(Layer.provide(Server.layer))
)

const opened = (path: string, address: DatabaseAddress.DatabaseAddress) =>
  Layer.build(
    Layer.fresh(
      SqlRunStore.layer(Stores.options(path, { database: DatabaseAddress.nameOf(address) })).pipe(
        Layer.provideMerge(Database.layer(address))
      )
    )
  ).pipe(
    Effect.map((context) => ({
      store: Context.get(context, RunStore),
      runs: Context.get(context, SqlRunStore.SqlRunStore),
      sql: Context.get(context, SqlClient)
    }))
  )

layer(Server.layer, { excludeTestServices: true })("a shared database", (it) => {
  it.effect("gives processes that start together the same secret for idempotency keys", () =>
    Effect.gen(function* () {
      const address = yield* (yield* Server).database("secrets")
      const begun = Layer.build(
        Layer.fresh(
          IdempotencyKeys.layer(SharedSecret.make("idempotency-keys", IdempotencyKeys.secretBytes)).pipe(
            Layer.provide(Database.layer(address))
          )
        )
      ).pipe(
        Effect.flatMap((context) =>
          Context.get(context, IdempotencyKeys.IdempotencyKeys).runIdOf("acct", "monday")
        )
      )
      const ids = yield* Effect.all([begun, begun, begun, begun], { concurrency: "unbounded" })
      assert.strictEqual(new Set(ids).size, 1)
    })
  )

  it.effect("keeps the hold of a thread from a host whose clock is an hour ahead", () =>
    Effect.gen(function* () {
      const address = yield* (yield* Server).database("clocks")
      const store = Context.get(
        yield* Layer.build(Layer.provide(SqlThreadStore.layer, Database.layer(address))),
        ThreadStore
      )
      const name = { billingAccountId: "acct", threadId: ThreadId.make("t") }
      const key = yield* keyOf(name)
      yield* store.claim(name, { key, holder: "here" }, 1)
      const clock = yield* Clock.Clock
      const ahead: Clock.Clock = Object.assign(Object.create(clock), {
        currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + 3_600_000,
        currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis + 3_600_000)
      })
      const there = Effect.flip(store.claimKnown({ key, holder: "there" }))
      assert.strictEqual((yield* Effect.provideService(there, Clock.Clock, ahead))._tag, "ThreadBusy")
      yield* store.renew({ key, holder: "here" })
    })
  )

  it.effect("reads a grant from a version without permissions as one with no tool and no repository", () =>
    Effect.gen(function* () {
      const address = yield* (yield* Server).database("old_grants")
      const database = Database.layer(address)
      const id = "grant-00000000-0000-4000-8000-000000000001"
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
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient
        yield* SchemaVersion.bring({
          versionTable: "cogni_grants_version",
          steps: [
            {
              name: "grants",
              run: () => sql`CREATE TABLE cogni_grants (ordinal BIGSERIAL PRIMARY KEY, grant_id TEXT NOT NULL UNIQUE,
                token_hash TEXT NOT NULL UNIQUE, granted TEXT NOT NULL, revoked_at TEXT)`
            }
          ]
        })
        yield* sql`INSERT INTO cogni_grants ${sql.insert({ grant_id: id, token_hash: "x", granted })}`
      }).pipe(Effect.provide(Layer.fresh(database)))
      const found = yield* GrantStore.use((store) => store.find(id)).pipe(
        Effect.provide(Layer.fresh(SqlGrantStore.layer.pipe(Layer.provide(database))))
      )
      assert.deepStrictEqual(found?.permissions, {})
    })
  )
})

layer(Server.layer, { excludeTestServices: true })("a database outage", (it) => {
  it.effect("at the end of a run keeps the record, logs a warning, and syncs the record later", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const path = yield* Stores.directory
      const address = yield* server.database("away")
      const { runs, store } = yield* opened(path, address)
      const [kept, cut, done] = [yield* RunId.generate, yield* RunId.generate, yield* RunId.generate]
      const record = Stores.finished(kept, Stores, yield* Stores.spec, { stdout: Behaviour.awkward })
      yield* Effect.scoped(
        Effect.flatMap(store.open(done, record.spec), (open) => open.save({ ...record, runId: done }))
      )
      const { heard } = yield* Behaviour.warnings(
        Effect.scoped(
          Effect.gen(function* () {
            const open = yield* store.open(kept, record.spec)
            // Interrupted without a final record while the database is down.
            yield* Effect.scoped(Effect.andThen(store.open(cut, record.spec), server.stop))
            yield* open.save(record)
          })
        )
      )
      assert.strictEqual(heard.filter((line) => line.includes("synced to the database later")).length, 2)
      assert.include(heard.join("\n"), "cannot be reached")
      // Annotations are kept while the database is down, too.
      yield* store.annotate(kept, { relay: 1 })
      yield* store.annotate(done, { relay: 2 })
      const files = FileRunStore.make({ directory: path, trafficOf: "unknown" }).store
      assert.deepStrictEqual((yield* files.get(kept))?.outcome.status, "failed")

      yield* server.start
      assert.strictEqual((yield* store.get(kept))?.outcome.status, "running")
      assert.sameMembers([...(yield* runs.sync)], [kept, cut, done])
      assert.deepStrictEqual((yield* store.get(kept))?.annotations, { relay: 1 })
      assert.deepStrictEqual((yield* store.get(done))?.annotations, { relay: 2 })
      assert.strictEqual((yield* store.get(cut))?.outcome.status, "interrupted")
      assert.deepStrictEqual(yield* runs.sync, [])
    })
  )

  it.effect("at the end of a run lets the next process sync the record", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const path = yield* Stores.directory
      const address = yield* server.database("next")
      const runId = yield* RunId.generate
      const record = Stores.finished(runId, Stores, yield* Stores.spec, { stdout: "x" })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { store } = yield* opened(path, address)
          const open = yield* store.open(runId, record.spec)
          yield* server.stop
          yield* open.save(record)
        })
      )
      yield* server.start
      const { store } = yield* opened(path, address)
      assert.deepStrictEqual((yield* store.get(runId))?.outcome.status, "failed")
    })
  )

  it.effect("before a run fails with a remedy, and nothing is started", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const path = yield* Stores.directory
      const address = yield* server.database("before")
      const { sql, store } = yield* opened(path, address)
      const before = readdirSync(path, { recursive: true })
      yield* server.stop
      const runId = yield* RunId.generate
      const begin = Effect.scoped(Effect.flatMap(Stores.spec, (spec) => store.open(runId, spec)))
      const refused = yield* Effect.flip(begin)
      assert.strictEqual(refused._tag, "StoreUnavailable")
      assert.match(refused.message, /^the run store cannot be reached: .+\. Start it, or check its host/u)
      assert.deepStrictEqual(readdirSync(path, { recursive: true }), before)
      const unavailable = yield* Effect.flip(opened(path, address))
      assert.strictEqual(unavailable._tag, "DatabaseUnavailable")
      yield* server.start
      assert.deepStrictEqual(yield* sql`SELECT run_id FROM cogni_runs WHERE run_id = ${runId}`, [])
      yield* begin
    })
  )

  it.effect("a database outage of a moment at the end of a run is retried, and nothing is left to sync", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const path = yield* Stores.directory
      const { runs, store } = yield* opened(path, yield* server.database("moment"))
      const runId = yield* RunId.generate
      const record = Stores.finished(runId, Stores, yield* Stores.spec, { stdout: "x" })
      const { heard } = yield* Behaviour.warnings(
        Effect.scoped(
          Effect.gen(function* () {
            const open = yield* store.open(runId, record.spec)
            yield* server.stop
            yield* Effect.all([open.save(record), server.start], { concurrency: 2 })
          })
        )
      )
      assert.deepStrictEqual(heard, [])
      assert.deepStrictEqual((yield* store.get(runId))?.outcome.status, "failed")
      assert.deepStrictEqual(yield* runs.sync, [])
    })
  )

  it.effect("between two runs does not affect the next run, although its connections were closed", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const { store } = yield* opened(yield* Stores.directory, yield* server.database("back"))
      yield* store.list
      yield* server.stop
      yield* server.start
      const runId = yield* RunId.generate
      yield* Effect.scoped(Effect.flatMap(Stores.spec, (spec) => store.open(runId, spec)))
      assert.strictEqual((yield* store.get(runId))?.outcome.status, "interrupted")
    })
  )
})

layer(Server.layer, { excludeTestServices: true })("the password", (it) => {
  it.effect("is in no error of a failed connection", () =>
    Effect.gen(function* () {
      const server = yield* Server
      yield* server.database("password")
      const secret = "n0t-the-right-one"
      const addresses = [
        server.url("password", secret),
        server.url("nonesuch"),
        server.url("password").replace(/host=[^&]+/u, "host=%2Fnowhere"),
        server.url("password").replace(/host=.+/u, "port=1"),
        `${server.url("password")}&sslmode=n0t-a-mode`
      ]
      for (const text of addresses) {
        const address = yield* Effect.fromResult(DatabaseAddress.parse(text))
        const error = yield* Effect.flip(Layer.build(Layer.fresh(Database.layer(address))))
        assert.strictEqual(error._tag, "DatabaseUnavailable")
        const shown = [
          error.message,
          inspect(error, { depth: 9, showHidden: true }),
          JSON.stringify(error)
        ].join()
        for (const never of [secret, PostgresServer.password, encodeURIComponent(PostgresServer.password)]) {
          assert.notInclude(shown, never)
        }
      }
    })
  )

  it.effect("is in no error of a failed query", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const address = yield* server.database("asked")
      const { sql, store } = yield* opened(yield* Stores.directory, address)
      yield* sql`DROP TABLE cogni_runs CASCADE`
      const error = yield* Effect.flip(store.list)
      assert.strictEqual(error._tag, "StoreUnavailable")
      const shown = [
        error.message,
        inspect(error, { depth: 9 }),
        inspect(sql, { depth: 4 }),
        inspect(address)
      ].join()
      assert.notInclude(shown, PostgresServer.password)
      assert.notInclude(shown, encodeURIComponent(PostgresServer.password))
    })
  )
})

describe("a server that accepts a connection and never answers", () => {
  it.live("times out", () =>
    Effect.gen(function* () {
      const port = yield* Effect.acquireRelease(
        Effect.callback<{ server: ReturnType<typeof createServer>; port: number }>((resume) => {
          const server = createServer().listen(0, "127.0.0.1", () => {
            const found = server.address()
            resume(Effect.succeed({ server, port: typeof found === "object" ? (found?.port ?? 0) : 0 }))
          })
        }),
        ({ server }) => Effect.sync(() => server.close())
      )
      const address = yield* Effect.fromResult(
        DatabaseAddress.parse(`postgres://u:p@127.0.0.1:${port.port}/d`)
      )
      const [took, error] = yield* Effect.timed(Effect.flip(Layer.build(Database.layer(address))))
      assert.strictEqual(error._tag, "DatabaseUnavailable")
      assert.isBelow(Duration.toMillis(took), Pace.allowed((DatabaseFault.connectSecondsMax + 1) * 1000))
    })
  )
})

describe("one file of several processes", () => {
  it.live("is created once, gives each ID to one process, and loses no record", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const runIds = yield* Effect.all(Array.from({ length: 12 }, () => RunId.generate))
      const said = yield* Effect.all(
        Array.from({ length: 8 }, () => StoreProcess.begin(path, runIds)),
        { concurrency: "unbounded" }
      )
      assert.sameMembers(
        said.flatMap((text) => JSON.parse(text) as ReadonlyArray<string>),
        runIds
      )
      const store = yield* Effect.map(Layer.build(Stores.sqlite(path)), (context) =>
        Context.get(context, RunStore)
      )
      const listed = yield* store.list
      assert.sameMembers(
        listed.map(({ outcome, runId }) => `${runId} ${outcome.status}`),
        runIds.map((runId) => `${runId} failed`)
      )
    })
  )
})
