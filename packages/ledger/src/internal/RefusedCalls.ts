/**
 * Finds the calls that the upstream refused before it read their IDs. Pure.
 *
 * A busy LiteLLM refuses a call while it checks the key, and writes a row with an ID of its own. Such a row failed, and
 * has no tokens and no cost. It is given to a call of the same key, near in time, that is known to have no other row.
 *
 * No figure is taken from it: a call that costs nothing still costs nothing, and one that is charged as reserved stays
 * so. A wrong pair therefore changes no bill. A row that cost something is never given to a call.
 */
import { type LedgerEntry, unknownUnitId } from "../LedgerEntry.ts"
import { reasons } from "../Reconciliation.ts"
import { rowTextCharactersMax, type SpendRow } from "../SpendRows.ts"
import { isEmptyFailure } from "./RowFigures.ts"

export interface Sorted {
  /** Calls, each with its row. */
  readonly given: ReadonlyArray<{ readonly entry: LedgerEntry; readonly row: SpendRow }>
  /** Rows that belong to no call. Those that may be of a call without a verdict are not among them yet. */
  readonly strange: ReadonlyArray<SpendRow>
}

/** Whether a row can be of a call that was refused early. */
export const isCandidate = (row: SpendRow): boolean =>
  isEmptyFailure(row) &&
  (row.callId === undefined || row.callId === row.rowId) &&
  row.metadata?.runId === undefined &&
  row.startedAt !== undefined &&
  row.rowId !== "" &&
  row.rowId.length <= idCharactersMax

/** IDs in an entry are shorter than those in a row. */
const idCharactersMax = Math.min(200, rowTextCharactersMax)

/**
 * Sorts rows of a key that no call of the ledger has. `entries` are the newest entries of that key. A call has at most
 * one row, and keeps it.
 */
export const sort = (
  entries: ReadonlyArray<LedgerEntry>,
  rows: ReadonlyArray<SpendRow>,
  clockSkewSecondsMax: number
): Sorted => {
  const taken = new Set(entries.map(({ upstreamCallId }) => upstreamCallId))
  const distinct = [...new Map(rows.map((row) => [row.rowId, row])).values()]
  const open = distinct.filter(({ rowId }) => !taken.has(rowId)).toSorted(byTime)
  const calls = entries
    .filter(
      ({ upstreamCallId, usageUnitId }) => upstreamCallId === undefined && usageUnitId !== unknownUnitId
    )
    .toSorted((a, b) => (a.at < b.at ? -1 : 1))
  // Calls that cost nothing come first: the upstream answered them, and refused.
  const candidates = [...calls.filter(isRefused), ...calls.filter(isMissing)]
  const undecided = calls.filter(({ state }) => state === "pending" || state === "estimated")
  const isNear = (row: SpendRow, entry: LedgerEntry) =>
    Math.abs(Date.parse(row.startedAt ?? "") - Date.parse(entry.at)) <= clockSkewSecondsMax * 1000
  const takeNear = (row: SpendRow, from: Array<LedgerEntry>) => {
    const index = from.findIndex((entry) => isNear(row, entry))
    return index < 0 ? undefined : from.splice(index, 1)[0]
  }
  const given: Array<Sorted["given"][number]> = []
  const strange: Array<SpendRow> = []
  for (const row of open) {
    const entry = isCandidate(row) ? takeNear(row, candidates) : undefined
    if (entry !== undefined) given.push({ entry, row })
    else if (!isCandidate(row) || takeNear(row, undecided) === undefined) strange.push(row)
  }
  return { given, strange }
}

const byTime = (a: SpendRow, b: SpendRow): number => {
  const [left, right] = [a, b].map(({ rowId, startedAt = "" }) => `${startedAt} ${rowId}`) as [string, string]
  return left < right ? -1 : 1
}

const isRefused = ({ priceSource, reason, state }: LedgerEntry): boolean =>
  state === "matched" && reason === reasons.noRowExpected && priceSource === "free"

const isMissing = ({ reason, state }: LedgerEntry): boolean => state === "missing" && reason === reasons.noRow

/** Returns the entry that records the row of a call. Its state and its charge stay. */
export const correction = ({ entry, row }: Sorted["given"][number], recordedAt: string): LedgerEntry => ({
  ...entry,
  upstreamCallId: row.rowId,
  revision: entry.revision + 1,
  recordedAt,
  ...(isRefused(entry)
    ? {
        reason: reasons.failedCall,
        detail: "the upstream refused this call before it read its ID, so the row has another ID"
      }
    : {
        detail:
          "no row has the ID of this call. A row with another ID, which failed and costs nothing, may be of this call. " +
          "The call may have been answered, so it stays charged as reserved"
      })
})
