/**
 * Finds rows of a run's key that belong to no call of the run, and makes an entry for each.
 *
 * Only runs that are settled are judged, because an open run records its calls at its end. Such a row is shown and
 * never charged, because a later recovery of the run may still find its call.
 */
import * as Effect from "effect/Effect"
import type { Ledger } from "../Ledger.ts"
import type { LedgerRefused, LedgerUnavailable } from "../LedgerError.ts"
import type { LedgerEntry } from "../LedgerEntry.ts"
import { pageEntriesMax, unitsMax } from "../LedgerQuery.ts"
import type { SettledRun } from "../LedgerRun.ts"
import { dollars, reasons } from "../Reconciliation.ts"
import type { SpendRow } from "../SpendRows.ts"
import * as RunKeyRows from "./RunKeyRows.ts"

/** Maximum entries of a key that are read to explain rows. A larger run has no judgement of rows that cost nothing. */
const entriesMax = 50_000

interface KeyRows {
  readonly run: SettledRun
  readonly runKeyHash: string
  /** All rows of the key. */
  readonly rows: ReadonlyArray<SpendRow>
}

export interface Found {
  /** Entries of rows that the ledger does not have yet. */
  readonly entries: ReadonlyArray<LedgerEntry>
  /** Number of rows that belong to no call, whether found now or before. */
  readonly strange: number
  /** Number of rows that calls without a verdict may explain. */
  readonly waiting: number
  /** There are more rows than were made into entries. */
  readonly isCut: boolean
}

const nothing: Found = { entries: [], strange: 0, waiting: 0, isCut: false }

/** The run that had a key, if it has entries. */
export const runOf = Effect.fnUntraced(function* (ledger: Ledger["Service"], runKeyHash: string) {
  const { entries } = yield* ledger.list({ runKeyHash }, { limit: 1 })
  const [entry] = entries
  if (entry === undefined) return undefined
  const attempts = yield* ledger.attempts(entry.runId)
  return attempts.find(({ attempt }) => attempt === entry.attempt)
})

/** Finds the rows of a key whose calls neither `known` nor the ledger has. */
export const find = Effect.fnUntraced(function* (
  ledger: Ledger["Service"],
  { rows, run, runKeyHash }: KeyRows,
  { known, now }: { readonly known: ReadonlySet<string>; readonly now: string }
): Effect.fn.Return<Found, LedgerRefused | LedgerUnavailable> {
  const isKnown = (row: SpendRow) => {
    const id = RunKeyRows.idOf(row)
    return RunKeyRows.isCall(id) && known.has(id)
  }
  const others = rows.filter((row) => !isKnown(row))
  // An open run records its calls at its end. Read after that was seen, the ledger has them all.
  if (others.length === 0 || run.closedAt === undefined) return nothing
  const calls = yield* statesOf(
    ledger,
    run,
    others
      .map(RunKeyRows.idOf)
      .filter((id) => RunKeyRows.isCall(id) && id.length <= RunKeyRows.unitCharactersMax)
  )
  const strangers = others.filter((row) => !calls.has(RunKeyRows.idOf(row)))
  const reported = yield* statesOf(ledger, run, strangers.map(RunKeyRows.unitOf))
  const unreported = strangers.filter((row) => !reported.has(RunKeyRows.unitOf(row)))
  const before = [...reported.values()].filter((state) => state === "drifted").length
  if (unreported.length === 0) return { ...nothing, strange: before }
  const entries = unreported.some(RunKeyRows.isRefusal) ? yield* entriesOf(ledger, runKeyHash) : []
  const judged = RunKeyRows.judge(
    entries === undefined ? unreported.filter((row) => !RunKeyRows.isRefusal(row)) : unreported,
    RunKeyRows.count(entries ?? [])
  )
  return {
    entries: [
      ...judged.strange.map((row) => ({ ...bareEntryOf(run, runKeyHash, row, now), ...strangeFacts(row) })),
      ...judged.explained
        .slice(0, RunKeyRows.reportedMax)
        .map((row) => ({ ...bareEntryOf(run, runKeyHash, row, now), ...refusedFacts }))
    ],
    strange: before + judged.strange.length,
    waiting: judged.waiting,
    isCut: judged.isCut || judged.explained.length > RunKeyRows.reportedMax
  }
})

