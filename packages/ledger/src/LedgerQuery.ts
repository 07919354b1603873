/** Questions to a ledger: filters, pages and sums. */
import * as Schema from "effect/Schema"
import { LedgerEntry } from "./LedgerEntry.ts"
import { Instant, State } from "./EntryFields.ts"
import type * as Money from "./Money.ts"

const {
  agentId,
  billingAccountId,
  graphId,
  model,
  runId,
  runKeyHash,
  upstream,
  usageUnitId,
  userId,
  virtualKeyId
} = LedgerEntry.fields

/** Maximum number of entries in one page. */
export const pageEntriesMax = 1000

/** Maximum number of groups in one answer. */
export const groupsMax = 10_000

/** Maximum number of call IDs, and of run IDs, in one filter. */
export const unitsMax = 500

/** Selects the entries that fit all given fields. An absent field selects all. */
export const Filter = Schema.Struct({
  runId: Schema.optionalKey(runId),
  runIds: Schema.optionalKey(Schema.Array(runId).check(Schema.isMaxLength(unitsMax))),
  billingAccountId: Schema.optionalKey(billingAccountId),
  userId,
  graphId,
  agentId,
  virtualKeyId,
  runKeyHash,
  model: Schema.optionalKey(model),
  upstream: Schema.optionalKey(upstream),
  usageUnitIds: Schema.optionalKey(Schema.Array(usageUnitId).check(Schema.isMaxLength(unitsMax))),
  states: Schema.optionalKey(Schema.Array(State)),
  /** Calls that began at this time or later. */
  from: Schema.optionalKey(Instant),
  /** Calls that began before this time. */
  to: Schema.optionalKey(Instant),
  /** `newest` (default): what counts. `all`: also the revisions that were corrected. */
  revisions: Schema.optionalKey(Schema.Literals(["newest", "all"]))
})

export type Filter = typeof Filter.Type

export const PageRequest = Schema.Struct({
  /** `next` of the page before. Absent for the first page. */
  after: Schema.optionalKey(Schema.String.check(Schema.isMaxLength(2000))),
  /** Default: {@link pageEntriesMax}. */
  limit: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: pageEntriesMax })))
})

export type PageRequest = typeof PageRequest.Type

/** Entries by the time at which their calls began, the oldest first. */
export interface Page {
  readonly entries: ReadonlyArray<LedgerEntry>
  /** Present if there may be more. */
  readonly next?: string | undefined
}

/** Ways to group sums. A day is one of UTC. */
export const GroupBy = Schema.Literals([
  "total",
  "account",
  "user",
  "graph",
  "agent",
  "model",
  "upstream",
  "run",
  "day"
])

export type GroupBy = typeof GroupBy.Type

/** Sum of the newest revisions of a group of calls. */
export interface SpendSum {
  /** Absent if the entries name none, such as runs without a graph, and for `total`. */
  readonly group?: string | undefined
  readonly calls: number
  /** Calls whose cost is unknown, and not in `cost`. */
  readonly callsWithoutCost: number
  /** Calls whose tokens are unknown, and not in the counts of tokens. */
  readonly callsWithoutTokens: number
  readonly inputTokens: number
  readonly outputTokens: number
  readonly cacheReadTokens: number
  readonly cacheWriteTokens: number
  /** Sum of the known costs. Absent if no cost is known. */
  readonly cost?: Money.Pico | undefined
  /** The part of `cost` that was charged as reserved. */
  readonly estimatedCost?: Money.Pico | undefined
  /** Number of calls in each state. */
  readonly states: Readonly<Record<State, number>>
}

/** Groups in an answer without a limit. */
export const groupsDefault = 1000

export const SumsRequest = Schema.Struct({
  by: GroupBy,
  /** `revisions` has no effect: the newest count. */
  filter: Schema.optionalKey(Filter),
  /** Maximum number of groups (default {@link groupsDefault}). The most expensive come first. */
  limit: Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: groupsMax })))
})

export type SumsRequest = typeof SumsRequest.Type

export interface Sums {
  readonly sums: ReadonlyArray<SpendSum>
  /** There are more groups than the limit. */
  readonly truncated: boolean
}
