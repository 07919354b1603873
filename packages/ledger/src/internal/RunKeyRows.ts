/**
 * Judges the rows of a run's key that belong to no call which the ledger has. Pure.
 *
 * A row that costs something, or whose call did not fail, shows that another user has the key. A row that failed and
 * costs nothing may be of a call of the run: a busy LiteLLM refuses a call while it checks the key, and writes a row
 * with an ID of its own. Such a row has no sign of its call. So as many of them are explained as there are calls that
 * went upstream, were refused or not answered, and have no row. The others are reported.
 */
import { type LedgerEntry } from "../LedgerEntry.ts"
import { unknownUnitId } from "../EntryFields.ts"
import { reasons } from "../Reconciliation.ts"
import type { SpendRow } from "../SpendRows.ts"
import { isEmptyFailure } from "./RowFigures.ts"

const prefix = "row:"

/** Returns whether a unit is a row without a call. */
export const isUnit = (usageUnitId: string): boolean => usageUnitId.startsWith(prefix)

/** Whether a unit is one call, not calls whose number is unknown, or a row without a call. */
export const isCall = (usageUnitId: string): boolean =>
  usageUnitId !== "" && usageUnitId !== unknownUnitId && !isUnit(usageUnitId)

/** Maximum characters of a unit that the ledger may have. */
export const unitCharactersMax = 180

export const unitOf = ({ rowId }: SpendRow): string =>
  `${prefix}${encodeURIComponent(rowId.toWellFormed()).slice(0, unitCharactersMax)}`

/** ID of the call that a row names. */
export const idOf = ({ callId, rowId }: SpendRow): string => callId ?? rowId

/** Maximum number of rows of a key that one pass reports: a hostile upstream could invent any number. */
export const reportedMax = 1000

/** Calls of a key, counted. */
export interface Calls {
  /** Calls that went upstream, were refused or not answered, and have no row. */
  readonly withoutRow: number
  /** Rows that were explained before. */
  readonly explained: number
  /** Calls without a verdict. */
  readonly open: number
}

export const count = (entries: ReadonlyArray<LedgerEntry>): Calls => ({
  withoutRow: entries.filter(
    ({ reason, state, usageUnitId }) =>
      isCall(usageUnitId) &&
      ((state === "matched" && reason === reasons.refusedCall) ||
        (state === "missing" && reason === reasons.noRow))
  ).length,
  explained: entries.filter(({ state, usageUnitId }) => isUnit(usageUnitId) && state === "matched").length,
  open: entries.filter(
    ({ state, usageUnitId }) => isCall(usageUnitId) && (state === "pending" || state === "estimated")
  ).length
})

export interface Judged {
  /** Rows of calls that the upstream refused before it read their IDs. */
  readonly explained: ReadonlyArray<SpendRow>
  /** Rows that belong to no call, the most expensive first. */
  readonly strange: ReadonlyArray<SpendRow>
  /** Number of rows that may be explained by calls that have no verdict yet. */
  readonly waiting: number
  /** There are more rows than `strange` may have. */
  readonly isCut: boolean
}

/** Whether a row can be of a call that was refused early: it failed, costs nothing, and names neither call nor run. */
export const isRefusal = (row: SpendRow): boolean =>
  isEmptyFailure(row) &&
  (row.callId === undefined || row.callId === row.rowId) &&
  row.metadata?.runId === undefined

/** Judges rows that no entry of the ledger has. */
export const judge = (rows: ReadonlyArray<SpendRow>, calls: Calls): Judged => {
  const distinct = [...new Map(rows.map((row) => [row.rowId, row])).values()]
  const refusals = distinct.filter(isRefusal)
  const left = Math.max(0, calls.withoutRow - calls.explained)
  const others = refusals.slice(left)
  const waiting = Math.min(others.length, calls.open)
  const costs = distinct.filter((row) => !isRefusal(row)).toSorted((a, b) => costOf(b) - costOf(a))
  const strange = [...costs, ...others.slice(waiting)]
  return {
    explained: refusals.slice(0, left),
    strange: strange.slice(0, reportedMax),
    waiting,
    isCut: strange.length > reportedMax
  }
}

/** A cost that cannot be read may be any. */
const costOf = ({ costUsd = Number.MAX_VALUE }: SpendRow): number => costUsd
