/**
 * Compares entries of the ledger with the upstream's rows, and decides the state of each call. Pure.
 *
 * A difference is never corrected silently: every verdict has a state and a code, and becomes a further entry. Only
 * figures that the ledger does not have are taken from a row. A figure of ours that differs from a row stays, and its
 * call is `drifted`.
 */
import * as DateTime from "effect/DateTime"
import * as Option from "effect/Option"
import { isEmptyFailure, isZero } from "./internal/RowFigures.ts"
import { type LedgerEntry } from "./LedgerEntry.ts"
import { reasons as runReasons, type State } from "./EntryFields.ts"
import type { SpendRow } from "./SpendRows.ts"

/** Codes that reconciliation gives as the reason of a state. */
export const reasons = {
  /** Matched: the cost, and the tokens if they were unknown, are those of the row. */
  figuresFromRow: "figures_from_row",
  /** Matched: the call failed, and its row has no tokens and no cost. */
  failedCall: "failed_call",
  /** Matched: the call did not reach the upstream, or runs no model, and there is no row. */
  noRowExpected: "no_row_expected",
  /** Matched: the upstream refused the call, and has no row with its ID. */
  refusedCall: "refused_call",
  costDiffers: "cost_differs",
  tokensDiffer: "tokens_differ",
  /** The row bills another account, or names another run or attempt. */
  identityDiffers: "identity_differs",
  /** The row was paid by another key than the run's. */
  keyDiffers: "key_differs",
  /** The upstream has more than one row for the call. */
  duplicateRows: "duplicate_rows",
  /** The row has no tokens and no cost, although the model answered. */
  zeroRow: "zero_row",
  /** The row has tokens, and no cost or one of 0: the upstream has no price for the model. */
  rowWithoutCost: "row_without_cost",
  /** The row has values that no row can have. */
  rowUnreadable: "row_unreadable",
  /** Missing: no row appeared before the deadline. */
  noRow: "no_row",
  /** Rows of a run's key belong to no call that the ledger has. */
  unknownCall: "unknown_call",
  /** Estimated for good: this upstream keeps no rows, and the cost is its own or a price list's. */
  noRowsKept: "no_rows_kept",
  /** Estimated for good: the upstream finds a row only by an ID in its answer, and the answer did not come. */
  noUpstreamId: "no_upstream_id",
  /** Estimated for good: the cost was computed from the tokens and a price list. */
  priceList: "price_list"
} as const

export type ReconciliationReason = (typeof reasons)[keyof typeof reasons]

/** Limits of the comparison. */
export interface Rules {
  /** Seconds after the record of a call when its row may be asked for: how long an upstream collects rows. */
  readonly rowsDelaySeconds: number
  /** Seconds after the record of a call when a row that does not exist is missing. */
  readonly deadlineSeconds: number
  /** Difference of two costs that is rounding, in US dollars. */
  readonly costToleranceUsd: number
  /** Difference of two costs that is rounding, as a part of the larger one. */
  readonly costToleranceRatio: number
  /** Returns whether a model costs nothing, if the host has no price for it (default: none does). */
  readonly isFree?: ((model: string) => boolean) | undefined
}

/** Figures that a verdict takes from a row. */
export type Figures = Pick<
  LedgerEntry,
  "cacheReadTokens" | "cacheWriteTokens" | "costUsd" | "inputTokens" | "outputTokens"
>

export interface Verdict {
  readonly state: State
  readonly reason?: ReconciliationReason | undefined
  /** Explanation for people. Contains no text that an upstream chose. */
  readonly detail?: string | undefined
  /** Present if the entry takes figures that it did not have. */
  readonly figures?: Figures | undefined
}

/** Whether the row of a call may exist now. */
export const isDue = (entry: Aged, nowMs: number, rules: Rules): boolean =>
  isAged(entry, nowMs, rules.rowsDelaySeconds)

