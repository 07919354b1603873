/**
 * One pass of reconciliation over pages of the ledger: reads the rows of their calls, judges, and records.
 *
 * Only a complete answer counts. A call whose rows could not be read stays as it is, and the next pass asks again.
 */
import * as Clock from "effect/Clock"
import * as Equal from "effect/Equal"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Ledger } from "../Ledger.ts"
import { type LedgerEntry } from "../LedgerEntry.ts"
import { normalized, revisionKey } from "../EntryKey.ts"
import { type State, unknownUnitId } from "../EntryFields.ts"
import * as Reconciliation from "../Reconciliation.ts"
import type { Limits } from "../ReconciliationLimits.ts"
import { findingsMax, type Report } from "../ReconciliationReport.ts"
import {
  type PriceOf,
  type SpendQuery,
  type SpendRow,
  type SpendRows,
  SpendRowsUnavailable
} from "../SpendRows.ts"
import { isFilter, isKeyFilter } from "../SpendFields.ts"
import * as ReconciliationMetrics from "./ReconciliationMetrics.ts"
import * as RowPlan from "./RowPlan.ts"
import * as RunKeyRows from "./RunKeyRows.ts"
import * as UnknownCalls from "./UnknownCalls.ts"

/** State of one pass. */
export interface Pass {
  checked: number
  recorded: Record<State, number>
  waiting: number
  unread: number
  foreign: number
  rows: number
  unresolved: number
  lookups: number
  truncated: boolean
  stopped: boolean
  oldestMs: number | undefined
  failure: SpendRowsUnavailable | undefined
  readonly findings: Array<LedgerEntry>
}

export const begin = (): Pass => ({
  checked: 0,
  recorded: { pending: 0, matched: 0, drifted: 0, missing: 0, estimated: 0 },
  waiting: 0,
  unread: 0,
  foreign: 0,
  rows: 0,
  unresolved: 0,
  lookups: 0,
  truncated: false,
  stopped: false,
  oldestMs: undefined,
  failure: undefined,
  findings: []
})

export const report = ({
  lookups: _lookups,
  oldestMs: _oldestMs,
  stopped: _stopped,
  ...report
}: Pass): Report => report

export interface PassContext {
  /** Time after which the pass begins nothing more. */
  readonly endsMs: number
  readonly ledger: Ledger["Service"]
  readonly spend: SpendRows["Service"]
  readonly limits: Limits
  readonly priceOf: PriceOf | undefined
  readonly pass: Pass
}

/** Queries that are asked at the same time. */
const concurrency = 4

