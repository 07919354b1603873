/** The ledger in a SQLite file: the contract, two processes at once, and a file of a later version. */
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@cogni/sandbox-ledger"
import { LedgerContract } from "@cogni/sandbox-ledger/testing"
import * as LedgerSamples from "../../ledger/src/testing/LedgerSamples.ts"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { join } from "node:path"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as Stores from "./Stores.ts"

const stored = (path: string) =>
  SqlLedger.layer.pipe(Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "ledger.db") })))

LedgerContract.suite(
  "SQLite",
  Layer.succeed(LedgerContract.Ledgers, {
    empty: Effect.map(
      Effect.flatMap(Stores.directory, (path) => Layer.build(Layer.fresh(stored(path)))),
      (context) => Context.get(context, Ledger.Ledger)
    )
  })
)

describe("SqlLedger", () => {
  it.effect("refuses tables of a later version, with a remedy", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const sql = Context.get(yield* Layer.build(stored(path)), SqlClient)
      yield* sql`INSERT INTO cogni_ledger_version (migration_id, name) VALUES (99, 'later')`
      const error = yield* Effect.flip(Layer.build(Layer.fresh(stored(path))))
      assert.strictEqual(error._tag, "SchemaRefused")
      assert.include(error.message, "Update Cogni Sandbox")
    })
  )

  it.effect("stores all entries of a settlement and closes the run, or neither", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(stored(yield* Stores.directory))
      const [ledger, sql] = [Context.get(context, Ledger.Ledger), Context.get(context, SqlClient)]
      const run = LedgerSamples.runOf("run-00000001")
      yield* ledger.open(run)
      yield* sql`CREATE TRIGGER broken BEFORE INSERT ON cogni_ledger_entries
        WHEN NEW.usage_unit_id = 'call-1500' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`
      const entries = Array.from({ length: 2000 }, (_, index) =>
        LedgerSamples.entryOf(run.runId, `call-${index}`)
      )
      const settling = ledger.settle({ run, entries, closedAt: run.expiresAt })
      assert.strictEqual((yield* Effect.flip(settling))._tag, "LedgerUnavailable")
      assert.deepStrictEqual((yield* ledger.list({})).entries, [])
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [run])
      yield* sql`DROP TRIGGER broken`
      assert.strictEqual((yield* settling).added, 2000)
    })
  )

  it.effect("adds amounts that together exceed 64 bits", () =>
    Effect.gen(function* () {
      const ledger = Context.get(yield* Layer.build(stored(yield* Stores.directory)), Ledger.Ledger)
      const entries = Array.from({ length: 20 }, (_, index) =>
        LedgerSamples.entryOf("run-00000001", `call-${index}`, { costUsd: 999_999.999_999_999 })
      )
      yield* ledger.append(entries)
      const [total] = (yield* ledger.sums({ by: "total" })).sums
      assert.strictEqual(total?.cost, 20n * 999_999_999_999_999_000n)
    })
  )
})