/** Whether the row of a call should exist now. */
export const isLate = (entry: Aged, nowMs: number, rules: Rules): boolean =>
  isAged(entry, nowMs, rules.deadlineSeconds)

type Aged = Pick<LedgerEntry, "recordedAt" | "state">

/** Compares times of our own hosts, never the upstream's. A call with a verdict from rows has waited before. */
const isAged = ({ recordedAt, state }: Aged, nowMs: number, seconds: number): boolean =>
  state === "matched" ||
  state === "missing" ||
  state === "drifted" ||
  nowMs - Date.parse(recordedAt) >= seconds * 1000

/**
 * Decides the state of a call. `rows` are all rows that name it, found by its ID and by its run's key. Returns nothing
 * while a row may still come, and if the verdict of the entry stays. Upstreams delete old rows, so a verdict stays
 * without its row.
 */
export const judge = (
  entry: LedgerEntry,
  rows: ReadonlyArray<SpendRow>,
  nowMs: number,
  rules: Rules
): Verdict | undefined => {
  const verdict = verdictOf(entry, rows, nowMs, rules)
  const stays =
    (entry.state === "matched" && verdict?.state !== "drifted") ||
    (entry.state === "drifted" && verdict?.state === "missing")
  return stays ? undefined : verdict
}

const verdictOf = (
  entry: LedgerEntry,
  rows: ReadonlyArray<SpendRow>,
  nowMs: number,
  rules: Rules
): Verdict | undefined => {
  const counted = withoutRetries(rows)
  const [row, second] = counted
  if (row === undefined) return isLate(entry, nowMs, rules) ? absent(entry) : undefined
  if (second !== undefined) return duplicated(counted)
  if (row.unreadable === true) return drifted(reasons.rowUnreadable, "the row of this call is not valid")
  return strangers(entry, row) ?? (isZero(row) ? compareZero(entry, row) : compare(entry, row, rules))
}

/**
 * Decides the state of the calls of a run whose number is unknown. `strangers` is the number of rows of the run's key
 * that belong to no recorded call. They are never charged, because a row alone does not prove a call. Returns nothing
 * while rows may still come.
 */
export const judgeUnknown = (
  entry: LedgerEntry,
  strangers: number,
  nowMs: number,
  rules: Rules
): Verdict | undefined =>
  strangers > 0
    ? drifted(
        reasons.unknownCall,
        `the number of rows of this run's key for calls that the audit does not have is ${strangers}`
      )
    : entry.state === "pending" && isLate(entry, nowMs, rules)
      ? {
          state: "matched",
          reason: reasons.noRowExpected,
          detail: "the upstream has no row of this run's key for a further call"
        }
      : undefined

/** Distinct rows, without those of failed attempts that the upstream repeated itself. */
const withoutRetries = (rows: ReadonlyArray<SpendRow>): ReadonlyArray<SpendRow> => {
  const distinct = [...new Map(rows.map((row) => [row.rowId, row])).values()]
  const paid = distinct.filter((row) => !isEmptyFailure(row))
  return paid.length > 0 ? paid : distinct.slice(0, 1)
}

const drifted = (reason: ReconciliationReason, detail: string): Verdict => ({
  state: "drifted",
  reason,
  detail
})

const absent = (entry: LedgerEntry): Verdict =>
  entry.priceSource === "free" || entry.outcome === "upstream_unreachable"
    ? {
        state: "matched",
        reason: isRefused(entry) ? reasons.refusedCall : reasons.noRowExpected,
        ...(isUnpriced(entry) ? { figures: { costUsd: 0 } } : {})
      }
    : {
        state: "missing",
        reason: reasons.noRow,
        detail: "the upstream has no row for this call, and its deadline has passed"
      }

/** Whether the upstream answered a call and ran no model, although the call asks for one. */
const isRefused = ({ outcome, priceSource, reason }: LedgerEntry): boolean =>
  priceSource === "free" && outcome === "completed" && reason === runReasons.notRun

