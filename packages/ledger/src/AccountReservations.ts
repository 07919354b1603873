/**
 * Port to the reservations of accounts: what the open runs of an account may still spend, for all processes and hosts
 * that use one database.
 *
 * A reservation counts until the ledger has settled its run. So what was really spent takes its place at the same
 * moment, and nothing counts twice. Its lease is renewed by the process that has the run: if the host dies, the run
 * no longer occupies a place when the lease ends. Its amount counts until a recovery has settled the run, or at most to
 * the end of the month in which the lease ended, because it is not known yet what it spent.
 */
import { Context, Effect, Layer, Ref, Semaphore, Stream } from "effect"
import * as AccountDecision from "./AccountDecision.ts"
import * as AccountStanding from "./AccountStanding.ts"
import { entries as ledgerEntries, Ledger } from "./Ledger.ts"
import { type LedgerRefused, LedgerRunInUse, type LedgerUnavailable } from "./LedgerError.ts"
import type { LedgerEntry } from "./LedgerEntry.ts"
import { keyOf, type RunKey } from "./LedgerRun.ts"
import type * as Money from "./Money.ts"
import * as MoneySums from "./MoneySums.ts"
import type { Reservation, Release, Reserved } from "./AccountReservation.ts"

export class AccountReservations extends Context.Service<
  AccountReservations,
  {
    /**
     * Reserves an amount and a place for a run, or says which limit forbids it: atomically, whatever other processes do
     * meanwhile. Reserving again for the same run, by the same process, changes nothing and succeeds.
     */
    readonly reserve: (
      reservation: Reservation
    ) => Effect.Effect<Reserved, LedgerRunInUse | LedgerRefused | LedgerUnavailable>
    /**
     * Frees the place of a run of this process that has ended. Its amount counts until the ledger has settled the run.
     * If the ledger has never opened it, nothing counts any more.
     *
     * Waits for a reservation of the run that is being stored, and forbids one that arrives later. So a reservation
     * without an answer can be released at any time. Another process's reservation stays as it is.
     */
    readonly release: (release: Release) => Effect.Effect<void, LedgerUnavailable>
    /**
     * Extends the leases of these runs of a process, except of those that have ended. Returns for each of its accounts
     * the number of processes that have open runs of it.
     */
    readonly renew: (lease: {
      readonly owner: string
      /** The runs that the process still has. The lease of any other ends. */
      readonly runs: ReadonlyArray<RunKey>
      readonly now: string
      readonly leaseUntil: string
    }) => Effect.Effect<ReadonlyMap<string, number>, LedgerRefused | LedgerUnavailable>
    readonly standing: (
      billingAccountId: string,
      now: string
    ) => Effect.Effect<AccountStanding.AccountStanding, LedgerRefused | LedgerUnavailable>
  }
>()("@cogni/sandbox-ledger/AccountReservations") {}

interface Row extends Pick<Reservation, "billingAccountId" | "leaseUntil" | "owner" | "run"> {
  readonly reserved: Money.Pico
  readonly hasEnded: boolean
}

/** Creates reservations in memory, beside a ledger in memory: of this process alone. */
export const makeMemory = Effect.gen(function* () {
  const ledger = yield* Ledger
  const rows = yield* Ref.make<ReadonlyMap<string, Row>>(new Map())
  const oneAtATime = (yield* Semaphore.make(1)).withPermits(1)

  const inLedger = Effect.fnUntraced(function* ({ attempt, runId }: RunKey) {
    const found = (yield* ledger.attempts(runId)).find((run) => run.attempt === attempt)
    return found === undefined ? "none" : found.closedAt === undefined ? "open" : "settled"
  })

  const standing = Effect.fnUntraced(function* (billingAccountId: string, now: string) {
    const own = [...(yield* Ref.get(rows)).values()].filter(
      (row) => row.billingAccountId === billingAccountId
    )
    const held = yield* Effect.forEach(own, ({ run, ...row }) =>
      Effect.map(inLedger(run), (state) => ({ ...row, ...run, inLedger: state }) as const)
    )
    const { from, to } = AccountStanding.periodsOf(now).month
    const entries: ReadonlyArray<LedgerEntry> = yield* Stream.runCollect(
      ledgerEntries({ billingAccountId, from, to })
    ).pipe(Effect.provideService(Ledger, ledger))
    return AccountStanding.of(held, entries, now)
  })

  return AccountReservations.of({
    reserve: (reservation) =>
      oneAtATime(
        Effect.gen(function* () {
          const { amount, billingAccountId, leaseUntil, limit, now, owner, run } = reservation
          const found = (yield* Ref.get(rows)).get(keyOf(run))
          if (found !== undefined && (found.owner !== owner || found.hasEnded))
            return yield* new LedgerRunInUse({ runId: run.runId, attempt: run.attempt })
          const before = yield* standing(billingAccountId, now)
          if (found !== undefined) return { _tag: "Reserved", processes: before.processes } as const
          const refusal = AccountDecision.decide(limit, before, amount)
          if (refusal !== undefined) return { _tag: "Refused", refusal } as const
          const row = {
            run,
            billingAccountId,
            owner,
            leaseUntil,
            reserved: amount ?? MoneySums.zero,
            hasEnded: false
          }
          yield* Ref.update(rows, (all) => new Map(all).set(keyOf(run), row))
          const { processes } = yield* standing(billingAccountId, now)
          return { _tag: "Reserved", processes } as const
        })
      ),
    release: ({ billingAccountId, now, owner, run }) =>
      oneAtATime(
        Ref.update(rows, (all) => {
          const never = { run, billingAccountId, owner, leaseUntil: now, reserved: MoneySums.zero }
          const row = all.get(keyOf(run)) ?? never
          return row.owner === owner ? new Map(all).set(keyOf(run), { ...row, hasEnded: true }) : all
        })
      ),
    renew: ({ leaseUntil, now, owner, runs }) =>
      oneAtATime(
        Effect.gen(function* () {
          const named = new Set(runs.map(keyOf))
          yield* Ref.update(
            rows,
            (all) =>
              new Map(
                [...all].map(([key, row]) => [
                  key,
                  row.owner === owner && !row.hasEnded && named.has(key) ? { ...row, leaseUntil } : row
                ])
              )
          )
          const accounts = new Set(
            [...(yield* Ref.get(rows)).values()]
              .filter((row) => row.owner === owner && !row.hasEnded)
              .map(({ billingAccountId }) => billingAccountId)
          )
          const shares = yield* Effect.forEach(accounts, (account) =>
            Effect.map(standing(account, now), ({ processes }) => [account, processes] as const)
          )
          return new Map(shares)
        })
      ),
    standing
  })
})

export const layerMemory: Layer.Layer<AccountReservations, never, Ledger> = Layer.effect(
  AccountReservations,
  makeMemory
)
