/** A ledger in memory: which entries it has, what they answer. Pure. */
import * as Struct from "effect/Struct"
import * as LedgerEntries from "../LedgerEntries.ts"
import { type LedgerEntry } from "../LedgerEntry.ts"
import { key, revisionKey } from "../EntryKey.ts"
import { State } from "../EntryFields.ts"
import {
  type Filter,
  type GroupBy,
  groupsDefault,
  type Page,
  pageEntriesMax,
  type PageRequest,
  type SpendSum,
  type Sums,
  type SumsRequest
} from "../LedgerQuery.ts"
import { comparePlaces, decodeCursor, encodeCursor, placeOf } from "../LedgerCursor.ts"
import { isKeyed, type KeyedRun, keyOf as keyOfRun, type RunKey, type SettledRun } from "../LedgerRun.ts"
import * as Money from "../Money.ts"
import * as MoneySums from "../MoneySums.ts"

export interface LedgerTable {
  readonly runs: ReadonlyMap<string, SettledRun>
  /** When the rows of the keys of runs are to be checked. */
  readonly keysDueAt: ReadonlyMap<string, string>
  /** By {@link revisionKey}. */
  readonly entries: ReadonlyMap<string, LedgerEntry>
}

export const empty: LedgerTable = { runs: new Map(), keysDueAt: new Map(), entries: new Map() }

/** Closes a run. Its first `closedAt` and key stay. */
export const closed = (
  table: LedgerTable,
  run: SettledRun,
  { closedAt, runKeyHash }: { readonly closedAt: string; readonly runKeyHash?: string | undefined }
): LedgerTable => ({
  ...table,
  runs: new Map(table.runs).set(keyOfRun(run), {
    closedAt,
    ...(runKeyHash === undefined ? {} : { runKeyHash }),
    ...run
  }),
  keysDueAt:
    run.closedAt === undefined ? new Map(table.keysDueAt).set(keyOfRun(run), closedAt) : table.keysDueAt
})

export const keysDue = ({ keysDueAt, runs }: LedgerTable, dueBefore: string): ReadonlyArray<KeyedRun> => {
  const placeOfRun = (run: KeyedRun) => `${keysDueAt.get(keyOfRun(run))} ${keyOfRun(run)}`
  return [...runs.values()]
    .filter(isKeyed)
    .filter((run) => (keysDueAt.get(keyOfRun(run)) ?? dueBefore) < dueBefore)
    .toSorted((a, b) => (placeOfRun(a) < placeOfRun(b) ? -1 : 1))
}

export const keyChecked = (table: LedgerTable, run: RunKey, dueAgainAt: string | undefined): LedgerTable => {
  const keysDueAt = new Map(table.keysDueAt)
  if (dueAgainAt === undefined) keysDueAt.delete(keyOfRun(run))
  else if (keysDueAt.has(keyOfRun(run))) keysDueAt.set(keyOfRun(run), dueAgainAt)
  return { ...table, keysDueAt }
}

/** Adds entries whose key and revision are free. */
export const append = (
  table: LedgerTable,
  given: ReadonlyArray<LedgerEntry>
): { readonly table: LedgerTable; readonly added: number; readonly existing: ReadonlyArray<LedgerEntry> } => {
  const entries = new Map(table.entries)
  const existing: Array<LedgerEntry> = []
  let added = 0
  for (const entry of given) {
    const name = revisionKey(entry)
    const found = table.entries.get(name)
    if (found !== undefined) existing.push(found)
    if (entries.has(name)) continue
    entries.set(name, entry)
    added += 1
  }
  return { table: { ...table, entries }, added, existing }
}

/** Adds the entries of a run, and the ends of calls that were open before. */
export const settle: typeof append = (table, given) => {
  const first = append(table, given)
  if (first.existing.length === 0) return first
  const stored = [...first.table.entries.values()]
  const second = append(first.table, LedgerEntries.corrections(stored, given))
  return { ...second, added: first.added + second.added, existing: first.existing }
}

const newestOf = (entries: Iterable<LedgerEntry>): ReadonlyArray<LedgerEntry> => {
  const newest = new Map<string, LedgerEntry>()
  for (const entry of entries) {
    const found = newest.get(key(entry))
    if (found === undefined || found.revision < entry.revision) newest.set(key(entry), entry)
  }
  return [...newest.values()]
}

