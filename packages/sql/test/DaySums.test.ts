/** The sums by account and day: whatever is appended, settled and corrected, they are those of the entries. */
import { assert, describe, it } from "@effect/vitest"
import { AccountReservations, Ledger, type LedgerEntry } from "@cogni/sandbox-ledger"
import * as LedgerSamples from "../../ledger/src/testing/LedgerSamples.ts"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { join } from "node:path"
import * as SqlAccountReservations from "@cogni/sandbox-sql/SqlAccountReservations"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import * as DaySums from "../src/internal/DaySums.ts"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as Stores from "./Stores.ts"

const opened = Effect.map(
  Effect.flatMap(Stores.directory, (path) =>
    Layer.build(
      Layer.fresh(
        Layer.merge(SqlLedger.layer, SqlAccountReservations.layer).pipe(
          Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "ledger.db") }))
        )
      )
    )
  ),
  (context) => ({
    ledger: Context.get(context, Ledger.Ledger),
    reservations: Context.get(context, AccountReservations.AccountReservations),
    sql: Context.get(context, SqlClient)
  })
)

type Row = Readonly<Record<"billing_account_id" | "day" | "micros" | "rest", string | number>>

/** Rows in one order, without the days whose calls were all corrected to nothing. */
const amountsOf = (rows: ReadonlyArray<Row>) =>
  Object.fromEntries(
    rows
      .map(
        ({ billing_account_id: account, day, micros, rest }) =>
          [`${account} ${day}`, BigInt(micros) * 1_000_000n + BigInt(rest)] as const
      )
      .filter(([, amount]) => amount !== 0n)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
  )

const kept = (sql: SqlClient) => Effect.map(sql<Row>`SELECT * FROM cogni_ledger_days`, amountsOf)
const computed = (sql: SqlClient) => Effect.map(sql<Row>`${DaySums.computed(sql)}`, amountsOf)

const small = (maximum: number) => Schema.Int.check(Schema.isBetween({ minimum: 0, maximum }))

/** One write: some revisions of some calls, as settlements or as corrections. */
const Writes = Schema.Array(
  Schema.Struct({
    settles: Schema.Boolean,
    entries: Schema.Array(
      Schema.Struct({
        run: small(2),
        unit: small(3),
        revision: small(3),
        account: small(1),
        day: small(2),
        cost: Schema.Union([small(5), Schema.Undefined]),
        reserved: Schema.Union([small(5), Schema.Undefined]),
        isOpen: Schema.Boolean
      })
    ).check(Schema.isMaxLength(6))
  })
).check(Schema.isMaxLength(12))

type Written = (typeof Writes.Type)[number]["entries"][number]

const entryOf = ({ account, cost, day, isOpen, reserved, revision, run, unit }: Written) => {
  const { costUsd: _, ...rest } = LedgerSamples.entryOf(`run-0000000${run}`, `"unit" ${unit}`, {
    at: `2026-01-${30 + (day % 2)}T23:59:59.99${day}Z`,
    billingAccountId: `account ${account}`,
    revision
  })
  return {
    ...rest,
    ...(cost === undefined ? { priceSource: "none" as const } : { costUsd: cost + 1e-12 * cost }),
    ...(reserved === undefined ? {} : { reservedUsd: reserved }),
    ...(isOpen ? { state: "estimated" as const, reason: "call_open" } : {})
  } satisfies LedgerEntry.LedgerEntry
}

describe("DaySums", () => {
  it.effect.prop(
    "are those of the newest revisions after each write, in any order",
    { writes: Writes },
    ({ writes }) =>
      Effect.gen(function* () {
        const { ledger, sql } = yield* opened
        const runs = [0, 1, 2].map((index) => LedgerSamples.runOf(`run-0000000${index}`))
        yield* Effect.forEach(runs, ledger.open)
        for (const { entries: written, settles } of writes) {
          const entries = written.map(entryOf)
          if (settles) yield* ledger.settle({ run: runs[0]!, entries, closedAt: runs[0]!.expiresAt })
          else yield* ledger.append(entries)
          assert.deepStrictEqual(yield* kept(sql), yield* computed(sql))
        }
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 60, seed: "day-sums-1" } }
  )

  it.effect("are filled from the entries of a ledger that had none", () =>
    Effect.gen(function* () {
      const { ledger, sql } = yield* opened
      yield* ledger.append(
        Array.from({ length: 5 }, (_, index) =>
          LedgerSamples.entryOf("run-00000001", `call-${index}`, { costUsd: 999_999.999_999_999 })
        )
      )
      const before = yield* kept(sql)
      yield* sql`DROP TABLE cogni_ledger_days`
      yield* sql`DROP TABLE cogni_ledger_days_version`
      yield* sql`DROP INDEX cogni_ledger_unknown`
      yield* Effect.provideService(DaySums.bring, SqlClient, sql)
      assert.deepStrictEqual(yield* kept(sql), before)
      assert.deepStrictEqual(Object.values(before), [5n * 999_999_999_999_999_000n])
    })
  )

  it.effect("let a run start without reading the calls of its account", () =>
    Effect.gen(function* () {
      const { ledger, reservations, sql } = yield* opened
      yield* ledger.append([LedgerSamples.entryOf("run-00000001", "call-1", { costUsd: 0.5 })])
      // Entries that the sums do not have show that no entry is read.
      yield* sql`UPDATE cogni_ledger_entries SET cost_pico = 2 * cost_pico`
      const { day, month } = yield* reservations.standing("account-1", "2026-01-31T12:00:00.000Z")
      assert.deepStrictEqual([day.spent, month.spent], [500_000_000_000n, 500_000_000_000n])
    })
  )
})
