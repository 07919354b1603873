/** A ledger in memory with one settled run, rows in memory, and a reconciler between them. */
import { Ledger, type LedgerEntry, Reconciler, ReconciliationLimits, SpendRows } from "@cogni/sandbox-ledger"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { entryOf, runOf } from "../src/testing/LedgerSamples.ts"

export const key = "a".repeat(64)
export const run = "run-00000001"
export const nowMs = Date.parse("2026-01-31T10:06:00.000Z")
export const limits = ReconciliationLimits.limitsFor()

export const entry = (unit: string, changes: Partial<LedgerEntry.LedgerEntry> = {}) =>
  entryOf(run, unit, { runKeyHash: key, ...changes })

export const row = (callId: string, changes: Partial<SpendRows.SpendRow> = {}): SpendRows.SpendRow => ({
  rowId: callId,
  callId,
  runKeyHash: key,
  endUser: "account-1",
  inputTokens: 100,
  outputTokens: 10,
  costUsd: 0.000_125,
  startedAt: "2026-01-31T10:00:01.000Z",
  status: "success",
  ...changes
})

export const unavailable = new SpendRows.SpendRowsUnavailable({
  problem: "unreachable",
  detail: "it does not answer",
  remedy: "Start it"
})

export const setUp = Effect.fnUntraced(function* (
  entries: ReadonlyArray<LedgerEntry.LedgerEntry>,
  options: {
    readonly abilities?: SpendRows.SpendAbilities
    readonly limits?: Partial<ReconciliationLimits.Limits>
    readonly open?: boolean
    readonly priceOf?: SpendRows.PriceOf
    readonly runKeyHash?: string
    readonly fault?: (operation: keyof Ledger.Ledger["Service"]) => Ledger.MemoryFault
  } = {}
) {
  yield* TestClock.setTime(nowMs)
  const ledger = yield* Ledger.makeMemory({ fault: options.fault })
  const spend = yield* SpendRows.makeMemory("litellm", options.abilities)
  const settled = runOf(run)
  yield* ledger.open(settled)
  if (options.open === true) yield* ledger.append(entries)
  else
    yield* ledger.settle({
      run: settled,
      entries,
      closedAt: "2026-01-31T10:05:00.000Z",
      runKeyHash: options.runKeyHash
    })
  /** Numbers of entries that the passes read. */
  const listed: Array<number> = []
  const { reconcile } = yield* Reconciler.make({
    limits: { ...limits, ...options.limits },
    priceOf: options.priceOf
  }).pipe(
    // Other fibers go on between reading and writing, so that two reconcilers overlap.
    Effect.provideService(Ledger.Ledger, {
      ...ledger,
      list: (filter, page) =>
        Effect.tap(ledger.list(filter, page), ({ entries: found }) => {
          listed.push(found.length)
          return Effect.yieldNow
        })
    }),
    Effect.provideService(SpendRows.SpendRows, spend.service)
  )
  const newest = Effect.map(ledger.list({}), ({ entries: found }) =>
    found.map(({ costUsd, reason, revision, state, usageUnitId }) => ({
      usageUnitId,
      revision,
      state,
      reason,
      costUsd
    }))
  )
  return { ledger, listed, newest, reconcile, spend }
})
