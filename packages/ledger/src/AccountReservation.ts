/**
 * A reservation of what a run may spend, and the answer to it.
 */
import type * as AccountLimits from "./AccountLimits.ts"
import type * as AccountDecision from "./AccountDecision.ts"
import { type RunKey } from "./LedgerRun.ts"
import type * as Money from "./Money.ts"

export interface Reservation {
  readonly run: RunKey
  readonly billingAccountId: string
  /** Name of the process, unique among all hosts. */
  readonly owner: string
  readonly limit: AccountLimits.AccountLimit
  /** Amount that the run may spend. Absent for free models: credit does not matter. */
  readonly amount: Money.Pico | undefined
  readonly now: string
  readonly leaseUntil: string
}

/** Names a reservation to release: its run, its account, and the process that made it. */
export type Release = Pick<Reservation, "billingAccountId" | "now" | "owner" | "run">

/** Answer to a reservation. */
export type Reserved =
  /** With the number of processes that have open runs of the account, this one included. */
  | { readonly _tag: "Reserved"; readonly processes: number }
  | { readonly _tag: "Refused"; readonly refusal: AccountDecision.AccountRefusal }
