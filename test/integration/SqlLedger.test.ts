/** The ledger and the reservations of accounts in a real PostgreSQL that restarts, and for several processes at once. */
import { assert, layer } from "@effect/vitest"
import { AccountReservations, Ledger, Money } from "@cogni/sandbox-ledger"
import * as MoneySums from "@cogni/sandbox-ledger/MoneySums"
import { AccountContract, LedgerContract } from "@cogni/sandbox-ledger/testing"
import * as LedgerSamples from "../../packages/ledger/src/testing/LedgerSamples.ts"
import * as Database from "@cogni/sandbox-sql/Database"
import type { DatabaseAddress } from "@cogni/sandbox-sql/DatabaseAddress"
import * as SqlAccountReservations from "@cogni/sandbox-sql/SqlAccountReservations"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import { Context, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import { join } from "node:path"
import * as AccountSchedules from "../../packages/ledger/test/AccountSchedules.ts"
import * as DaySums from "../../packages/sql/src/internal/DaySums.ts"
import * as Stores from "../../packages/sql/test/Stores.ts"
import * as Await from "../harness/Await.ts"
import * as LedgerProcess from "../harness/LedgerProcess.ts"
import * as PostgresServer from "../harness/PostgresServer.ts"

class Server extends Context.Service<Server, PostgresServer.PostgresServer>()("test/Server") {
  static readonly layer = Layer.effect(Server, PostgresServer.acquire)
}

const opened = (address: DatabaseAddress) =>
  Effect.map(
    Layer.build(Layer.fresh(SqlLedger.layer.pipe(Layer.provide(Database.layer(address))))),
    (context) => Context.get(context, Ledger.Ledger)
  )

LedgerContract.suite(
  "PostgreSQL",
  Layer.effect(
    LedgerContract.Ledgers,
    Effect.map(Server, (server) => {
      let count = 0
      return { empty: Effect.suspend(() => Effect.flatMap(server.database(`ledger_${count++}`), opened)) }
    })
  ).pipe(Layer.provide(Server.layer))
)

const openedWithAccounts = (address: DatabaseAddress) =>
  Effect.map(
    Layer.build(
      Layer.fresh(
        Layer.merge(SqlLedger.layer, SqlAccountReservations.layer).pipe(
          Layer.provide(Database.layer(address))
        )
      )
    ),
    (context) => ({
      ledger: Context.get(context, Ledger.Ledger),
      reservations: Context.get(context, AccountReservations.AccountReservations)
    })
  )

AccountContract.suite(
  "PostgreSQL",
  Layer.effect(
    AccountContract.AccountPairs,
    Effect.map(Server, (server) => {
      let count = 0
      return {
        empty: Effect.suspend(() =>
          Effect.flatMap(server.database(`accounts_${count++}`), openedWithAccounts)
        )
      }
    })
  ).pipe(Layer.provide(Server.layer))
)

const totals = (ledger: Ledger.Ledger["Service"]) =>
  Effect.map(ledger.sums({ by: "total" }), ({ sums: [total] }) => [
    total?.calls ?? 0,
    total?.cost === undefined ? undefined : Money.format(total.cost)
  ])

/** The kept sums of accounts and days, and those that their entries have. */
const daySums = (address: DatabaseAddress) =>
  Effect.flatMap(SqlClient, (sql) =>
    Effect.all([
      sql`SELECT billing_account_id, day, micros * 1000000 + rest AS amount FROM cogni_ledger_days ORDER BY 1, 2`,
      sql`SELECT billing_account_id, day, micros * 1000000 + rest AS amount
        FROM (${DaySums.computed(sql)}) c ORDER BY 1, 2`
    ])
  ).pipe(Effect.provide(Layer.fresh(Database.layer(address))))

const expectedOfProcesses = [
  LedgerProcess.runs * LedgerProcess.calls,
  String((LedgerProcess.runs * LedgerProcess.calls) / 10)
]

const run = LedgerSamples.runOf("run-00000001")
const closedAt = run.expiresAt
const entries = Array.from({ length: 2000 }, (_, index) =>
  LedgerSamples.entryOf(run.runId, `call-${index}`, { costUsd: 0.1 })
)

layer(Server.layer, { excludeTestServices: true })("a ledger", (it) => {
  it.effect(
    "counts each call once if processes settle the same runs at once, in PostgreSQL and in a file",
    () =>
      Effect.gen(function* () {
        const server = yield* Server
        const path = join(yield* Stores.directory, "shared.db")
        const addresses = [yield* server.database("shared"), { _tag: "Sqlite", path } as const]
        for (const [index, url] of [server.url("shared"), path].entries()) {
          const said = yield* Effect.all(
            [1, 2, 3].map(() => LedgerProcess.settle(url)),
            {
              concurrency: "unbounded"
            }
          )
          assert.strictEqual(
            said.reduce((sum, text) => sum + Number(text), 0),
            expectedOfProcesses[0],
            said.join("\n")
          )
          const ledger = yield* opened(addresses[index]!)
          assert.deepStrictEqual(yield* totals(ledger), expectedOfProcesses)
          assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
          const [kept, computed] = yield* daySums(addresses[index]!)
          assert.lengthOf(kept, 1)
          assert.deepStrictEqual(kept, computed)
        }
      })
  )

  it.effect("loses nothing if its database is gone in the middle of settling a run of 2000 calls", () =>
    Effect.gen(function* () {
      const server = yield* Server
      const ledger = yield* opened(yield* server.database("gone"))
      yield* ledger.open(run)
      const settling = yield* Effect.forkChild(Effect.exit(ledger.settle({ run, entries, closedAt })), {
        startImmediately: true
      })
      yield* server.stop
      yield* Fiber.join(settling)
      const error = yield* Effect.flip(ledger.settle({ run, entries, closedAt }))
      assert.strictEqual(error._tag, "LedgerUnavailable")
      assert.notInclude(error.message, PostgresServer.password)
      yield* server.start
      const open = yield* ledger.openRuns("here")
      const [calls] = yield* totals(ledger)
      assert.include([0, 2000], calls, "all or nothing")
      assert.strictEqual(open.length, calls === 0 ? 1 : 0, "open as long as its entries are missing")
      yield* ledger.settle({ run, entries, closedAt })
      assert.deepStrictEqual(yield* totals(ledger), [2000, "200"])
      assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
    })
  )

  it.effect(
    "admits no more runs of an account than its limits when two processes reserve and settle at once",
    () =>
      Effect.gen(function* () {
        const address = yield* (yield* Server).database("accounts")
        // The lock relies on `read committed`, whatever the server's default is.
        yield* Effect.flatMap(
          SqlClient,
          (sql) => sql`ALTER DATABASE accounts SET default_transaction_isolation = 'repeatable read'`
        ).pipe(Effect.provide(Layer.fresh(Database.layer(address))))
        const both = [yield* openedWithAccounts(address), yield* openedWithAccounts(address)]
        // Half of the runs end meanwhile, and cost half of what they reserved.
        const answers = yield* Effect.forEach(
          Array.from({ length: 60 }, (_, index) => index),
          Effect.fnUntraced(function* (index) {
            const { ledger, reservations } = both[index % 2]!
            const entered = LedgerSamples.runOf(`run-account-${100 + index}`, {
              owner: `boot/${index % 2}/1`
            })
            const reservation = LedgerSamples.reservationOf(
              entered.runId,
              0.1,
              { dayUsdMax: 1.25 },
              { owner: entered.owner }
            )
            const { _tag } = yield* reservations.reserve(reservation)
            if (_tag === "Refused") return 0
            yield* ledger.open(entered)
            if (index % 4 < 2) return 0.1
            const cost = LedgerSamples.entryOf(entered.runId, "call-0", { costUsd: 0.05 })
            yield* ledger.settle({ run: entered, entries: [cost], closedAt })
            yield* reservations.release({ ...reservation, run: entered })
            return 0.05
          }),
          { concurrency: 8 }
        )
        const { day } = yield* both[0]!.reservations.standing("account-1", LedgerSamples.now)
        const held = Money.toUsd(MoneySums.add(day.spent, day.reserved))
        assert.closeTo(
          held,
          answers.reduce<number>((sum, usd) => sum + usd, 0),
          1e-9
        )
        assert.isAtMost(held, 1.25)
        assert.isAbove(held, 1.1)
      })
  )

  it.effect("releases a reservation whose commit comes after its release", () =>
    Effect.gen(function* () {
      const address = yield* (yield* Server).database("late")
      const { reservations } = yield* openedWithAccounts(address)
      const reservation = LedgerSamples.reservationOf("run-00000001", 1, {})
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient
        // A commit that waits, as one does for a slow disk or for another server.
        yield* sql`CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql
          AS 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END'`
        yield* sql`CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON cogni_account_reservations
          DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit()`
        const waiting = Effect.map(sql`SELECT 1 FROM pg_locks WHERE NOT granted`, (locks) => locks.length)
        const both = yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* sql`SELECT pg_advisory_xact_lock(42)`
            const reserving = yield* Effect.forkDetach(reservations.reserve(reservation))
            yield* Await.until(
              "the commit waits",
              Effect.map(waiting, (count) => count === 1)
            )
            const releasing = yield* Effect.forkDetach(reservations.release(reservation))
            yield* Await.until(
              "the release waits, or has ended",
              Effect.map(waiting, (count) => count === 2 || releasing.pollUnsafe() !== undefined)
            )
            return [reserving, releasing] as const
          })
        )
        yield* Fiber.joinAll(both)
      }).pipe(Effect.provide(Layer.fresh(Database.layer(address))))
      const { day, runs } = yield* reservations.standing("account-1", LedgerSamples.now)
      assert.deepStrictEqual([runs, day.reserved], [0, MoneySums.zero])
    })
  )

  it.effect("keeps the limits of an account in any schedule", () =>
    Effect.gen(function* () {
      const server = yield* Server
      for (const [index, seeds] of AccountSchedules.examples(5).entries()) {
        const { ledger, reservations } = yield* openedWithAccounts(
          yield* server.database(`schedule_${index}`)
        )
        yield* AccountSchedules.play(ledger, reservations, seeds)
      }
    })
  )

  it.effect("does not depend on the locale for the order of its pages", () =>
    Effect.gen(function* () {
      const ledger = yield* opened(yield* (yield* Server).database("order"))
      const units = ["B", "a", "_", "Ä", "1"]
      yield* ledger.append(units.map((unit) => LedgerSamples.entryOf(run.runId, unit)))
      const found: Array<string> = []
      let after: string | undefined
      do {
        const page = yield* ledger.list({}, after === undefined ? { limit: 1 } : { limit: 1, after })
        found.push(...page.entries.map(({ usageUnitId }) => usageUnitId))
        after = page.next
      } while (after !== undefined)
      assert.deepStrictEqual(found, ["1", "B", "_", "a", "Ä"])
    })
  )
})
