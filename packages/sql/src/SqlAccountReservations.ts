/**
 * `AccountReservations` in the database of the ledger, shared by all processes and hosts that use it.
 *
 * A reservation is one transaction that holds a lock of its account: in PostgreSQL an advisory lock, in SQLite the
 * file, whose transactions begin as writers. So two processes never both take what is left.
 */
import { decide, limitsMoney } from "@cogni/sandbox-ledger/AccountDecision"
import { AccountReservations } from "@cogni/sandbox-ledger/AccountReservations"
import { type Reservation, type Reserved } from "@cogni/sandbox-ledger/AccountReservation"
import { periodsOf } from "@cogni/sandbox-ledger/AccountStanding"
import { LedgerRunInUse, LedgerUnavailable } from "@cogni/sandbox-ledger/LedgerError"
import { keyOf } from "@cogni/sandbox-ledger/LedgerRun"
import * as MoneySums from "@cogni/sandbox-ledger/MoneySums"
import { Array as Arr, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql/SqlClient"
import type { SqlError } from "effect/sql/SqlError"
import { explain } from "./internal/DatabaseFault.ts"
import * as AccountTables from "./internal/AccountTables.ts"
import * as DatabaseCall from "./internal/DatabaseCall.ts"
import * as DaySums from "./internal/DaySums.ts"
import * as LedgerTables from "./internal/LedgerTables.ts"
import type { SchemaRefused } from "./SchemaVersion.ts"

/** Maximum number of runs that one statement renews. */
const renewedMax = 200

const rowOf = ({ amount, billingAccountId, leaseUntil, now, owner, run }: Omit<Reservation, "limit">) => ({
  run_id: run.runId,
  attempt: run.attempt,
  billing_account_id: LedgerTables.escaped(billingAccountId),
  owner: LedgerTables.escaped(owner),
  reserved_pico: String(amount ?? MoneySums.zero),
  reserved_at: now,
  lease_until: leaseUntil,
  has_ended: 0,
  is_settled: 0
})

/** Requires the tables, which {@link layer} creates. */
const make = Effect.gen(function* () {
  const sql = yield* SqlClient

  const locked = (account: string) =>
    sql.onDialectOrElse({
      pg: () =>
        Effect.asVoid(sql`SELECT pg_advisory_xact_lock(hashtextextended(${`cogni-account ${account}`}, 0))`),
      orElse: () => Effect.void
    })

  const standing = (account: string, now: string) =>
    Effect.map(AccountTables.standing(sql, account, { now, ...periodsOf(now) }), ([row]) =>
      AccountTables.standingOf(row)
    )
  const places = (account: string, now: string) =>
    Effect.map(AccountTables.places(sql, account, { now, monthFrom: periodsOf(now).month.from }), ([row]) =>
      AccountTables.standingOf(row)
    )

  return AccountReservations.of({
    reserve: Effect.fn("AccountReservations.reserve")(function* (reservation) {
      const { amount, billingAccountId, limit, now, owner, run } = reservation
      const { attempt, runId } = run
      const account = LedgerTables.escaped(billingAccountId)
      const answer = yield* database.again(
        sql.withTransaction(
          Effect.gen(function* (): Effect.fn.Return<Reserved | undefined, SqlError> {
            yield* locked(account)
            const [found] =
              yield* sql<LedgerTables.Row>`SELECT owner, has_ended FROM cogni_account_reservations
              WHERE run_id = ${runId} AND attempt = ${attempt}`
            const reserved = Effect.map(places(account, now), ({ processes }): Reserved => ({
              _tag: "Reserved",
              processes
            }))
            if (found !== undefined)
              return found["owner"] === LedgerTables.escaped(owner) && Number(found["has_ended"]) === 0
                ? yield* reserved
                : undefined
            // Without a limit of money, no amount has to be read.
            const needsAmounts = amount !== undefined && limitsMoney(limit)
            const before = yield* needsAmounts ? standing(account, now) : places(account, now)
            const refusal = decide(limit, before, amount)
            if (refusal !== undefined) return { _tag: "Refused", refusal }
            // Another account's lock does not exclude a reservation of the same run, or its release.
            const inserted =
              yield* sql`INSERT INTO cogni_account_reservations ${sql.insert(rowOf(reservation))}
              ON CONFLICT (run_id, attempt) DO NOTHING RETURNING run_id`
            return inserted.length === 0 ? undefined : yield* reserved
          })
        )
      )
      return answer ?? (yield* new LedgerRunInUse({ runId, attempt }))
    }),

    release: ({ billingAccountId, now, owner, run }) => {
      const { attempt, runId } = run
      const row = {
        ...rowOf({ run, billingAccountId, owner, amount: undefined, now, leaseUntil: now }),
        has_ended: 1,
        is_settled: 1
      }
      // The key of the table makes it wait for a reservation that is being stored, and forbids a later one.
      return Effect.asVoid(
        database.again(
          sql`INSERT INTO cogni_account_reservations ${sql.insert(row)}
            ON CONFLICT (run_id, attempt) DO UPDATE SET has_ended = 1,
            is_settled = CASE WHEN EXISTS (SELECT 1 FROM cogni_ledger_runs l WHERE l.run_id = ${runId}
              AND l.attempt = ${attempt} AND l.closed_at IS NULL) THEN 0 ELSE 1 END
            WHERE cogni_account_reservations.owner = excluded.owner`
        )
      )
    },

    renew: Effect.fn("AccountReservations.renew")(function* ({ leaseUntil, now, owner, runs }) {
      const own = LedgerTables.escaped(owner)
      const renewed = Effect.forEach(
        Arr.chunksOf(runs.map(keyOf), renewedMax),
        (keys) =>
          sql`UPDATE cogni_account_reservations SET lease_until = ${leaseUntil}
            WHERE owner = ${own} AND has_ended = 0 AND run_id || '/' || attempt IN ${sql.in(keys)}`,
        { discard: true }
      )
      const rows = yield* database.again(
        Effect.andThen(
          renewed,
          sql<LedgerTables.Row>`SELECT r.billing_account_id AS account, COUNT(DISTINCT r.owner) AS processes
            FROM cogni_account_reservations r
            LEFT JOIN cogni_ledger_runs l ON l.run_id = r.run_id AND l.attempt = r.attempt
            WHERE r.is_settled = 0 AND r.has_ended = 0 AND r.lease_until > ${now} AND l.closed_at IS NULL
              AND r.billing_account_id IN (SELECT o.billing_account_id FROM cogni_account_reservations o
                WHERE o.owner = ${own} AND o.has_ended = 0)
            GROUP BY r.billing_account_id`
        )
      )
      return new Map(
        rows.map((row) => [String(LedgerTables.unescaped(row["account"])), Number(row["processes"])])
      )
    }),

    standing: (billingAccountId, now) => database.again(standing(LedgerTables.escaped(billingAccountId), now))
  })
})

/** Creates or migrates the table, and those of the ledger, which it is compared with. */
export const layer: Layer.Layer<AccountReservations, LedgerUnavailable | SchemaRefused, SqlClient> =
  Layer.effect(
    AccountReservations,
    Effect.gen(function* () {
      yield* LedgerTables.bring
      yield* DaySums.bring
      yield* AccountTables.bring
      return yield* make
    }).pipe(Effect.catchTag("SqlError", (error) => Effect.fail(unavailable(error))))
  )

const unavailable = (error: SqlError): LedgerUnavailable => new LedgerUnavailable(explain(error))

const database = DatabaseCall.make(unavailable, (words) => new LedgerUnavailable(words))
