/**
 * Settles runs in the ledger from their audits: those of this process when they end, and those of dead processes.
 *
 * Any number of processes may recover at the same time, and again after a crash in between. They read the same audit,
 * make the same entries, and the ledger stores each once.
 */
import type { CallsOf } from "@cogni/sandbox-core/AuditedCall"
import type { LlmTraffic } from "@cogni/sandbox-core/RunResult"
import { Clock, Data, Effect } from "effect"
import { Ledger } from "./Ledger.ts"
import * as LedgerEntries from "./LedgerEntries.ts"
import type { LedgerRefused, LedgerRunUnknown, LedgerUnavailable } from "./LedgerError.ts"
import type { LedgerEntry } from "./LedgerEntry.ts"
import { keyOf, type LedgerRun } from "./LedgerRun.ts"

/** The audit of a run exists but cannot be read, so the run stays open. */
export class LedgerAuditUnreadable extends Data.TaggedError("LedgerAuditUnreadable")<{
  readonly runId: string
  readonly detail: string
}> {
  readonly isRetryable = true
  override get message(): string {
    return `run ${this.runId} is not settled in the ledger: ${this.detail}. Make the audit readable; the next recovery tries again`
  }
}

export type SettleError = LedgerUnavailable | LedgerRefused | LedgerRunUnknown | LedgerAuditUnreadable

/**
 * Settles a run with what its audit says, and returns its number of calls. `traffic` is used only for a run whose proxy
 * writes no audit. Repeating it changes nothing. Only the end of a call that was open before is added, as a correction.
 */
export const settle = Effect.fn("LedgerRecovery.settle")(function* (
  run: LedgerRun,
  callsOf: CallsOf,
  traffic?: LlmTraffic
): Effect.fn.Return<number, SettleError, Ledger> {
  const ledger = yield* Ledger
  const now = new Date(yield* Clock.currentTimeMillis).toISOString()
  const entries = yield* entriesOf(run, callsOf, { traffic, now })
  const { existing } = yield* ledger.settle({ run, entries, closedAt: now })
  if (existing.length > 0) {
    const made = LedgerEntries.corrections(yield* newestOf(run, existing), entries)
    if (made.length > 0) yield* ledger.append(made)
  }
  return entries.length
})

const entriesOf = (
  run: LedgerRun,
  callsOf: CallsOf,
  { now, traffic }: { readonly traffic: LlmTraffic | undefined; readonly now: string }
): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerAuditUnreadable> => {
  const { directory, runId } = run
  if (directory === undefined)
    return Effect.succeed(
      traffic === undefined ? LedgerEntries.ofNothing(run, now) : LedgerEntries.ofTraffic(run, traffic, now)
    )
  return Effect.mapBoth(callsOf({ runId, directory }), {
    onFailure: ({ message }) => new LedgerAuditUnreadable({ runId, detail: message }),
    // The audit begins with the socket: without one, the run had no model to call.
    onSuccess: (calls) => (calls === undefined ? [] : LedgerEntries.ofAudit(run, calls, now))
  })
}

/** Returns the newest revisions of calls that the ledger had already. */
const newestOf = Effect.fnUntraced(function* (
  { attempt, runId }: LedgerRun,
  existing: ReadonlyArray<LedgerEntry>
) {
  const ledger = yield* Ledger
  const units = new Set(existing.map(({ usageUnitId }) => usageUnitId))
  const found: Array<LedgerEntry> = []
  let after: string | undefined
  do {
    const page = yield* ledger.list({ runId }, after === undefined ? {} : { after })
    found.push(...page.entries.filter((entry) => entry.attempt === attempt && units.has(entry.usageUnitId)))
    after = page.next
  } while (after !== undefined)
  return found
})

export interface RecoveryOptions {
  /** Name of this machine, as in the runs that it opened. */
  readonly host: string
  /** Reads the audits of runs: `AuditCalls.reader` of `@cogni/sandbox-proxy`. */
  readonly callsOf: CallsOf
  /** Returns whether a run is over: its process is dead, or this process has ended it. */
  readonly isOver: (run: LedgerRun) => boolean
}

/**
 * Settles all open runs of this machine that are over, and returns their keys. A run that cannot be settled is logged
 * and stays open for the next recovery.
 */
export const recover = Effect.fn("LedgerRecovery.recover")(function* ({
  callsOf,
  host,
  isOver
}: RecoveryOptions): Effect.fn.Return<ReadonlyArray<string>, LedgerUnavailable, Ledger> {
  const ledger = yield* Ledger
  const over = (yield* ledger.openRuns(host)).filter(isOver)
  const settled: Array<string> = []
  for (const run of over) {
    const isSettled = yield* settle(run, callsOf).pipe(
      Effect.as(true),
      Effect.catch((error) => Effect.as(Effect.logWarning(error.message), false))
    )
    if (isSettled) settled.push(keyOf(run))
  }
  return settled
})