const matches =
  (filter: Filter) =>
  (entry: LedgerEntry): boolean => {
    const { from, runIds, states, to, usageUnitIds } = filter
    const same = Struct.omit(filter, ["from", "revisions", "runIds", "states", "to", "usageUnitIds"])
    return (
      Object.entries(same).every(([name, value]) => entry[name as keyof LedgerEntry] === value) &&
      (from === undefined || entry.at >= from) &&
      (to === undefined || entry.at < to) &&
      (runIds === undefined || runIds.includes(entry.runId)) &&
      (states === undefined || states.includes(entry.state)) &&
      (usageUnitIds === undefined || usageUnitIds.includes(entry.usageUnitId))
    )
  }

/** Returns a page, or nothing if its cursor is not one. */
export const list = (
  { entries }: LedgerTable,
  filter: Filter,
  { after, limit = pageEntriesMax }: PageRequest
): Page | undefined => {
  const place = after === undefined ? undefined : decodeCursor(after)
  if (after !== undefined && place === undefined) return undefined
  const found = (filter.revisions === "all" ? [...entries.values()] : newestOf(entries.values()))
    .filter(matches(filter))
    .filter((entry) => place === undefined || comparePlaces(placeOf(entry), place) > 0)
    .toSorted((a, b) => comparePlaces(placeOf(a), placeOf(b)))
  const page = found.slice(0, limit)
  const last = page.at(-1)
  return found.length > limit && last !== undefined
    ? { entries: page, next: encodeCursor(placeOf(last)) }
    : { entries: page }
}

const groupOf: Readonly<Record<GroupBy, (entry: LedgerEntry) => string | undefined>> = {
  total: () => undefined,
  account: ({ billingAccountId }) => billingAccountId,
  user: ({ userId }) => userId,
  graph: ({ graphId }) => graphId,
  agent: ({ agentId }) => agentId,
  model: ({ model }) => model,
  upstream: ({ upstream }) => upstream,
  run: ({ runId }) => runId,
  day: ({ at }) => at.slice(0, 10)
}

const sumOf = (group: string | undefined, entries: ReadonlyArray<LedgerEntry>): SpendSum => {
  const tokens = (name: "inputTokens" | "outputTokens" | "cacheReadTokens" | "cacheWriteTokens") =>
    entries.reduce((sum, entry) => sum + (entry[name] ?? 0), 0)
  const costOf = (some: ReadonlyArray<LedgerEntry>) => {
    const costs = some.flatMap(({ costUsd }) => (costUsd === undefined ? [] : [Money.fromUsd(costUsd)]))
    return costs.length === 0 ? undefined : costs.reduce(MoneySums.add, MoneySums.zero)
  }
  const cost = costOf(entries)
  const estimatedCost = costOf(entries.filter(({ priceSource }) => priceSource === "reservation"))
  return {
    ...(group === undefined ? {} : { group }),
    calls: entries.length,
    callsWithoutCost: entries.filter(({ costUsd }) => costUsd === undefined).length,
    callsWithoutTokens: entries.filter(
      ({ inputTokens, outputTokens, priceSource }) =>
        priceSource !== "free" && (inputTokens === undefined || outputTokens === undefined)
    ).length,
    inputTokens: tokens("inputTokens"),
    outputTokens: tokens("outputTokens"),
    cacheReadTokens: tokens("cacheReadTokens"),
    cacheWriteTokens: tokens("cacheWriteTokens"),
    ...(cost === undefined ? {} : { cost }),
    ...(estimatedCost === undefined ? {} : { estimatedCost }),
    states: Object.fromEntries(
      State.literals.map((state) => [state, entries.filter((entry) => entry.state === state).length])
    ) as SpendSum["states"]
  }
}

/** Orders sums: the most expensive first, then by name; unnamed and unknown last. */
const compareSums = (a: SpendSum, b: SpendSum): number => {
  const [left, right] = [a.cost ?? -1n, b.cost ?? -1n]
  if (left !== right) return left > right ? -1 : 1
  if (a.group === b.group) return 0
  if (a.group === undefined || b.group === undefined) return a.group === undefined ? 1 : -1
  return a.group < b.group ? -1 : 1
}

export const sums = (
  { entries }: LedgerTable,
  { by, filter = {}, limit = groupsDefault }: SumsRequest
): Sums => {
  const found = newestOf(entries.values()).filter(matches(filter))
  const groups = [...Map.groupBy(found, groupOf[by])]
    .map(([group, some]) => sumOf(group, some))
    .toSorted(compareSums)
  return { sums: groups.slice(0, limit), truncated: groups.length > limit }
}
