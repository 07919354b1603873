/** Tests of `SqlRunStore` beyond the contract, for SQLite and PostgreSQL. */
import { assert, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { RunState } from "@cogni/sandbox-core/RunFacts"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { briefOf, outputOf } from "@cogni/sandbox-core/RecordForms"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as SqlRunStore from "@cogni/sandbox-sql/SqlRunStore"
import { Context, Deferred, Effect, Fiber, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import * as Stores from "./Stores.ts"

/** Clients of one database, each with separate connections. */
export interface Fixture {
  readonly directory: string
  /** A client that shares no connection with the others. */
  readonly client: Layer.Layer<SqlClient>
}

/** One database that a suite's tests share. */
export class Database extends Context.Service<Database, { readonly client: Layer.Layer<SqlClient> }>()(
  "test/Database"
) {}

/** NUL, lone surrogates of both kinds, a surrogate pair, quotes, a byte order mark, and what JSON escapes. */
export const awkward = "a\0b\uD800c\uDC00d\u{1F600}e'\"\\\uFEFF\u2028é\r\n"

const stored = ({ client, directory }: Fixture, changes: Parameters<typeof Stores.options>[1] = {}) =>
  Layer.build(
    Layer.fresh(SqlRunStore.layer(Stores.options(directory, changes)).pipe(Layer.provideMerge(client)))
  ).pipe(
    Effect.map((context) => ({
      store: Context.get(context, RunStore),
      runs: Context.get(context, SqlRunStore.SqlRunStore),
      sql: Context.get(context, SqlClient)
    }))
  )

/** Runs an effect, and returns the warnings that it logs. */
export const warnings = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>) {
  const heard: Array<string> = []
  const logger = Logger.make(({ logLevel, message }) => {
    if (logLevel === "Warn") heard.push(String(message))
  })
  const value = yield* Effect.provide(effect, Logger.layer([logger]))
  return { value, heard }
})

const llmOf = (billingAccountId: string) =>
  ({
    model: "m",
    models: {},
    unknownFields: "drop",
    caller: "sandbox",
    identity: { billingAccountId, attempt: 0 }
  }) as const

const marks = (directory: string) =>
  existsSync(join(directory, "pending"))
    ? readdirSync(join(directory, "pending"), { recursive: true }).filter((name) =>
        String(name).includes("/")
      )
    : []