/** Reconciles one page of entries of the upstream whose rows are read. */
export const page = Effect.fnUntraced(function* (context: PassContext, found: ReadonlyArray<LedgerEntry>) {
  const { limits, pass, spend } = context
  const nowMs = yield* Clock.currentTimeMillis
  const entries = found.filter(({ usageUnitId }) => RunKeyRows.isCall(usageUnitId))
  const lost = found.filter((entry) => isLost(spend, entry) && Reconciliation.isDue(entry, nowMs, limits))
  const [due, early] = partition(entries, (entry) => Reconciliation.isDue(entry, nowMs, limits))
  pass.checked += entries.length
  pass.waiting += early.length
  if (!keepsRows(spend)) return yield* withoutRows(context, due, noRowsKept)
  const [named, unnamed] = partition(due, (entry) => isNamed(spend, entry))
  // Only those that wait: there is nothing more to learn about the others.
  const open = unnamed
    .filter(({ state }) => state === "pending")
    // No row will ever come for these, so nothing is waited for.
    .map((entry) => [entry, Reconciliation.judge(entry, [], Number.POSITIVE_INFINITY, limits)] as const)
  const [rowless, others] = partition(open, ([, verdict]) => verdict?.state === "matched")
  yield* record(context, rowless)
  yield* withoutRows(
    context,
    others.map(([entry]) => entry),
    noUpstreamId
  )
  const asked = yield* Effect.forEach(
    RowPlan.plan([...named, ...lost], spend.abilities, limits),
    (asking) => ask(context, asking),
    { concurrency }
  )
  const rows = new Map<string, Array<SpendRow>>()
  for (const { seen } of asked) collect(rows, seen)
  const answered = asked.flatMap(({ read: some }) => some)
  const read = answered.filter(({ usageUnitId }) => RunKeyRows.isCall(usageUnitId))
  // A row that a window does not contain may still exist: by another clock, or paid by another key.
  const absent = read.filter(
    (entry) =>
      // The verdict of a matched call stays without its row.
      entry.state !== "matched" && !rows.has(entry.usageUnitId) && Reconciliation.isLate(entry, nowMs, limits)
  )
  const confirmed = yield* lookUp(context, absent)
  collect(rows, confirmed.seen)
  const unconfirmed = new Set(absent.filter((entry) => !confirmed.read.has(entry)))
  pass.unread += unconfirmed.size
  const verdicts = read
    .filter((entry) => !unconfirmed.has(entry))
    .map(
      (entry) =>
        [entry, Reconciliation.judge(entry, rows.get(entry.usageUnitId) ?? [], nowMs, limits)] as const
    )
  yield* record(context, verdicts)
  const strangers = yield* strangersOf(context, asked, new Set(found.map(({ usageUnitId }) => usageUnitId)))
  yield* record(
    context,
    answered
      .filter((entry) => isLost(spend, entry))
      .map((entry) => {
        const { strange = 0, waiting = 0 } = strangers.get(entry.runKeyHash) ?? {}
        const verdict =
          strange === 0 && waiting > 0
            ? undefined
            : Reconciliation.judgeUnknown(entry, strange, nowMs, limits)
        return [entry, verdict] as const
      })
  )
  // Rows without a call that were reported before. No verdict can change them.
  pass.unresolved += found.filter(
    ({ state, usageUnitId }) => state === "drifted" && RunKeyRows.isUnit(usageUnitId)
  ).length
})

/** Records the rows of keys that belong to no call. */
const strangersOf = Effect.fnUntraced(function* (
  context: PassContext,
  asked: ReadonlyArray<Asked>,
  known: ReadonlySet<string>
) {
  const now = new Date(yield* Clock.currentTimeMillis).toISOString()
  const strangers = new Map<string | undefined, UnknownCalls.Found>()
  for (const { asking, seen } of asked) {
    if (asking.query._tag !== "RunKey") continue
    const { runKeyHash } = asking.query
    const run = yield* UnknownCalls.runOf(context.ledger, runKeyHash)
    if (run === undefined) continue
    const found = yield* UnknownCalls.find(context.ledger, { run, runKeyHash, rows: seen }, { known, now })
    yield* append(context, found.entries)
    strangers.set(runKeyHash, found)
  }
  return strangers
})

const partition = <A>(all: ReadonlyArray<A>, is: (one: A) => boolean): readonly [Array<A>, Array<A>] => [
  all.filter(is),
  all.filter((one) => !is(one))
]

/** Whether an entry is for calls whose number is unknown, and whose rows can be found by the key of their run. */
const isLost = ({ abilities }: SpendRows["Service"], { runKeyHash, usageUnitId }: LedgerEntry): boolean =>
  usageUnitId === unknownUnitId && abilities.runKeys && isKeyFilter(runKeyHash)

/** Whether an upstream can answer any query. */
export const keepsRows = ({ abilities }: SpendRows["Service"]): boolean =>
  abilities.calls || abilities.accounts || abilities.runKeys

/** Whether the upstream can be asked for the row of a call. */
const isNamed = ({ abilities }: SpendRows["Service"], { upstreamCallId }: LedgerEntry): boolean =>
  abilities.upstreamCallIdsOnly !== true || isFilter(upstreamCallId)

const collect = (into: Map<string, Array<SpendRow>>, rows: ReadonlyArray<SpendRow>): void => {
  for (const row of rows) {
    const some = into.get(RunKeyRows.idOf(row))
    if (some === undefined) into.set(RunKeyRows.idOf(row), [row])
    else some.push(row)
  }
}

interface Asked {
  readonly asking: RowPlan.Asking
  readonly seen: ReadonlyArray<SpendRow>
  /** Entries whose rows are in `seen`, if they exist. */
  readonly read: ReadonlyArray<LedgerEntry>
}