const duplicated = (rows: ReadonlyArray<SpendRow>): Verdict => {
  const sum = rows.reduce((total, { costUsd = 0 }) => total + costUsd, 0)
  return drifted(
    reasons.duplicateRows,
    `the upstream has ${rows.length} rows for this call, with a total of ${dollars(sum)}`
  )
}

/** Compares who paid: both the key and the account must be ours. */
const strangers = (entry: LedgerEntry, row: SpendRow): Verdict | undefined => {
  const { attempt, billingAccountId, runId, runKeyHash } = entry
  if (runKeyHash !== undefined && row.runKeyHash !== undefined && row.runKeyHash !== runKeyHash)
    return drifted(reasons.keyDiffers, "the row was paid by another key than the key of this run")
  if (row.endUser !== undefined && row.endUser !== billingAccountId)
    return drifted(
      reasons.identityDiffers,
      row.endUser === "" ? "the row bills no account" : "the row bills another account"
    )
  const { metadata = {} } = row
  return (metadata.runId !== undefined && metadata.runId !== runId) ||
    (metadata.attempt !== undefined && metadata.attempt !== attempt)
    ? drifted(reasons.identityDiffers, "the row names another run or another attempt")
    : undefined
}

/** The figures of an entry are those that were reserved, or it has none. */
const isUnpriced = ({ priceSource, state }: LedgerEntry): boolean =>
  priceSource === "none" || priceSource === "reservation" || state === "estimated"

/** Outcomes after which a model may have produced tokens that were not counted. */
const mayHaveRun: ReadonlySet<LedgerEntry["outcome"]> = new Set([
  undefined,
  "client_aborted",
  "run_ended",
  "upstream_cut",
  "upstream_timeout"
])

const compareZero = (entry: LedgerEntry, row: SpendRow): Verdict => {
  const { costUsd = 0, inputTokens = 0, outputTokens = 0 } = entry
  if (!isUnpriced(entry))
    return costUsd === 0 && inputTokens === 0 && outputTokens === 0
      ? { state: "matched" }
      : drifted(reasons.zeroRow, `the row has no tokens and no cost, the ledger has ${dollars(costUsd)}`)
  if (row.status !== "failure" || mayHaveRun.has(entry.outcome))
    return drifted(
      reasons.zeroRow,
      "the row has no tokens and no cost, but the model may have answered before the call ended"
    )
  return {
    state: "matched",
    reason: reasons.failedCall,
    figures: { costUsd: 0, inputTokens: 0, outputTokens: 0 }
  }
}

const kinds = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"] as const

const compare = (entry: LedgerEntry, row: SpendRow, rules: Rules): Verdict => {
  if (isReserved(entry)) return filled(entry, row, rules, true)
  const kind = kinds.find(
    (one) => entry[one] !== undefined && row[one] !== undefined && entry[one] !== row[one]
  )
  if (kind !== undefined)
    return drifted(
      reasons.tokensDiffer,
      `the row has ${row[kind]} as ${kind}, the ledger has ${entry[kind]}${costs(entry, row)}`
    )
  if (entry.costUsd === undefined) return filled(entry, row, rules, false)
  if (row.costUsd !== undefined && isSameCost(entry.costUsd, row.costUsd, rules)) return { state: "matched" }
  const ours = `the ledger has ${dollars(entry.costUsd)} (${entry.priceSource})`
  return row.costUsd === undefined || lacksPrice(row)
    ? drifted(reasons.rowWithoutCost, `${withoutCost(row)}, ${ours}`)
    : drifted(reasons.costDiffers, `the row costs ${dollars(row.costUsd)}, ${ours}`)
}

/** Whether the tokens of an entry may be those that were reserved, also after its row was found to have no cost. */
const isReserved = ({ costUsd, priceSource, reason, state }: LedgerEntry): boolean =>
  priceSource === "reservation" ||
  state === "estimated" ||
  (costUsd === undefined && reason === reasons.rowWithoutCost)

