/**
 * Plans the queries that find the rows of many calls with few requests. Pure.
 *
 * The rows of a run come by the run's key. Without one, they come by account and time: calls that are close together
 * share a window. A few calls, and those of an account that no filter can name, are asked for by their IDs.
 */
import { type LedgerEntry } from "../LedgerEntry.ts"
import { unknownUnitId } from "../EntryFields.ts"
import type { KeyedRun } from "../LedgerRun.ts"
import { type SpendAbilities, type SpendQuery } from "../SpendRows.ts"
import { type CallKey, isFilter, isKeyFilter, queryCallsMax, type Window } from "../SpendFields.ts"

export interface PlanLimits {
  /** Difference of our clock and the upstream's that windows tolerate, in seconds. */
  readonly clockSkewSecondsMax: number
  /** Maximum length of a window over the calls of an account, in seconds. */
  readonly windowSecondsMax: number
}

/** A query, and the calls whose rows it finds. */
export interface Asking {
  readonly query: SpendQuery
  readonly entries: ReadonlyArray<LedgerEntry>
}

/** Maximum calls of an account that are asked for by their IDs, because a window would cost more. */
const fewCalls = 3

export const plan = (
  entries: ReadonlyArray<LedgerEntry>,
  abilities: SpendAbilities,
  limits: PlanLimits
): ReadonlyArray<Asking> => {
  const keyed = (entry: LedgerEntry) => abilities.runKeys && isKeyFilter(entry.runKeyHash)
  const groups = Map.groupBy(entries, (entry) => (keyed(entry) ? entry.runKeyHash : undefined))
  return [...groups].flatMap(([runKeyHash, group]) =>
    runKeyHash === undefined
      ? byAccount(group, abilities, limits)
      : [{ query: { _tag: "RunKey", runKeyHash, window: windowOf(group, limits) }, entries: group } as const]
  )
}

const byAccount = (
  entries: ReadonlyArray<LedgerEntry>,
  abilities: SpendAbilities,
  limits: PlanLimits
): ReadonlyArray<Asking> =>
  [...Map.groupBy(entries, ({ billingAccountId }) => billingAccountId)].flatMap(([billingAccountId, group]) =>
    abilities.accounts && isFilter(billingAccountId)
      ? cut(group, limits).flatMap((near) =>
          near.length <= fewCalls && abilities.calls
            ? byCall(near)
            : [
                {
                  query: { _tag: "Account", billingAccountId, window: windowOf(near, limits) },
                  entries: near
                } as const
              ]
        )
      : byCall(group)
  )

/** Plans the lookup of each call by its ID. */
export const byCall = (entries: ReadonlyArray<LedgerEntry>): ReadonlyArray<Asking> =>
  Array.from({ length: Math.ceil(entries.length / queryCallsMax) }, (_, index) => {
    const some = entries.slice(index * queryCallsMax, (index + 1) * queryCallsMax)
    const [first, ...rest] = some.map(keyOf)
    return first === undefined
      ? []
      : [{ query: { _tag: "Calls", calls: [first, ...rest] }, entries: some } as const]
  }).flat()

const keyOf = ({ upstreamCallId, usageUnitId }: LedgerEntry): CallKey => ({
  callId: usageUnitId,
  ...(isFilter(upstreamCallId) ? { upstreamCallId } : {})
})

/** Cuts calls into groups that are close together in time. */
const cut = (
  entries: ReadonlyArray<LedgerEntry>,
  { clockSkewSecondsMax, windowSecondsMax }: PlanLimits
): ReadonlyArray<ReadonlyArray<LedgerEntry>> => {
  const groups: Array<Array<LedgerEntry>> = []
  let firstMs = 0
  let lastMs = 0
  for (const entry of entries.toSorted((a, b) => (a.at < b.at ? -1 : 1))) {
    const ms = Date.parse(entry.at)
    const group = groups.at(-1)
    const isNear = ms - lastMs <= 2000 * clockSkewSecondsMax && ms - firstMs <= 1000 * windowSecondsMax
    if (group !== undefined && isNear) group.push(entry)
    else {
      groups.push([entry])
      firstMs = ms
    }
    lastMs = ms
  }
  return groups
}

/** The time in which the key of a run can have been used. */
export const validityOf = (
  { closedAt, expiresAt, openedAt }: KeyedRun,
  { clockSkewSecondsMax }: PlanLimits
): Window =>
  widened(Date.parse(openedAt), Math.max(Date.parse(closedAt), Date.parse(expiresAt)), clockSkewSecondsMax)

const widened = (firstMs: number, lastMs: number, seconds: number): Window => ({
  from: new Date(firstMs - seconds * 1000).toISOString(),
  to: new Date(lastMs + seconds * 1000).toISOString()
})

const windowOf = (entries: ReadonlyArray<LedgerEntry>, { clockSkewSecondsMax }: PlanLimits) => {
  let first = Number.POSITIVE_INFINITY
  let last = Number.NEGATIVE_INFINITY
  for (const { at, recordedAt, usageUnitId } of entries) {
    const ms = Date.parse(at)
    // Unknown calls of a run began at any time until the run was recorded.
    const endMs = usageUnitId === unknownUnitId ? Math.max(ms, Date.parse(recordedAt)) : ms
    if (ms < first) first = ms
    if (endMs > last) last = endMs
  }
  return widened(first, last, clockSkewSecondsMax)
}
