/**
 * Spending and reservations of an account, computed from the entries of the ledger and the reservations of open runs.
 * Pure.
 *
 * The entries are the truth: what a run reserved counts until the ledger has settled the run, and then its entries do.
 * A call of unknown cost counts as reserved. If that is unknown too, its run counts at least what it reserved.
 */
import type { LedgerEntry } from "./LedgerEntry.ts"
import * as Money from "./Money.ts"
import * as MoneySums from "./MoneySums.ts"

/** A part of an account's standing: of a day or a month. */
export interface PeriodStanding {
  /** The settled calls that began in the period. */
  readonly spent: Money.Pico
  /** Reservations of runs that are not settled, and may have used them in the period. */
  readonly reserved: Money.Pico
}

export interface AccountStanding {
  /** Runs that are open. The lease of each is renewed. */
  readonly runs: number
  /** Processes that have such runs. */
  readonly processes: number
  readonly day: PeriodStanding
  readonly month: PeriodStanding
}

/** A span of time: from its first moment, up to the first moment after it. */
export interface Period {
  readonly from: string
  readonly to: string
}

/** The current day and month in UTC. */
export interface Periods {
  readonly day: Period
  readonly month: Period
}

export const periodsOf = (now: string): Periods => {
  const date = new Date(now)
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()]
  const at = (...parts: Parameters<typeof Date.UTC>) => new Date(Date.UTC(...parts)).toISOString()
  return {
    day: { from: at(year, month, day), to: at(year, month, day + 1) },
    month: { from: at(year, month), to: at(year, month + 1) }
  }
}

/** A reservation with what the ledger knows about its run. */
export interface HeldReservation {
  readonly runId: string
  readonly attempt: number
  readonly owner: string
  readonly reserved: Money.Pico
  /** Until then, the run counts as open unless its process renews it. */
  readonly leaseUntil: string
  /** The run has ended. */
  readonly hasEnded: boolean
  /** `none`: the run was never opened, so it has spent nothing. `settled`: its entries are complete. */
  readonly inLedger: "none" | "open" | "settled"
}

/** Whether a run occupies one of its account's places. */
export const isLive = ({ hasEnded, inLedger, leaseUntil }: HeldReservation, now: string): boolean =>
  inLedger !== "settled" && !hasEnded && leaseUntil > now

/** Whether the reservation of a run counts in a period that began at `from`. */
const isHeld = (reservation: HeldReservation, from: string, now: string): boolean =>
  reservation.inLedger === "open"
    ? // A run whose host died may have spent it until its lease ended.
      reservation.leaseUntil >= from
    : isLive(reservation, now)

type Entry = Pick<LedgerEntry, "at" | "attempt" | "costUsd" | "reservedUsd" | "runId">

/** Computes a standing from all reservations of an account, and the newest entries of its calls in this month. */
export const of = (
  reservations: ReadonlyArray<HeldReservation>,
  entries: ReadonlyArray<Entry>,
  now: string
): AccountStanding => {
  const periods = periodsOf(now)
  const live = reservations.filter((reservation) => isLive(reservation, now))
  const keyOf = ({ attempt, runId }: Pick<HeldReservation, "attempt" | "runId">) => `${runId}/${attempt}`
  const byRun = new Map(reservations.map((reservation) => [keyOf(reservation), reservation.reserved]))
  const standing = ({ from, to }: Period): PeriodStanding => ({
    spent: sum(
      [...Map.groupBy(entries, keyOf)].map(([run, some]) =>
        chargedTo(
          some.filter(({ at }) => at >= from && at < to),
          byRun.get(run)
        )
      )
    ),
    reserved: sum(reservations.filter((each) => isHeld(each, from, now)).map(({ reserved }) => reserved))
  })
  return {
    runs: live.length,
    processes: new Set(live.map(({ owner }) => owner)).size,
    day: standing(periods.day),
    month: standing(periods.month)
  }
}

/** Returns the amount that the calls of a run count. */
const chargedTo = (entries: ReadonlyArray<Entry>, reserved: Money.Pico | undefined): Money.Pico => {
  const amounts = entries.map(({ costUsd, reservedUsd }) => costUsd ?? reservedUsd)
  const known = sum(amounts.flatMap((usd) => (usd === undefined ? [] : [Money.fromUsd(usd)])))
  return amounts.includes(undefined) && reserved !== undefined && reserved > known ? reserved : known
}

const sum = (amounts: ReadonlyArray<Money.Pico>): Money.Pico => amounts.reduce(MoneySums.add, MoneySums.zero)