/** The states of those units of a run that the ledger has. */
const statesOf = Effect.fnUntraced(function* (
  ledger: Ledger["Service"],
  { runId }: SettledRun,
  units: ReadonlyArray<string>
) {
  const states = new Map<string, LedgerEntry["state"]>()
  const distinct = [...new Set(units)]
  for (let start = 0; start < distinct.length; start += unitsMax) {
    const { entries } = yield* ledger.list({ runId, usageUnitIds: distinct.slice(start, start + unitsMax) })
    for (const { state, usageUnitId } of entries) states.set(usageUnitId, state)
  }
  return states
})

/** The newest entries of a key, or nothing if there are too many. */
const entriesOf = Effect.fnUntraced(function* (ledger: Ledger["Service"], runKeyHash: string) {
  const found: Array<LedgerEntry> = []
  let after: string | undefined
  for (let page = 0; page * pageEntriesMax < entriesMax; page += 1) {
    const { entries, next } = yield* ledger.list({ runKeyHash }, after === undefined ? {} : { after })
    found.push(...entries)
    if (next === undefined) return found
    after = next
  }
  return undefined
})

type Facts = Pick<LedgerEntry, "detail" | "priceSource" | "reason" | "state"> &
  Partial<Pick<LedgerEntry, "costUsd">>

const strangeFacts = ({ costUsd }: SpendRow): Facts => ({
  priceSource: "none",
  state: "drifted",
  reason: reasons.unknownCall,
  detail:
    costUsd === undefined
      ? "a row of this run's key belongs to no call of the run. It is not charged"
      : `a row of this run's key belongs to no call of the run. It costs ${dollars(costUsd)}, which is not charged`
})

const refusedFacts: Facts = {
  priceSource: "row",
  costUsd: 0,
  state: "matched",
  reason: reasons.failedCall,
  detail: "this row failed and costs nothing: the upstream refused a call of this run before it read its ID"
}

/** Entries have years of four digits. */
const firstMs = Date.parse("0001-01-01T00:00:00.000Z")

const startOf = ({ startedAt }: SpendRow, now: string): string => {
  const ms = Date.parse(startedAt ?? now)
  return ms >= firstMs && ms <= Date.parse(now) ? new Date(ms).toISOString() : now
}

/** Returns the entry of a key that has more rows than a check reads. */
export const beyondEntry = (
  run: SettledRun,
  runKeyHash: string,
  rowsMax: number,
  now: string
): LedgerEntry => ({
  ...bareEntryOf(run, runKeyHash, { rowId: "beyond", status: "unknown" }, now),
  priceSource: "none",
  state: "drifted",
  reason: reasons.unknownCall,
  detail: `this run's key has more than ${rowsMax} rows. Those beyond were not compared with its calls`
})

const bareEntryOf = (
  run: SettledRun,
  runKeyHash: string,
  row: SpendRow,
  now: string
): Omit<LedgerEntry, "priceSource" | "state"> => ({
  runId: run.runId,
  attempt: run.attempt,
  usageUnitId: RunKeyRows.unitOf(row),
  revision: 0,
  // The upstream chose this time, and a later one would count in days to come.
  at: startOf(row, now),
  recordedAt: now,
  billingAccountId: run.billingAccountId,
  ...(run.userId === undefined ? {} : { userId: run.userId }),
  ...(run.graphId === undefined ? {} : { graphId: run.graphId }),
  ...(run.agentId === undefined ? {} : { agentId: run.agentId }),
  ...(run.virtualKeyId === undefined ? {} : { virtualKeyId: run.virtualKeyId }),
  runKeyHash,
  upstream: run.upstream,
  model: run.model,
  currency: "USD",
  // Without a cost and a reservation, the account would be charged what its run reserved.
  reservedUsd: 0,
  streamed: false
})
