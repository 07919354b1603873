/**
 * Runs, entries and reservations that the contracts of a ledger use.
 */
import type { AccountLimit } from "../AccountLimits.ts"
import type { Reservation } from "../AccountReservation.ts"
import * as Money from "../Money.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { LedgerEntry } from "../LedgerEntry.ts"
import type { LedgerRun } from "../LedgerRun.ts"

/** A run for tests. */
export const runOf = (runId: string, changes: Partial<LedgerRun> = {}): LedgerRun => ({
  runId: RunId.make(runId),
  attempt: 0,
  billingAccountId: "account-1",
  upstream: "litellm",
  model: "gpt-5",
  host: "here",
  owner: "boot/1/1",
  openedAt: "2026-01-31T10:00:00.000Z",
  expiresAt: "2026-01-31T12:00:00.000Z",
  directory: "/state/runs/one",
  ...changes
})

/** An entry for tests. */
export const entryOf = (
  runId: string,
  usageUnitId: string,
  changes: Partial<LedgerEntry> = {}
): LedgerEntry => ({
  runId: RunId.make(runId),
  attempt: 0,
  usageUnitId,
  revision: 0,
  at: "2026-01-31T10:00:01.000Z",
  recordedAt: "2026-01-31T10:05:00.000Z",
  billingAccountId: "account-1",
  upstream: "litellm",
  model: "gpt-5",
  inputTokens: 100,
  outputTokens: 10,
  costUsd: 0.000_125,
  currency: "USD",
  priceSource: "upstream",
  streamed: true,
  outcome: "completed",
  state: "pending",
  ...changes
})

/** A moment after the calls of `LedgerContract.entryOf`, on the same day. */
export const now = "2026-01-31T11:00:00.000Z"

export const leaseUntil = "2026-01-31T11:05:00.000Z"

/** A reservation for tests. */
export const reservationOf = (
  runId: string,
  usd: number | undefined,
  limit: AccountLimit,
  changes: Partial<Reservation> = {}
): Reservation => ({
  run: { runId: RunId.make(runId), attempt: 0 },
  billingAccountId: "account-1",
  owner: "boot/1/1",
  limit,
  amount: usd === undefined ? undefined : Money.fromUsd(usd),
  now,
  leaseUntil,
  ...changes
})