export const suite = <E>(name: string, layer: Layer.Layer<Database, E>) =>
  it.layer(layer, { excludeTestServices: true, timeout: "10 minutes" })(`SqlRunStore (${name})`, (it) => {
    const fixture = Effect.gen(function* () {
      const { client } = yield* Database
      return { client, directory: yield* Stores.directory } satisfies Fixture
    })

    it.effect("stores and returns output, messages and annotations unchanged", () =>
      Effect.gen(function* () {
        const { sql, store } = yield* stored(yield* fixture)
        const runId = yield* RunId.generate
        const record = Stores.finished(runId, Stores, yield* Stores.spec, {
          stdout: `wrote ${awkward}`,
          message: awkward
        })
        const annotations = { [awkward]: { [awkward]: [awkward, null, 1e300] }, __proto: {} }
        yield* Effect.scoped(Effect.flatMap(store.open(runId, record.spec), (open) => open.save(record)))
        yield* store.annotate(runId, annotations)
        assert.deepStrictEqual(yield* store.get(runId), { ...record, annotations })
        // A list reads records without output.
        const [row] = yield* sql<{
          readonly record: string
        }>`SELECT record FROM cogni_runs WHERE run_id = ${runId}`
        assert.notInclude(row?.record, "wrote")
        const listed = (yield* store.list).find((one) => one.runId === runId)
        assert.strictEqual(listed && outputOf(listed)?.stdout.text, "")
        assert.deepStrictEqual(listed?.annotations, annotations)
      })
    )

    it.effect("keeps all of many concurrent annotations of one run", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const clients = [yield* stored(place), yield* stored(place)]
        const runId = yield* RunId.generate
        const record = Stores.finished(runId, Stores, yield* Stores.spec)
        yield* Effect.scoped(
          Effect.flatMap(clients[0]!.store.open(runId, record.spec), (open) => open.save(record))
        )
        const names = Array.from({ length: 20 }, (_, index) => `name-${index}`)
        yield* Effect.forEach(
          names,
          (name, index) => clients[index % 2]!.store.annotate(runId, { [name]: index, shared: name }),
          { concurrency: "unbounded" }
        )
        const told = (yield* clients[1]!.store.get(runId))?.annotations ?? {}
        assert.sameMembers(Object.keys(told), [...names, "shared"])
      })
    )

    it.effect(
      "reports a run of a dead process as abandoned, and one of another machine only once it has expired",
      () =>
        Effect.gen(function* () {
          const place = yield* fixture
          const here = yield* stored(place)
          const dead = yield* stored(
            { ...place, directory: yield* Stores.directory },
            { owner: Stores.deadOwner }
          )
          const foreign = yield* stored(
            { ...place, directory: yield* Stores.directory },
            { owner: Stores.foreignOwner, host: "there" }
          )
          const [a, b, c] = [yield* RunId.generate, yield* RunId.generate, yield* RunId.generate]
          yield* dead.store.open(a, yield* Stores.spec)
          yield* foreign.store.open(b, yield* Stores.spec)
          yield* here.store.open(c, yield* Stores.spec)
          const status = Effect.fnUntraced(function* (runId: RunId.RunId) {
            const one = yield* here.store.get(runId)
            const listed = (yield* here.store.list).find((record) => record.runId === runId)
            assert.strictEqual(listed?.outcome.status, one?.outcome.status)
            return one?.outcome.status
          })
          assert.strictEqual(yield* status(a), "abandoned")
          assert.strictEqual(yield* status(b), "running")
          assert.strictEqual(yield* status(c), "running")
          const old = Stores.finished(b, { owner: Stores.foreignOwner }, yield* Stores.spec)
          const { endedAt: _, ...running } = { ...old, outcome: { status: "running" as const } }
          const text = JSON.stringify({ ...running, startedAt: new Date(0).toISOString() })
          yield* here.sql`UPDATE cogni_runs SET record = ${text} WHERE run_id = ${b}`
          assert.strictEqual(yield* status(b), "abandoned")
        })
    )

    it.effect("finds a run of a dead process as abandoned, never as running, although its row says so", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const here = yield* stored(place)
        const dead = yield* stored(
          { ...place, directory: yield* Stores.directory },
          { owner: Stores.deadOwner }
        )
        const account = crypto.randomUUID()
        const spec = { ...(yield* Stores.spec), llm: llmOf(account) }
        const [gone, living] = [yield* RunId.generate, yield* RunId.generate]
        yield* dead.store.open(gone, spec)
        yield* here.store.open(living, spec)
        const found = (states: ReadonlyArray<RunState>) =>
          Effect.map(here.store.search({ filter: { billingAccountId: account, states } }), ({ records }) =>
            records.map(({ runId }) => runId)
          )
        assert.deepStrictEqual(yield* found(["abandoned"]), [gone])
        assert.deepStrictEqual(yield* found(["running"]), [living])
        assert.sameMembers([...(yield* found(["running", "abandoned"]))], [gone, living])
      })
    )

    it.effect("finds the runs of an earlier version, which stored no facts", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const before = yield* stored(place)
        const account = crypto.randomUUID()
        const runId = yield* RunId.generate
        const spec = { ...(yield* Stores.spec), llm: llmOf(account) }
        const record = Stores.finished(runId, Stores, spec)
        yield* Effect.scoped(Effect.flatMap(before.store.open(runId, spec), (open) => open.save(record)))
        yield* before.store.annotate(runId, { relay: { origin: awkward } })
        yield* before.sql`DROP TABLE cogni_run_briefs`
        yield* before.sql`DROP TABLE cogni_run_facts`
        yield* before.sql`DELETE FROM cogni_runs_version WHERE migration_id >= 2`
        const after = yield* stored(place)
        const { records } = yield* after.store.search({
          filter: { billingAccountId: account, repository: awkward, states: ["failed"] }
        })
        assert.deepStrictEqual(
          records.map((one) => one.runId),
          [runId]
        )
      })
    )

    it.effect("searches without a record, and makes a brief that an earlier version did not write", () =>
      Effect.gen(function* () {
        const { sql, store } = yield* stored(yield* fixture)
        const account = crypto.randomUUID()
        const runId = yield* RunId.generate
        const spec = { ...(yield* Stores.spec), llm: llmOf(account) }
        const record = Stores.finished(runId, Stores, spec)
        yield* Effect.scoped(Effect.flatMap(store.open(runId, spec), (open) => open.save(record)))
        yield* store.annotate(runId, { relay: { origin: awkward } })
        const found = Effect.map(
          store.search({ filter: { billingAccountId: account } }),
          ({ records }) => records
        )
        const before = yield* found
        assert.deepStrictEqual(before, [briefOf((yield* store.describe(runId))!)])
        yield* sql`UPDATE cogni_run_briefs SET brief = ${"{}"} WHERE run_id = ${runId}`
        assert.deepStrictEqual(yield* found, [], "a later version's brief")
        yield* sql`DELETE FROM cogni_run_briefs WHERE run_id = ${runId}`
        assert.deepStrictEqual(yield* found, before, "none")
        yield* store.annotate(runId, { relay: { origin: awkward } })
        yield* sql`UPDATE cogni_runs SET record = ${"{}"} WHERE run_id = ${runId}`
        assert.deepStrictEqual(yield* found, before, "the record is not read")
      })
    )

    it.effect("finds a run by how it ended, although an earlier version ended it and left its brief", () =>
      Effect.gen(function* () {
        const { sql, store } = yield* stored(yield* fixture)
        const account = crypto.randomUUID()
        const runId = yield* RunId.generate
        const spec = { ...(yield* Stores.spec), llm: llmOf(account) }
        const open = yield* store.open(runId, spec)
        const brief = sql`SELECT * FROM cogni_run_briefs WHERE run_id = ${runId}`
        const [before] = yield* brief
        yield* open.save(Stores.finished(runId, open, spec))
        yield* store.annotate(runId, { relay: { origin: awkward } })
        // The earlier version writes the record, the facts and the annotations.
        yield* sql`DELETE FROM cogni_run_briefs WHERE run_id = ${runId}`
        yield* sql`INSERT INTO cogni_run_briefs ${sql.insert(before!)}`
        const found = (states?: ReadonlyArray<RunState>) =>
          Effect.map(
            store.search({ filter: { billingAccountId: account, ...(states && { states }) } }),
            ({ records }) => records
          )
        const ended = [briefOf((yield* store.describe(runId))!)]
        assert.deepStrictEqual(yield* found(), ended)
        assert.deepStrictEqual(yield* found(["failed"]), ended)
        assert.deepStrictEqual(yield* found(["running"]), [])
        assert.deepStrictEqual(yield* brief, [before!])
      })
    )

    it.effect("deletes ended runs, of this machine or of all, and never a running one", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const here = yield* stored(place, { host: "here-1" })
        const there = yield* stored(
          { ...place, directory: yield* Stores.directory },
          { owner: Stores.foreignOwner, host: "there-1" }
        )
        const end = Effect.fnUntraced(function* (client: typeof here) {
          const runId = yield* RunId.generate
          const record = Stores.finished(runId, Stores, yield* Stores.spec, { stdout: "x" })
          yield* Effect.scoped(
            Effect.flatMap(client.store.open(runId, record.spec), (open) => open.save(record))
          )
          yield* client.store.annotate(runId, { relay: 1 })
          return runId
        })
        const [mine, theirs, living] = [yield* end(here), yield* end(there), yield* RunId.generate]
        yield* here.store.open(living, yield* Stores.spec)
        assert.deepStrictEqual(yield* here.runs.forget({ everyHost: false, dryRun: true }), [mine])
        assert.isDefined(yield* here.store.get(mine))
        assert.deepStrictEqual(yield* here.runs.forget({ everyHost: false }), [mine])
        assert.isUndefined(yield* here.store.get(mine))
        assert.isDefined(yield* here.store.get(theirs))
        assert.include(yield* here.runs.forget({ everyHost: true }), theirs)
        assert.isDefined(yield* here.store.get(living))
        const [left] = yield* here.sql<{ readonly n: number }>`SELECT COUNT(*) AS n FROM cogni_run_outputs
          WHERE run_id IN (${mine}, ${theirs})`
        assert.strictEqual(Number(left?.n), 0)
      })
    )

    it.effect("syncs records and annotations that an earlier version left in files", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const files = FileRunStore.make({ ...place, trafficOf: "unknown" }).store
        const [ended, living] = [yield* RunId.generate, yield* RunId.generate]
        const record = Stores.finished(ended, Stores, yield* Stores.spec, { stdout: "from a file" })
        yield* Effect.scoped(Effect.flatMap(files.open(ended, record.spec), (open) => open.save(record)))
        yield* files.annotate(ended, { relay: { branch: "b" } })
        const open = yield* files.open(living, record.spec)
        const { runs, store } = yield* stored(place)
        assert.deepStrictEqual(yield* store.get(ended), {
          ...record,
          annotations: { relay: { branch: "b" } }
        })
        assert.strictEqual((yield* Effect.flip(store.open(ended, record.spec)))._tag, "RunIdInUse")
        assert.strictEqual((yield* store.get(living))?.outcome.status, "running")
        yield* open.save({ ...record, runId: living })
        assert.deepStrictEqual(yield* runs.sync, [living])
        assert.deepStrictEqual(yield* store.get(living), { ...record, runId: living })
        assert.deepStrictEqual(yield* runs.sync, [])
        assert.deepStrictEqual(marks(place.directory), [])
      })
    )

    it.effect("refuses a run ID that only the spool of this host has, and leaves no row", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const { sql, store } = yield* stored(place)
        const runId = yield* RunId.generate
        yield* Effect.scoped(
          FileRunStore.make({ ...place, trafficOf: "unknown" }).store.open(runId, yield* Stores.spec)
        )
        const error = yield* Effect.flip(
          Effect.scoped(Effect.flatMap(Stores.spec, (spec) => store.open(runId, spec)))
        )
        assert.strictEqual(error._tag, "RunIdInUse")
        assert.deepStrictEqual(yield* sql`SELECT run_id FROM cogni_runs WHERE run_id = ${runId}`, [])
      })
    )

    it.effect("records a run without a final record as interrupted, in the database and in the spool", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const { store } = yield* stored(place)
        const runId = yield* RunId.generate
        yield* Effect.scoped(Effect.flatMap(Stores.spec, (spec) => store.open(runId, spec)))
        assert.strictEqual((yield* store.get(runId))?.outcome.status, "interrupted")
        assert.strictEqual(
          (yield* FileRunStore.make({ ...place, trafficOf: "unknown" }).store.get(runId))?.outcome.status,
          "interrupted"
        )
        assert.deepStrictEqual(marks(place.directory), [])
      })
    )

    it.effect(
      "records an interrupted run as interrupted, and releases the ID if the claim was interrupted",
      () =>
        Effect.gen(function* () {
          const place = yield* fixture
          const { store } = yield* stored(place)
          const spec = yield* Stores.spec
          const [begun, runId] = [yield* Deferred.make<void>(), yield* RunId.generate]
          const fiber = yield* store
            .open(runId, spec)
            .pipe(
              Effect.andThen(Deferred.succeed(begun, undefined)),
              Effect.andThen(Effect.never),
              Effect.scoped,
              Effect.forkChild
            )
          yield* Deferred.await(begun)
          yield* Fiber.interrupt(fiber)
          assert.strictEqual((yield* store.get(runId))?.outcome.status, "interrupted")
          assert.deepStrictEqual(marks(place.directory), [])
          for (let turns = 0; turns < 20; turns++) {
            const other = yield* RunId.generate
            const claiming = yield* Effect.forkChild(
              Effect.scoped(Effect.andThen(store.open(other, spec), Effect.never)),
              { startImmediately: true }
            )
            for (let turn = 0; turn < turns; turn++) yield* Effect.promise(() => new Promise(setImmediate))
            yield* Fiber.interrupt(claiming)
            const left = (yield* store.get(other))?.outcome.status
            assert.include([undefined, "interrupted"], left, `after ${turns} turns`)
          }
        })
    )

    it.effect("gives a run ID to exactly one of 50 concurrent claims over two clients", () =>
      Effect.gen(function* () {
        const place = yield* fixture
        const other = { ...place, directory: yield* Stores.directory }
        const clients = [yield* stored(place), yield* stored(other)]
        const runId = yield* RunId.generate
        const spec = yield* Stores.spec
        const exits = yield* Effect.forEach(
          Array.from({ length: 50 }, (_, index) => clients[index % 2]!.store),
          (store) => Effect.result(store.open(runId, spec)),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(exits.filter(({ _tag }) => _tag === "Success").length, 1)
        for (const exit of exits)
          if (exit._tag === "Failure") assert.strictEqual(exit.failure._tag, "RunIdInUse")
        assert.strictEqual((yield* clients[1]!.store.get(runId))?.outcome.status, "running")
      })
    )

    it.effect("creates the tables once for eight clients that start concurrently", () =>
      Effect.gen(function* () {
        const { sql } = yield* stored(yield* fixture)
        for (const table of [
          "run_briefs",
          "run_facts",
          "run_annotations",
          "run_outputs",
          "runs",
          "runs_version"
        ]) {
          yield* sql`DROP TABLE ${sql(`cogni_${table}`)}`
        }
        yield* Effect.forEach(
          Array.from({ length: 8 }),
          () => Effect.flatMap(fixture, (place) => stored(place)),
          {
            concurrency: "unbounded"
          }
        )
        assert.strictEqual((yield* sql`SELECT migration_id FROM cogni_runs_version`).length, 4)
      })
    )

    it.effect("refuses tables of a later version, with a remedy", () =>
      Effect.gen(function* () {
        const { sql } = yield* stored(yield* fixture)
        yield* sql`INSERT INTO cogni_runs_version (migration_id, name) VALUES (99, 'later')`
        const error = yield* Effect.flip(Effect.flatMap(fixture, (place) => stored(place)))
        yield* sql`DELETE FROM cogni_runs_version WHERE migration_id = 99`
        assert.strictEqual(error._tag, "SchemaRefused")
        assert.include(error.message, "is at version 99")
        assert.include(error.message, "Update Cogni Sandbox")
      })
    )
  })