/** Whether a row with tokens has no cost. LiteLLM writes 0 for a model without a price. */
const lacksPrice = ({ costUsd = 0, isFree }: SpendRow): boolean => costUsd === 0 && isFree !== true

const withoutCost = ({ costUsd }: SpendRow): string =>
  costUsd === undefined ? "the row has no cost" : "the row has tokens and a cost of 0"

/** Whether the host knows that a call costs nothing. Its own price comes first. */
const isKnownFree = ({ model, reservedUsd }: LedgerEntry, { isFree }: Rules): boolean =>
  reservedUsd === undefined ? isFree?.(model) === true : reservedUsd === 0

/** Takes the figures of a row. Those that were only reserved are replaced. */
const filled = (entry: LedgerEntry, row: SpendRow, rules: Rules, replaces: boolean): Verdict => {
  const before =
    entry.costUsd === undefined ? "the cost was unknown" : `${dollars(entry.costUsd)} was reserved`
  if (row.costUsd === undefined || (lacksPrice(row) && !isKnownFree(entry, rules)))
    return drifted(reasons.rowWithoutCost, `${before}, ${withoutCost(row)}`)
  const figures = Object.fromEntries(
    kinds.flatMap((kind) =>
      row[kind] !== undefined && (replaces || entry[kind] === undefined) ? [[kind, row[kind]]] : []
    )
  )
  return {
    state: "matched",
    reason: reasons.figuresFromRow,
    detail: `${before}, the row costs ${dollars(row.costUsd)}`,
    figures: { ...figures, costUsd: row.costUsd }
  }
}

const isSameCost = (a: number, b: number, rules: Rules): boolean =>
  Math.abs(a - b) <= Math.max(rules.costToleranceUsd, rules.costToleranceRatio * Math.max(a, b))

const costs = ({ costUsd }: LedgerEntry, row: SpendRow): string =>
  costUsd === undefined || row.costUsd === undefined
    ? ""
    : `; costs are ${dollars(row.costUsd)} and ${dollars(costUsd)}`

/** Formats an amount for people. */
export const dollars = (usd: number): string => `${Number(usd.toPrecision(6))} USD`

/** Returns the entry that records a verdict, or nothing if the newest entry says the same. */
export const correction = (
  entry: LedgerEntry,
  verdict: Verdict,
  recordedAt: string
): LedgerEntry | undefined => {
  const { detail: _detail, reason: _reason, ...kept } = entry
  const { detail, figures, reason, state } = verdict
  if (state === entry.state && reason === entry.reason && figures === undefined) return undefined
  const cost = figures?.costUsd === undefined ? {} : { priceSource: "row" as const }
  return {
    ...kept,
    ...figures,
    ...cost,
    revision: entry.revision + 1,
    recordedAt,
    state,
    ...(reason === undefined ? {} : { reason }),
    ...(detail === undefined ? {} : { detail })
  }
}

/**
 * Parses a time that an upstream wrote. Without a time zone it is UTC, as LiteLLM means it. Returns nothing for a text
 * that is not a time.
 */
export const instantOf = (
  text: string
): { readonly startedAt: string; readonly zone: "stated" | "assumed_utc" } | undefined => {
  const [, date, time, zone] =
    /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d{1,9})?) ?(Z|UTC|[+-]\d\d:?\d\d)?$/u.exec(text.trim()) ?? []
  if (date === undefined || time === undefined) return undefined
  const offset = zone === undefined || zone === "UTC" ? "Z" : zone.replace(/^([+-]\d\d)(\d\d)$/u, "$1:$2")
  const instant = Option.getOrUndefined(DateTime.make(`${date}T${time}${offset}`))
  return instant === undefined
    ? undefined
    : {
        startedAt: DateTime.formatIso(DateTime.toUtc(instant)),
        zone: zone === undefined ? "assumed_utc" : "stated"
      }
}
