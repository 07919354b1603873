/**
 * Finds rows of a run's key that belong to no call of the run.
 *
 * Only runs that are settled are judged, because an open run records its calls at its end. Such a row gets an entry
 * without a cost: it is shown and never charged, because a later recovery of the run may still find its call.
 */
import * as Effect from "effect/Effect"
import type { Ledger } from "../Ledger.ts"
import type { LedgerRefused, LedgerUnavailable } from "../LedgerError.ts"
import type { LedgerEntry } from "../LedgerEntry.ts"
import { unitsMax } from "../LedgerQuery.ts"
import type { SettledRun } from "../LedgerRun.ts"
import { dollars, reasons } from "../Reconciliation.ts"
import type { SpendQuery, SpendRow } from "../SpendRows.ts"
import * as RefusedCalls from "./RefusedCalls.ts"

const prefix = "row:"

/** Returns whether a unit is a row without a call. */
export const isUnit = (usageUnitId: string): boolean => usageUnitId.startsWith(prefix)

const unitCharactersMax = 180

/**
 * Maximum number of rows of a key that one pass reports. The first ones show that there are others, and a hostile
 * upstream could invent any number.
 */
const strangersMax = 1000

/** Maximum pages of a key's entries that are read to find calls that were refused early. */
const pagesMax = 50

const unitOf = ({ rowId }: SpendRow): string =>
  `${prefix}${encodeURIComponent(rowId.toWellFormed()).slice(0, unitCharactersMax)}`

interface Asked {
  readonly query: SpendQuery
  readonly rows: ReadonlyArray<SpendRow>
}

export interface Found {
  /** An entry for each row that belongs to no call. */
  readonly unknown: ReadonlyArray<LedgerEntry>
  /** Corrections of calls that the upstream refused before it read their IDs. No state and no charge differs. */
  readonly refused: ReadonlyArray<LedgerEntry>
}

/** Finds the rows of a run's key whose call neither `known` nor the ledger has. */
export const find = Effect.fnUntraced(function* (
  ledger: Ledger["Service"],
  asked: ReadonlyArray<Asked>,
  { clockSkewSecondsMax, known, now }: Known
): Effect.fn.Return<Found, LedgerRefused | LedgerUnavailable> {
  const unknown: Array<LedgerEntry> = []
  const refused: Array<LedgerEntry> = []
  for (const { query, rows } of asked) {
    if (query._tag !== "RunKey") continue
    const others = rows.filter((row) => !known.has(idOf(row)))
    if (others.length === 0) continue
    const run = yield* settledRun(ledger, query.runKeyHash)
    if (run === undefined) continue
    // Read after the run was seen as settled: all its calls are in the ledger now.
    const units = yield* unitsOf(ledger, run, others)
    const strangers = others.filter((row) => !units.has(idOf(row)))
    const isOfKey = strangers.some(RefusedCalls.isCandidate)
    const entries = isOfKey ? yield* entriesOf(ledger, query.runKeyHash) : []
    const { given, strange } = RefusedCalls.sort(entries, strangers, clockSkewSecondsMax)
    const before = new Map(entries.map((entry) => [entry.usageUnitId, entry]))
    for (const pair of given) {
      refused.push(RefusedCalls.correction(pair, now))
      const reported = before.get(unitOf(pair.row))
      if (reported?.state === "drifted") refused.push(explained(reported, now))
    }
    unknown.push(...strange.slice(0, strangersMax).map((row) => entryOf(run, query.runKeyHash, row, now)))
  }
  return { refused, unknown }
})

interface Known {
  /** IDs of calls that the ledger has. */
  readonly known: ReadonlySet<string>
  readonly clockSkewSecondsMax: number
  readonly now: string
}

/** The newest entries of a key, or none if there are too many: then no call is found for a row. */
const entriesOf = Effect.fnUntraced(function* (ledger: Ledger["Service"], runKeyHash: string) {
  const found: Array<LedgerEntry> = []
  let after: string | undefined
  for (let page = 0; page < pagesMax; page += 1) {
    const { entries, next } = yield* ledger.list({ runKeyHash }, after === undefined ? {} : { after })
    found.push(...entries)
    if (next === undefined) return found
    after = next
  }
  return []
})

/** Corrects the report of a row whose call was found. */
const explained = (reported: LedgerEntry, now: string): LedgerEntry => ({
  ...reported,
  revision: reported.revision + 1,
  recordedAt: now,
  state: "matched",
  reason: reasons.failedCall,
  detail: "this row is of a call that the upstream refused before it read its ID"
})

const idOf = ({ callId, rowId }: SpendRow): string => callId ?? rowId

/** The run that had a key, if it is settled. */
const settledRun = Effect.fnUntraced(function* (ledger: Ledger["Service"], runKeyHash: string) {
  const { entries } = yield* ledger.list({ runKeyHash }, { limit: 1 })
  const [entry] = entries
  if (entry === undefined) return undefined
  const attempts = yield* ledger.attempts(entry.runId)
  return attempts.find(({ attempt, closedAt }) => attempt === entry.attempt && closedAt !== undefined)
})

/** Those calls of a run that rows name. */
const unitsOf = Effect.fnUntraced(function* (
  ledger: Ledger["Service"],
  { runId }: SettledRun,
  rows: ReadonlyArray<SpendRow>
) {
  const units = new Set<string>()
  const ids = [...new Set(rows.map(idOf).filter((id) => id !== "" && id.length <= unitCharactersMax))]
  for (let start = 0; start < ids.length; start += unitsMax) {
    const { entries } = yield* ledger.list({ runId, usageUnitIds: ids.slice(start, start + unitsMax) })
    for (const { usageUnitId } of entries) units.add(usageUnitId)
  }
  return units
})

/** Returns the entry that shows a row. */
const entryOf = (run: SettledRun, runKeyHash: string, row: SpendRow, now: string): LedgerEntry => ({
  runId: run.runId,
  attempt: run.attempt,
  usageUnitId: unitOf(row),
  revision: 0,
  // The upstream chose this time, and a later one would count in days to come.
  at: row.startedAt === undefined || Date.parse(row.startedAt) > Date.parse(now) ? now : row.startedAt,
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
  priceSource: "none",
  // Without a cost and a reservation, the account would be charged what its run reserved.
  reservedUsd: 0,
  streamed: false,
  state: "drifted",
  reason: reasons.unknownCall,
  detail:
    row.costUsd === undefined
      ? "a row of this run's key belongs to no call of the run. It is not charged"
      : `a row of this run's key belongs to no call of the run. It costs ${dollars(row.costUsd)}, which is not charged`
})
