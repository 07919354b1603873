/**
 * Settles runs in the ledger from their audits: those of this process when they end, and those of dead processes.
 *
 * Any number of processes may recover at the same time, and again after a crash in between. They read the same audit,
 * make the same entries, and the ledger stores each once.
 */
import type { CallsOf } from "@cogni/sandbox-core/AuditedCall"
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import { Array, Clock, Data, Effect } from "effect"
import { Ledger } from "./Ledger.ts"
import * as LedgerEntries from "./LedgerEntries.ts"
import type { LedgerRefused, LedgerRunUnknown, LedgerUnavailable } from "./LedgerError.ts"
import { type LedgerEntry } from "./LedgerEntry.ts"
import { reasons } from "./EntryFields.ts"
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

/** The calls of a run, as its proxy reported them. */
export type ReportedTraffic = Pick<LlmTraffic, "calls" | "callsTotal" | "unreadableRows" | "usage">

/** A run of this process that has ended, with what its proxy reported, if it did. */
export interface EndedRun {
  readonly run: LedgerRun
  readonly traffic?: ReportedTraffic | undefined
}

export type SettleError = LedgerUnavailable | LedgerRefused | LedgerRunUnknown | LedgerAuditUnreadable

/** Entries that are stored at once. An agent decides how many calls its run has, and a transaction has a time limit. */
const batchMax = 10_000

/**
 * Settles a run with what its audit says, and returns its number of calls. `traffic` is used only for a run whose proxy
 * writes no audit. Repeating it changes nothing, except that the ends of calls that were open before are added.
 */
export const settle = Effect.fn("LedgerRecovery.settle")(function* (
  run: LedgerRun,
  callsOf: CallsOf,
  traffic?: ReportedTraffic
): Effect.fn.Return<number, SettleError, Ledger> {
  const ledger = yield* Ledger
  const now = new Date(yield* Clock.currentTimeMillis).toISOString()
  const { entries, runKeyHash } = yield* recordOf(run, callsOf, { traffic, now })
  // The audit of a run that was settled before may be deleted: nothing is unknown then.
  if (entries.some(({ reason }) => reason === reasons.auditMissing) && (yield* isSettled(run))) return 0
  const batches = Array.chunksOf(entries, batchMax)
  // The run stays open until all its calls are stored, so that a recovery finds the rest.
  if (batches.length > 1) yield* Effect.forEach(batches, ledger.append, { discard: true })
  for (const batch of batches.length === 0 ? [[]] : batches)
    yield* ledger.settle({ run, entries: batch, closedAt: now, runKeyHash })
  return entries.length
})

const isSettled = Effect.fnUntraced(function* (run: LedgerRun) {
  const ledger = yield* Ledger
  const attempts = yield* ledger.attempts(run.runId)
  return attempts.some(({ attempt, closedAt }) => attempt === run.attempt && closedAt !== undefined)
})

/** Entries of a run, and its own key at the upstream. */
interface RunRecord {
  readonly entries: ReadonlyArray<LedgerEntry>
  readonly runKeyHash?: string | undefined
}

const recordOf = (
  run: LedgerRun,
  callsOf: CallsOf,
  { now, traffic }: { readonly traffic: ReportedTraffic | undefined; readonly now: string }
): Effect.Effect<RunRecord, LedgerAuditUnreadable> => {
  const { directory, runId } = run
  if (directory === undefined)
    return Effect.succeed({
      entries:
        traffic === undefined ? LedgerEntries.ofNothing(run, now) : LedgerEntries.ofTraffic(run, traffic, now)
    })
  return Effect.mapBoth(callsOf({ runId, directory }), {
    onFailure: ({ message }) => new LedgerAuditUnreadable({ runId, detail: message }),
    // The audit begins with the socket: without one, the run had no model to call.
    onSuccess: (calls) =>
      calls === undefined
        ? { entries: [] }
        : { entries: LedgerEntries.ofAudit(run, calls, now), runKeyHash: calls.runKeyHash }
  })
}

export interface RecoveryOptions {
  /** Name of this machine, as in the runs that it opened. */
  readonly host: string
  /** Reads the audits of runs: `AuditCalls.reader` of `@cogni/sandbox-proxy`. */
  readonly callsOf: CallsOf
  /** Returns whether the process of a run is dead, so that the run is over. */
  readonly isOver: (run: LedgerRun) => boolean
  /** Returns runs of this process that have ended and could not be settled before. */
  readonly ended?: (() => ReadonlyArray<EndedRun>) | undefined
  /** Maximum number of runs (default: all). The oldest come first, after those of this process. */
  readonly runsMax?: number | undefined
}

/**
 * Settles the open runs of this machine that are over, and returns them. A run that cannot be settled is logged and
 * stays for the next recovery.
 */
export const recover = Effect.fn("LedgerRecovery.recover")(function* ({
  callsOf,
  ended,
  host,
  isOver,
  runsMax
}: RecoveryOptions): Effect.fn.Return<ReadonlyArray<LedgerRun>, LedgerUnavailable, Ledger> {
  const ledger = yield* Ledger
  const own = ended?.() ?? []
  const names = new Set(own.map(({ run }) => keyOf(run)))
  const orphaned = (yield* ledger.openRuns(host)).filter((run) => !names.has(keyOf(run)) && isOver(run))
  const over: ReadonlyArray<EndedRun> = [...own, ...orphaned.map((run) => ({ run }))].slice(0, runsMax)
  const settled = yield* Effect.filter(over, ({ run, traffic }) =>
    settle(run, callsOf, traffic).pipe(
      Effect.as(true),
      Effect.catch((error) => Effect.as(Effect.logWarning(error.message), false))
    )
  )
  return settled.map(({ run }) => run)
})
