/** Contract of the reservations of accounts: in memory, SQLite, PostgreSQL. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, type Layer, Result, type Scope } from "effect"
import type { AccountReservations } from "../AccountReservations.ts"
import type { Reservation } from "../AccountReservation.ts"
import type { Ledger } from "../Ledger.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as Money from "../Money.ts"
import * as MoneySums from "../MoneySums.ts"
import { entryOf, runOf } from "./LedgerSamples.ts"
import { now, reservationOf } from "./LedgerSamples.ts"

/** Reservations, and the ledger that they are compared with. */
interface Pair {
  readonly ledger: Ledger["Service"]
  readonly reservations: AccountReservations["Service"]
}

/** Makes reservations for the tests of a suite. */
export class AccountPairs extends Context.Service<
  AccountPairs,
  {
    /** An empty ledger without reservations. Only one is used at a time. */
    readonly empty: Effect.Effect<Pair, unknown, Scope.Scope>
  }
>()("@cogni/sandbox-ledger/testing/AccountPairs") {}

const afterLease = "2026-01-31T11:05:00.001Z"
const closedAt = "2026-01-31T11:01:00.000Z"

export const suite = <E>(name: string, layer: Layer.Layer<AccountPairs, E>): void =>
  it.layer(layer, { excludeTestServices: true, timeout: "10 minutes" })(
    `AccountReservations (${name})`,
    (it) => {
      const test = (title: string, body: (pair: Pair) => Effect.Effect<void, unknown, Scope.Scope>) =>
        it.effect(title, () => AccountPairs.use(({ empty }) => Effect.flatMap(empty, body)))

      const standing = ({ reservations }: Pair, at = now, account = "account-1") =>
        Effect.map(reservations.standing(account, at), ({ day, month, processes, runs }) => ({
          runs,
          processes,
          day: [Money.format(day.spent), Money.format(day.reserved)],
          month: [Money.format(month.spent), Money.format(month.reserved)]
        }))

      const reserved = (pair: Pair, reservation: Reservation) =>
        Effect.map(pair.reservations.reserve(reservation), ({ _tag }) => _tag === "Reserved")

      const none = { runs: 0, processes: 0, day: ["0", "0"], month: ["0", "0"] }

      test("reserves up to the limit exactly, and says which figures forbid more", (pair) =>
        Effect.gen(function* () {
          const limit = { dayUsdMax: 0.3 }
          assert.isTrue(yield* reserved(pair, reservationOf("run-00000001", 0.1, limit)))
          assert.isTrue(yield* reserved(pair, reservationOf("run-00000002", 0.2, limit)))
          const answer = yield* pair.reservations.reserve(reservationOf("run-00000003", 1e-6, limit))
          assert.deepStrictEqual(answer, {
            _tag: "Refused",
            refusal: {
              limit: "day",
              usdMax: 0.3,
              spent: MoneySums.zero,
              reserved: Money.fromUsd(0.3),
              asked: Money.fromUsd(1e-6)
            }
          })
          assert.isTrue(yield* reserved(pair, reservationOf("run-00000003", 5, { dayUsdMax: 5.3 })))
          assert.isFalse(
            yield* reserved(pair, reservationOf("run-00000004", 1, { dayUsdMax: 100, monthUsdMax: 6 }))
          )
        }))

      test("lets free models pass without credit, within the number of runs", (pair) =>
        Effect.gen(function* () {
          const limit = { dayUsdMax: 0, concurrentRunsMax: 1 }
          assert.isFalse(yield* reserved(pair, reservationOf("run-00000001", 0.1, limit)))
          assert.isTrue(yield* reserved(pair, reservationOf("run-00000001", undefined, limit)))
          const answer = yield* pair.reservations.reserve(reservationOf("run-00000002", undefined, limit))
          assert.deepStrictEqual(answer, {
            _tag: "Refused",
            refusal: { limit: "runs", concurrentRunsMax: 1, runs: 1 }
          })
          assert.deepStrictEqual((yield* standing(pair)).day, ["0", "0"])
        }))

      test("counts the cost of a run instead of its reservation as soon as the ledger settles it", (pair) =>
        Effect.gen(function* () {
          const run = runOf("run-00000001")
          yield* pair.reservations.reserve(reservationOf(run.runId, 1, {}))
          yield* pair.ledger.open(run)
          assert.deepStrictEqual(yield* standing(pair), {
            runs: 1,
            processes: 1,
            day: ["0", "1"],
            month: ["0", "1"]
          })
          yield* pair.ledger.settle({ run, entries: [entryOf(run.runId, "a", { costUsd: 0.25 })], closedAt })
          assert.deepStrictEqual(yield* standing(pair), {
            runs: 0,
            processes: 0,
            day: ["0.25", "0"],
            month: ["0.25", "0"]
          })
          yield* pair.reservations.release(reservationOf(run.runId, 1, {}))
          yield* pair.reservations.release(reservationOf(run.runId, 1, {}))
          assert.deepStrictEqual((yield* standing(pair)).day, ["0.25", "0"])
          yield* pair.ledger.append([
            entryOf(run.runId, "a", { costUsd: 0.5, revision: 1, state: "matched" })
          ])
          assert.deepStrictEqual((yield* standing(pair)).day, ["0.5", "0"], "a correction replaces the cost")
        }))

      test("counts nothing for a run that ended before the ledger opened it", (pair) =>
        Effect.gen(function* () {
          const reservation = reservationOf("run-00000001", 1, {})
          yield* pair.reservations.reserve(reservation)
          yield* pair.reservations.release(reservation)
          assert.deepStrictEqual(yield* standing(pair), none)
        }))

      test("stores no reservation that arrives after its release", (pair) =>
        Effect.gen(function* () {
          const reservation = reservationOf("run-00000001", 1, {})
          yield* pair.reservations.release(reservation)
          yield* pair.reservations.release(reservation)
          const late = yield* Effect.result(pair.reservations.reserve(reservation))
          assert.deepStrictEqual(yield* standing(pair), none)
          assert.strictEqual(Result.isFailure(late) ? late.failure._tag : late._tag, "LedgerRunInUse")
          const next = { ...reservation, run: { ...reservation.run, attempt: 1 } }
          assert.isTrue(yield* reserved(pair, next), "the next attempt")
        }))

      test("releases the reservation of its own process only", (pair) =>
        Effect.gen(function* () {
          const reservation = reservationOf("run-00000001", 1, {})
          yield* pair.reservations.reserve(reservation)
          yield* pair.reservations.release({ ...reservation, owner: "boot/2/2" })
          assert.deepInclude(yield* standing(pair), { runs: 1, day: ["0", "1"] })
        }))

      test("renews only the runs that their process names", (pair) =>
        Effect.gen(function* () {
          const runs = ["run-00000001", "run-00000002"].map((runId) => reservationOf(runId, 1, {}))
          yield* Effect.forEach(runs, pair.reservations.reserve)
          const renewal = { now, leaseUntil: "2026-01-31T12:00:00.000Z" }
          yield* pair.reservations.renew({ ...renewal, owner: "boot/1/1", runs: [runs[0]!.run] })
          yield* pair.reservations.renew({ ...renewal, owner: "boot/2/2", runs: [runs[1]!.run] })
          assert.deepInclude(yield* standing(pair, afterLease), { runs: 1, day: ["0", "1"] })
          yield* pair.reservations.renew({ ...renewal, owner: "boot/1/1", runs: [] })
        }))

      test("renews more runs than one statement names", (pair) =>
        Effect.gen(function* () {
          const reservation = reservationOf("run-00000001", 1, {})
          yield* pair.reservations.reserve(reservation)
          const others = Array.from({ length: 1000 }, (_, index) => ({
            ...reservation.run,
            attempt: index + 1
          }))
          const runs = [...others, reservation.run]
          const leaseUntil = "2026-01-31T12:00:00.000Z"
          yield* pair.reservations.renew({ owner: "boot/1/1", runs, now, leaseUntil })
          assert.strictEqual((yield* standing(pair, afterLease)).runs, 1)
        }))

      test("keeps the amount of a run that ended and is not settled, but not its place", (pair) =>
        Effect.gen(function* () {
          const run = runOf("run-00000001")
          yield* pair.reservations.reserve(reservationOf(run.runId, 1, {}))
          yield* pair.ledger.open(run)
          yield* pair.reservations.release(reservationOf(run.runId, 1, {}))
          assert.deepInclude(yield* standing(pair), { runs: 0, day: ["0", "1"] })
          yield* pair.reservations.renew({
            owner: "boot/1/1",
            runs: [run],
            now,
            leaseUntil: "2026-03-31T00:00:00.000Z"
          })
          assert.deepInclude(
            yield* standing(pair, "2026-02-01T00:00:00.000Z"),
            { day: ["0", "0"], month: ["0", "0"] },
            "a run that has ended is not renewed"
          )
        }))

      test("frees the place of a dead host with its lease, and its amount with the month", (pair) =>
        Effect.gen(function* () {
          const run = runOf("run-00000001")
          yield* pair.reservations.reserve(reservationOf(run.runId, 1, {}))
          yield* pair.reservations.reserve(reservationOf("run-00000002", 2, {}))
          yield* pair.ledger.open(run)
          assert.deepInclude(
            yield* standing(pair, afterLease),
            { runs: 0, day: ["0", "1"] },
            "one never opened"
          )
          assert.deepInclude(yield* standing(pair, "2026-02-01T00:00:00.000Z"), { month: ["0", "0"] })
          yield* pair.ledger.settle({ run, entries: [entryOf(run.runId, "a", { costUsd: 0.5 })], closedAt })
          assert.deepInclude(yield* standing(pair, afterLease), { day: ["0.5", "0"] })
        }))

      test("keeps the place and the amount of a run whose process renews its lease", (pair) =>
        Effect.gen(function* () {
          const run = runOf("run-00000001")
          yield* pair.reservations.reserve(reservationOf(run.runId, 1, {}))
          yield* pair.reservations.reserve(reservationOf("run-00000002", 1, {}, { owner: "boot/2/2" }))
          yield* pair.ledger.open(run)
          const processes = yield* pair.reservations.renew({
            owner: "boot/1/1",
            runs: [run],
            now,
            leaseUntil: "2026-02-01T00:04:00.000Z"
          })
          assert.deepStrictEqual([...processes], [["account-1", 2]])
          assert.deepStrictEqual(yield* standing(pair, "2026-02-01T00:00:00.000Z"), {
            runs: 1,
            processes: 1,
            day: ["0", "1"],
            month: ["0", "1"]
          })
        }))

      test("counts a call of unknown cost as reserved, and a run with less knowledge as a whole", (pair) =>
        Effect.gen(function* () {
          const run = runOf("run-00000001")
          yield* pair.reservations.reserve(reservationOf(run.runId, 2, {}))
          yield* pair.ledger.open(run)
          const { costUsd: _, ...unknown } = entryOf(run.runId, "b", {
            priceSource: "none",
            reason: "no_price"
          })
          yield* pair.ledger.settle({
            run,
            entries: [entryOf(run.runId, "a", { costUsd: 0.25 }), { ...unknown, reservedUsd: 0.5 }],
            closedAt
          })
          assert.deepInclude(yield* standing(pair), { day: ["0.75", "0"] })
          yield* pair.ledger.append([{ ...unknown, usageUnitId: "c" }])
          assert.deepInclude(yield* standing(pair), { day: ["2", "0"] })
          yield* pair.ledger.append([entryOf(run.runId, "d", { costUsd: 4 })])
          assert.deepInclude(yield* standing(pair), { day: ["4.75", "0"] }, "more than reserved is known")
          yield* pair.ledger.append([{ ...unknown, runId: RunId.make("run-00000002") }])
          assert.deepInclude(yield* standing(pair), { day: ["4.75", "0"] }, "a run without a reservation")
        }))

      test("counts days and months of UTC, and each account alone", (pair) =>
        Effect.gen(function* () {
          const at = (unit: string, time: string, changes: object = {}) =>
            entryOf("run-00000001", unit, { at: time, costUsd: 1, ...changes })
          yield* pair.ledger.append([
            at("a", "2025-12-31T23:59:59.999Z"),
            at("b", "2026-01-01T00:00:00.000Z", { costUsd: 2 }),
            at("c", "2026-01-30T23:59:59.999Z", { costUsd: 4 }),
            at("d", "2026-01-31T00:00:00.000Z", { costUsd: 8 }),
            at("e", "2026-01-31T10:00:00.000Z", { costUsd: 16, billingAccountId: "account-2" })
          ])
          assert.deepInclude(yield* standing(pair), { day: ["8", "0"], month: ["14", "0"] })
          assert.deepInclude(yield* standing(pair, now, "account-2"), { day: ["16", "0"] })
          assert.deepInclude(yield* standing(pair, now, "account-3"), { month: ["0", "0"] })
        }))

      test("counts each call in one day and one month, also one that a clock ahead has dated later", (pair) =>
        Effect.gen(function* () {
          const days = ["2026-01-31", "2026-02-01", "2026-02-28", "2026-03-01"]
          const times = days.flatMap((day) => [`${day}T00:00:00.000Z`, `${day}T23:59:59.999Z`])
          const entries = times.map((at, index) =>
            entryOf("run-00000001", `call-${index}`, { at, costUsd: 2 ** index })
          )
          yield* pair.ledger.append(entries)
          const spent = (at: string) =>
            Effect.map(standing(pair, at), ({ day: [day], month: [month] }) => [day, month].map(Number))
          const sumOf = (start: string) =>
            entries.reduce((sum, { at, costUsd = 0 }) => (at.startsWith(start) ? sum + costUsd : sum), 0)
          for (const day of days)
            for (const time of ["00:00:00.000", "12:00:00.000", "23:59:59.999"])
              assert.deepStrictEqual(
                yield* spent(`${day}T${time}Z`),
                [sumOf(day), sumOf(day.slice(0, 7))],
                `${day} ${time}`
              )
          for (const [index, from] of times.entries()) {
            const to = times[index + 1] ?? "2026-03-02T00:00:00.000Z"
            const { sums } = yield* pair.ledger.sums({ by: "total", filter: { from, to } })
            assert.strictEqual(sums[0]?.calls, 1, `from ${from} to before ${to}`)
          }
          const byDay = yield* pair.ledger.sums({ by: "day" })
          assert.deepStrictEqual(
            byDay.sums.map(({ group = "", cost = MoneySums.zero }) => [group, Money.toUsd(cost)]),
            days.toReversed().map((day) => [day, sumOf(day)])
          )
        }))

      test("reserves once for a run, and not for a run that another process has", (pair) =>
        Effect.gen(function* () {
          const limit = { concurrentRunsMax: 1 }
          const reservation = reservationOf("run-00000001", 1, limit)
          assert.isTrue(yield* reserved(pair, reservation))
          assert.isTrue(yield* reserved(pair, reservation))
          assert.deepInclude(yield* standing(pair), { runs: 1, day: ["0", "1"] })
          const other = yield* Effect.flip(pair.reservations.reserve({ ...reservation, owner: "boot/2/2" }))
          assert.strictEqual(other._tag, "LedgerRunInUse")
          yield* pair.reservations.release(reservation)
          const ended = yield* Effect.flip(pair.reservations.reserve(reservation))
          assert.strictEqual(ended._tag, "LedgerRunInUse")
          assert.isTrue(
            yield* reserved(pair, { ...reservation, run: { ...reservation.run, attempt: 1 } }),
            "another attempt"
          )
        }))

      test("adds large amounts and tells names apart that look alike", (pair) =>
        Effect.gen(function* () {
          const names = ["account", "Account", "account\u0000", "äccount", "a\\u0000"]
          yield* Effect.forEach(names, (billingAccountId, index) =>
            pair.reservations.reserve(
              reservationOf(`run-0000000${index}`, 1_000_000, {}, { billingAccountId })
            )
          )
          for (let index = 0; index < 20; index++)
            yield* pair.reservations.reserve(
              reservationOf(
                `run-100000${index + 10}`,
                999_999.999_999_999,
                {},
                { billingAccountId: "account" }
              )
            )
          assert.deepInclude(yield* standing(pair, now, "account"), {
            runs: 21,
            day: ["0", "20999999.99999998"]
          })
          for (const name of names.slice(1))
            assert.deepInclude(yield* standing(pair, now, name), { runs: 1, month: ["0", "1000000"] })
        }))

      test("admits no more than the limits at the same time", (pair) =>
        Effect.gen(function* () {
          const answers = yield* Effect.forEach(
            Array.from({ length: 20 }, (_, index) => index + 10),
            (index) =>
              reserved(
                pair,
                reservationOf(`run-000000${index}`, 0.1, { dayUsdMax: 0.75, concurrentRunsMax: 9 })
              ),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(answers.filter(Boolean).length, 7)
        }))
    }
  )
