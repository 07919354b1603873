/** Reservations of accounts in a SQLite file: the contract, and two processes at once. */
import { assert, describe, it } from "@effect/vitest"
import { AccountReservations, Ledger } from "@cogni/sandbox-ledger"
import { AccountContract } from "@cogni/sandbox-ledger/testing"
import * as LedgerSamples from "../../ledger/src/testing/LedgerSamples.ts"
import { Context, Effect, Layer } from "effect"
import { join } from "node:path"
import * as SqlAccountReservations from "@cogni/sandbox-sql/SqlAccountReservations"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import * as AccountSchedules from "../../ledger/test/AccountSchedules.ts"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as Stores from "./Stores.ts"

const stored = (path: string) =>
  Layer.merge(SqlLedger.layer, SqlAccountReservations.layer).pipe(
    Layer.provide(SqliteDatabase.layer({ path: join(path, "ledger.db") }))
  )

const opened = (path: string) =>
  Effect.map(Layer.build(Layer.fresh(stored(path))), (context) => ({
    ledger: Context.get(context, Ledger.Ledger),
    reservations: Context.get(context, AccountReservations.AccountReservations)
  }))

AccountContract.suite(
  "SQLite",
  Layer.succeed(AccountContract.AccountPairs, { empty: Effect.flatMap(Stores.directory, opened) })
)

describe("SqlAccountReservations", () => {
  it.effect.prop(
    "keeps the limits of an account in any schedule, and ends with the runs",
    { seeds: AccountSchedules.Seeds },
    ({ seeds }) =>
      Effect.gen(function* () {
        const { ledger, reservations } = yield* opened(yield* Stores.directory)
        yield* AccountSchedules.play(ledger, reservations, seeds)
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 15, seed: "accounts-sql-1" } }
  )

  it.effect("admits no more than the limits when two processes reserve at the same time", () =>
    Effect.gen(function* () {
      const path = yield* Stores.directory
      const both = [yield* opened(path), yield* opened(path)]
      const answers = yield* Effect.forEach(
        Array.from({ length: 40 }, (_, index) => index + 10),
        (index) =>
          both[index % 2]!.reservations.reserve(
            LedgerSamples.reservationOf(
              `run-000000${index}`,
              0.1,
              { dayUsdMax: 1.25 },
              { owner: `boot/${index % 2}/1` }
            )
          ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(answers.filter(({ _tag }) => _tag === "Reserved").length, 12)
    })
  )
})