/** Reads the rows of a query, or fails if there are too many. */
const rowsOf = (
  { limits, pass, spend }: PassContext,
  query: SpendQuery
): Effect.Effect<ReadonlyArray<SpendRow>, SpendRowsUnavailable> =>
  spend.rowsOf(query).pipe(
    Stream.take(limits.rowsMax + 1),
    Stream.runCollect,
    Effect.filterOrFail(
      (rows) => rows.length <= limits.rowsMax,
      () => tooMany(limits.rowsMax)
    ),
    Effect.tap((rows) => Effect.sync(() => (pass.rows += rows.length)))
  )

const tooMany = (rowsMax: number) =>
  new SpendRowsUnavailable({
    problem: "too_large",
    detail: `a query has more than ${rowsMax} rows`,
    remedy: "Give each run a key of its own, which separates its rows from others"
  })

/** Problems of one query over many rows. Lookups of its calls may do without them. */
const isOfQuery = ({ problem }: SpendRowsUnavailable): boolean =>
  problem === "too_large" || problem === "filter_ignored" || problem === "timed_out"

/** Problems of a single answer, after which others may still be read. All others end the pass. */
const isOfAnswer = ({ problem }: SpendRowsUnavailable): boolean =>
  problem === "too_large" ||
  problem === "filter_ignored" ||
  problem === "unreadable" ||
  problem === "invalid_query"

/** Keeps the first failure, and whether the pass ends. */
export const noted = (pass: Pass, failure: SpendRowsUnavailable): void => {
  pass.failure ??= failure
  pass.stopped ||= !isOfAnswer(failure)
}

const ask = Effect.fnUntraced(function* (
  context: PassContext,
  asking: RowPlan.Asking
): Effect.fn.Return<Asked> {
  const { pass, spend } = context
  const skipped = (): Asked => {
    pass.unread += asking.entries.length
    return { asking, seen: [], read: [] }
  }
  // After a failure of the whole upstream, no further query waits for it.
  if (pass.stopped) return skipped()
  if (asking.query._tag === "Calls") {
    const { read, seen } = yield* lookUp(context, asking.entries)
    pass.unread += asking.entries.length - read.size
    return { asking, seen, read: [...read] }
  }
  return yield* rowsOf(context, asking.query).pipe(
    Effect.map((seen): Asked => ({ asking, seen, read: asking.entries })),
    Effect.catch((failure) =>
      Effect.gen(function* () {
        if (!isOfQuery(failure) || !spend.abilities.calls) {
          noted(pass, failure)
          return skipped()
        }
        yield* Effect.logWarning(`${failure.detail}. Its calls are asked for by their IDs. ${failure.remedy}`)
        const { read, seen } = yield* lookUp(context, asking.entries)
        pass.unread += asking.entries.length - read.size
        return { asking, seen, read: [...read] }
      })
    )
  )
})

/** Calls of one lookup. A failure affects only these. */
const lookupCalls = 50

/**
 * Asks for calls by their IDs, within the limit of a pass. Those without a verdict come first, and half of the limit is
 * theirs: calls that are missing for good would use it up in every pass.
 */
const lookUp = Effect.fnUntraced(function* (context: PassContext, entries: ReadonlyArray<LedgerEntry>) {
  const { limits, pass, spend } = context
  const read = new Set<LedgerEntry>()
  if (!spend.abilities.calls) return { seen: [], read }
  const isOpen = ({ state }: LedgerEntry) => state === "pending" || state === "estimated"
  const open = entries.filter(isOpen).slice(0, Math.max(0, limits.lookupsMax - pass.lookups))
  pass.lookups += open.length
  const others = entries
    .filter((entry) => !isOpen(entry))
    .slice(0, Math.max(0, Math.floor(limits.lookupsMax / 2) - pass.lookups))
  pass.lookups += others.length
  const some = [...open, ...others]
  const seen: Array<SpendRow> = []
  for (let start = 0; start < some.length; start += lookupCalls) {
    if (pass.stopped) break
    for (const asking of RowPlan.byCall(some.slice(start, start + lookupCalls))) {
      const rows = yield* rowsOf(context, asking.query).pipe(
        Effect.catch((failure) => Effect.sync(() => noted(pass, failure)))
      )
      if (rows === undefined) continue
      seen.push(...rows)
      for (const entry of asking.entries) read.add(entry)
    }
  }
  return { seen, read }
})

