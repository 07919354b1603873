/** Journals in a SQLite file: the contract, another process, a database that does not answer, and old journals. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { type JournalEvent, RunJournal } from "@cogni/sandbox-core/RunJournal"
import * as RunJournalContract from "@cogni/sandbox-core/testing/RunJournalContract"
import * as SqlRunJournal from "@cogni/sandbox-sql/SqlRunJournal"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { join } from "node:path"
import * as Await from "../../../test/harness/Await.ts"
import { add, beyond, countsOf, type Piece } from "../src/internal/JournalTable.ts"
import * as RunTables from "../src/internal/RunTables.ts"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as Stores from "./Stores.ts"

const stored = (path: string, options?: SqlRunJournal.SqlRunJournalOptions) =>
  SqlRunJournal.layer(options).pipe(
    Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "journal.db") }))
  )

RunJournalContract.suite(
  "SQLite",
  Layer.unwrap(Effect.map(Stores.directory, (path) => stored(path))),
  () => Effect.void
)

const opened = (path: string, options?: SqlRunJournal.SqlRunJournalOptions) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(Layer.fresh(stored(path, options)))
    return { journal: Context.get(context, RunJournal), sql: Context.get(context, SqlClient) }
  })

const started: JournalEvent = { type: "run.started" }
const ended: JournalEvent = { type: "run.ended", status: "exited", exitCode: 0 }
const said = (text: string): JournalEvent => ({ type: "message.written", text })

const runId = RunId.RunId.make("run-4f7k2m9q0x1z")

describe("SqlRunJournal", () => {
  it.live("is read in another process while it is written, and after its end", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const writer = yield* opened(path)
      const reader = yield* opened(path)
      yield* writer.journal.write(runId, started)
      yield* writer.journal.write(runId, said("Lima"))
      yield* Await.until(
        "two entries can be read",
        Effect.map(reader.journal.read({ runId }), (page) => page?.entries.length === 2)
      )
      yield* writer.journal.write(runId, ended)
      yield* writer.journal.close(runId)
      const page = yield* reader.journal.read({ runId, after: 2 })
      assert.deepStrictEqual(
        page?.entries.map(({ seq, type }) => [seq, type]),
        [[3, "run.ended"]]
      )
      assert.isTrue(page?.ended)
      assert.deepStrictEqual(yield* reader.journal.read({ runId, after: 3 }), { entries: [], ended: true })
    })
  )

  it.live(
    "keeps entries while the database does not take them, with one warning, and writes them later",
    () =>
      Effect.gen(function* () {
        const heard: Array<string> = []
        const logger = Logger.make(({ message }) => {
          const text = String(message)
          if (text.includes("are written later")) heard.push(text)
        })
        yield* Effect.gen(function* () {
          const { journal, sql } = yield* opened(yield* Stores.directory)
          yield* sql`ALTER TABLE cogni_run_journal RENAME TO cogni_elsewhere`
          yield* journal.write(runId, started)
          yield* Await.until(
            "a warning is logged",
            Effect.sync(() => heard.length > 0)
          )
          yield* journal.write(runId, said("Lima"))
          yield* sql`ALTER TABLE cogni_elsewhere RENAME TO cogni_run_journal`
          yield* journal.write(runId, ended)
          yield* journal.close(runId)
          assert.lengthOf((yield* journal.read({ runId }))?.entries ?? [], 3)
        }).pipe(Effect.provide(Logger.layer([logger])))
        assert.lengthOf(heard, 1)
      })
  )

  it.live("drains a backlog of many runs into a database that takes only small transactions", () =>
    Effect.gen(function* () {
      const { journal, sql } = yield* opened(yield* Stores.directory)
      // All rows of a transaction have the same time.
      yield* sql`CREATE TRIGGER small BEFORE INSERT ON cogni_run_journal
        WHEN (SELECT COUNT(*) FROM cogni_run_journal WHERE written_at = NEW.written_at) >= 64
        BEGIN SELECT RAISE(ABORT, 'too slow'); END`
      yield* sql`ALTER TABLE cogni_run_journal RENAME TO cogni_elsewhere`
      const ids = [1, 2].map((at) => RunId.RunId.make(`run-backlog-${at}`))
      const texts = Array.from({ length: 300 }, (_, at) => `${at} `.padEnd(16_000, "x"))
      for (const id of ids) {
        yield* journal.write(id, started)
        yield* Effect.forEach(texts, (text) => journal.write(id, said(text)), { discard: true })
        yield* journal.write(id, ended)
      }
      yield* sql`ALTER TABLE cogni_elsewhere RENAME TO cogni_run_journal`
      yield* Effect.forEach(ids, journal.close, { concurrency: "unbounded", discard: true })
      for (const id of ids) {
        const page = yield* journal.read({ runId: id })
        assert.strictEqual(page?.entries.length, texts.length + 2)
        assert.isTrue(page?.ended)
      }
    })
  )

  it.live("drops output, with a mark, if too much waits, and leaves other runs what is still free", () =>
    Effect.gen(function* () {
      const heard: Array<string> = []
      const logger = Logger.make(({ message }) => {
        const text = String(message)
        if (text.includes("is missing in their events")) heard.push(text)
      })
      yield* Effect.gen(function* () {
        const { journal, sql } = yield* opened(yield* Stores.directory, { waitingBytesMax: 200_000 })
        yield* sql`ALTER TABLE cogni_run_journal RENAME TO cogni_elsewhere`
        const other = RunId.RunId.make("run-of-another-one")
        yield* journal.write(runId, started)
        yield* Effect.forEach(Array.from({ length: 100 }), () =>
          journal.write(runId, said("x".repeat(10_000)))
        )
        yield* journal.write(other, started)
        yield* journal.write(other, said("Lima"))
        yield* sql`ALTER TABLE cogni_elsewhere RENAME TO cogni_run_journal`
        for (const id of [runId, other]) {
          yield* journal.write(id, ended)
          yield* journal.close(id)
        }
        const page = yield* journal.read({ runId })
        assert.isTrue(page?.ended)
        assert.deepStrictEqual(
          page?.entries.map(({ seq }) => seq),
          Array.from({ length: 13 }, (_, at) => at + 1)
        )
        assert.deepStrictEqual(
          page?.entries.slice(-2).map(({ type }) => type),
          ["journal.truncated", "run.ended"]
        )
        assert.lengthOf((yield* journal.read({ runId: other }))?.entries ?? [], 3)
      }).pipe(Effect.provide(Logger.layer([logger])))
      assert.lengthOf(heard, 1)
    })
  )

  it.live("removes rows of a forgotten run with the same ID", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      // The first run has several rows.
      for (const texts of [Array.from({ length: 10 }, () => "x".repeat(16_000)), ["d"]]) {
        const { journal } = yield* opened(path)
        yield* Effect.forEach([started, ...texts.map(said), ended], (event) => journal.write(runId, event))
        yield* journal.close(runId)
      }
      const { journal } = yield* opened(path)
      assert.lengthOf((yield* journal.read({ runId }))?.entries ?? [], 3)
    })
  )

  it.live("removes old journals, the oldest beyond the size, and those of deleted records", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const ids = ["run-journal-old", "run-journal-live", "run-journal-large", "run-journal-new"].map((id) =>
        RunId.RunId.make(id)
      )
      const first = yield* opened(path)
      for (const id of ids) {
        yield* first.journal.write(id, started)
        yield* first.journal.write(id, said("x".repeat(10_000)))
        if (id === "run-journal-live") continue
        yield* first.journal.write(id, ended)
        yield* first.journal.close(id)
      }
      yield* first.sql`UPDATE cogni_run_journal SET written_at = '2020-01-01T00:00:00.000Z'
        WHERE run_id = 'run-journal-old'`
      const yesterday = new Date(Date.now() - 86_400_000).toISOString()
      yield* first.sql`UPDATE cogni_run_journal SET written_at = ${yesterday} WHERE run_id = 'run-journal-live'`
      const left = (options?: SqlRunJournal.SqlRunJournalOptions) =>
        Effect.gen(function* () {
          const { sql } = yield* opened(path, options)
          return Effect.map(
            sql<{ readonly run_id: string }>`SELECT DISTINCT run_id FROM cogni_run_journal ORDER BY run_id`,
            (rows) => rows.map(({ run_id }) => run_id)
          )
        })
      const has = (rows: Effect.Effect<ReadonlyArray<string>, unknown>, expected: ReadonlyArray<string>) =>
        Await.until(
          `only ${expected.join(", ")} are left`,
          Effect.map(Effect.orDie(rows), (found) => found.join() === expected.join())
        )
      yield* has(yield* left(), ["run-journal-large", "run-journal-live", "run-journal-new"])
      // A run that has not ended stays.
      yield* has(yield* left({ keptBytesMax: 25_000 }), ["run-journal-live", "run-journal-new"])
      const { sql } = yield* opened(path)
      yield* SqlRunJournal.forget(["run-journal-new", "run-journal-none"]).pipe(
        Effect.provideService(SqlClient, sql)
      )
      yield* has(yield* left(), ["run-journal-live"])
    })
  )

  it("joins lines to rows, without a copy, and leaves a row alone that may be written already", () => {
    const pieces: Array<Piece> = []
    const line = (seq: number) => ({ seq, line: `${"x".repeat(9999)}\n`, isEnd: seq === 40 })
    for (let seq = 1; seq <= 20; seq += 1) assert.strictEqual(add(pieces, line(seq)), 10_000)
    const before = pieces.map(({ first, last }) => [first, last])
    assert.deepStrictEqual(before.slice(-2), [
      [13, 18],
      [19, 20]
    ])
    for (const piece of pieces) piece.isTaken = true
    for (let seq = 21; seq <= 40; seq += 1) add(pieces, line(seq))
    assert.deepStrictEqual(
      pieces.slice(0, 4).map(({ first, last }) => [first, last]),
      before
    )
    assert.deepStrictEqual(pieces.map(({ first, isEnd, last }) => [first, last, isEnd]).at(-1), [
      39,
      40,
      true
    ])
    assert.isTrue(pieces.every(({ bytes, text }) => Buffer.byteLength(text) === bytes))
  })

  it("writes rows of runs in turn, within the limits of a transaction, and always at least one", () => {
    const run = (...sizes: ReadonlyArray<number>) => sizes.map((bytes) => ({ bytes }))
    const runs = [run(10, 10, 10, 10), run(10), run(10, 10)]
    assert.deepStrictEqual(countsOf(runs, { rowsMax: 5, bytesMax: 1000 }), [2, 1, 2])
    assert.deepStrictEqual(countsOf(runs, { rowsMax: 64, bytesMax: 45 }), [2, 1, 1])
    assert.deepStrictEqual(countsOf(runs, { rowsMax: 64, bytesMax: 1000 }), [4, 1, 2])
    assert.deepStrictEqual(countsOf(runs, { rowsMax: 64, bytesMax: 1 }), [1, 0, 0])
    assert.deepStrictEqual(countsOf([], { rowsMax: 64, bytesMax: 1 }), [])
  })

  it("removes only as many journals as needed", () => {
    const runs = [1, 2, 3].map((bytes) => ({ runId: `run-${bytes}`, bytes, account: "" }))
    assert.deepStrictEqual(beyond(runs, 6), [])
    assert.deepStrictEqual(beyond(runs, 5), ["run-1"])
    assert.deepStrictEqual(beyond(runs, 2), ["run-1", "run-2", "run-3"])
  })

  it("removes journals of the account that has the most, until no other one has more", () => {
    const run = (account: string, bytes: number, at: number) => ({
      runId: `${account}-${at}`,
      bytes,
      account
    })
    const runs = [run("small", 3, 1), ...[1, 2, 3, 4].map((at) => run("large", 2, at)), run("small", 1, 2)]
    assert.deepStrictEqual(beyond(runs, 8), ["large-1", "large-2"])
    assert.deepStrictEqual(beyond(runs, 6), ["large-1", "large-2", "small-1"])
    assert.deepStrictEqual(beyond(runs, 0), [
      "large-1",
      "large-2",
      "small-1",
      "large-3",
      "large-4",
      "small-2"
    ])
  })

  it.live("keeps the older journals of an account while another account takes too much room", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const { journal, sql } = yield* opened(path)
      yield* RunTables.bring.pipe(Effect.provideService(SqlClient, sql))
      const ids = ["quiet", "flood-1", "flood-2", "flood-3"].map((id) => RunId.RunId.make(`run-of-${id}`))
      for (const id of ids) {
        yield* sql`INSERT INTO cogni_runs ${sql.insert({ run_id: id, claim_id: "c", host: "h", owner: "o", status: "exited", started_at: "2026", record: "{}" })}`
        yield* sql`INSERT INTO cogni_run_facts ${sql.insert({ run_id: id, started_at: "2026", state: "succeeded", billing_account_id: id.slice(7, 12) })}`
        yield* journal.write(id, started)
        yield* journal.write(id, said("x".repeat(id === ids[0] ? 5000 : 10_000)))
        yield* journal.write(id, ended)
        yield* journal.close(id)
      }
      yield* opened(path, { keptBytesMax: 20_000 })
      const left = sql<{ readonly run_id: string }>`SELECT DISTINCT run_id FROM cogni_run_journal`
      yield* Await.until(
        "two journals are removed",
        Effect.map(Effect.orDie(left), (rows) => rows.length <= 2)
      )
      assert.deepStrictEqual((yield* left).map(({ run_id }) => run_id).toSorted(), [
        "run-of-flood-3",
        "run-of-quiet"
      ])
    })
  )
})
