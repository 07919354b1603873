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
import { beyond, piecesOf } from "../src/internal/JournalTable.ts"
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

  it("joins the same lines to the same pieces, of which only the last one grows", () => {
    const lines = Array.from({ length: 40 }, (_, at) => ({
      seq: at + 1,
      line: `${"x".repeat(9999)}\n`,
      isEnd: at === 39
    }))
    const before = piecesOf(lines.slice(0, 20))
    const after = piecesOf(lines)
    assert.deepStrictEqual(after.slice(0, before.length - 1), before.slice(0, -1))
    assert.deepStrictEqual(after.map(({ first, isEnd, last }) => [first, last, isEnd]).at(-1), [37, 40, true])
    assert.deepStrictEqual(piecesOf([]), [])
  })

  it("removes only as many journals as needed", () => {
    const runs = [1, 2, 3].map((bytes) => ({ runId: `run-${bytes}`, bytes }))
    assert.deepStrictEqual(beyond(runs, 6), [])
    assert.deepStrictEqual(beyond(runs, 5), ["run-1"])
    assert.deepStrictEqual(beyond(runs, 2), ["run-1", "run-2", "run-3"])
  })
})