export type Judged = readonly [entry: LedgerEntry, verdict: Reconciliation.Verdict | undefined]

/** Records verdicts, and counts those that are open. */
export const record = Effect.fnUntraced(function* (context: PassContext, verdicts: ReadonlyArray<Judged>) {
  const { pass } = context
  const recordedAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const corrections: Array<LedgerEntry> = []
  for (const [entry, verdict] of verdicts) {
    const { state } = verdict ?? entry
    if (isUnresolved(state)) pass.unresolved += 1
    if (state === "pending" || (state === "estimated" && verdict === undefined)) {
      const ms = Date.parse(entry.recordedAt)
      pass.waiting += 1
      pass.oldestMs = Math.min(pass.oldestMs ?? ms, ms)
    }
    if (verdict === undefined) continue
    const next = Reconciliation.correction(entry, verdict, recordedAt)
    if (next !== undefined) corrections.push(next)
  }
  yield* append(context, corrections)
})

const isUnresolved = (state: State): boolean => state === "drifted" || state === "missing"

/** Stores entries. Counts and reports those that no other process stored before. */
export const append = Effect.fnUntraced(function* (
  { ledger, pass }: PassContext,
  entries: ReadonlyArray<LedgerEntry>
) {
  if (entries.length === 0) return
  const { existing } = yield* ledger.append(entries)
  const stored = new Map(existing.map((entry) => [revisionKey(entry), entry]))
  for (const entry of entries) {
    const other = stored.get(revisionKey(entry))
    // Our own, if the answer of a first try was lost. Another process would have recorded it at another time.
    if (other !== undefined && !Equal.equals(other, normalized(entry))) continue
    pass.recorded[entry.state] += 1
    yield* ReconciliationMetrics.recorded(entry)
    if (!isUnresolved(entry.state)) continue
    if (RunKeyRows.isUnit(entry.usageUnitId)) pass.unresolved += 1
    if (pass.findings.length >= findingsMax) continue
    pass.findings.push(entry)
    yield* ReconciliationMetrics.warn(entry)
  }
})

const noRowsKept: Reconciliation.Verdict = {
  state: "estimated",
  reason: Reconciliation.reasons.noRowsKept,
  detail: "this upstream keeps no rows that a host can read"
}

const noUpstreamId: Reconciliation.Verdict = {
  state: "estimated",
  reason: Reconciliation.reasons.noUpstreamId,
  detail: "the upstream told no ID of this call, and finds its row only by that ID"
}

/** Ends the waiting of calls without a readable row. Their cost is the upstream's own, or a price list's. */
const withoutRows = Effect.fnUntraced(function* (
  context: PassContext,
  due: ReadonlyArray<LedgerEntry>,
  otherwise: Reconciliation.Verdict
) {
  const open = due.filter(({ reason }) => reason !== Reconciliation.reasons.priceList)
  const judged = yield* Effect.forEach(open, (entry) =>
    Effect.map(withoutRow(context, entry, otherwise), (verdict) => [entry, verdict] as const)
  )
  const recordedAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  yield* append(
    context,
    judged.flatMap(([entry, { priced, verdict }]) => {
      const next = Reconciliation.correction(entry, verdict, recordedAt)
      if (next === undefined) return []
      return [priced ? { ...next, priceSource: "prices" as const } : next]
    })
  )
})

const withoutRow = Effect.fnUntraced(function* (
  { priceOf }: PassContext,
  entry: LedgerEntry,
  otherwise: Reconciliation.Verdict
): Effect.fn.Return<{ readonly priced: boolean; readonly verdict: Reconciliation.Verdict }> {
  const price = entry.costUsd === undefined && priceOf !== undefined ? yield* priceOf(entry) : undefined
  return price === undefined
    ? { priced: false, verdict: otherwise }
    : {
        priced: true,
        verdict: {
          state: "estimated",
          reason: Reconciliation.reasons.priceList,
          detail: `the cost is computed from the tokens, with the prices of ${price.source}`,
          figures: { costUsd: price.costUsd }
        }
      }
})
