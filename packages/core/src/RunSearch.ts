/**
 * Questions to a run store: a filter, a page, and the place where the next page begins. Pure.
 *
 * Pages go from the newest run to the oldest. A run that starts meanwhile is in no later page, and no other run is
 * skipped or repeated.
 */
import { Option, Schema } from "effect"
import * as Base64Url from "effect/encoding/Base64Url"
import { of as factsOf, type RunFacts, RunState, type Source } from "./RunFacts.ts"
import { RunId } from "./RunId.ts"

/** Maximum number of runs in one page. */
export const pageRunsMax = 200

const Text = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(2000))
const Usd = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

/** A time in UTC, as `Date.toISOString` writes it, so that its text sorts by time. */
const Instant = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/u, {
    expected: "a time in UTC, such as 2026-01-31T23:59:59.000Z"
  })
)

/** Selects the runs that fit all given fields. An absent field selects all, an empty list none. */
export const RunFilter = Schema.Struct({
  states: Schema.optionalKey(Schema.Array(RunState)),
  reasons: Schema.optionalKey(Schema.Array(Text).check(Schema.isMaxLength(50))),
  billingAccountId: Schema.optionalKey(Text),
  grantId: Schema.optionalKey(Text),
  sessionId: Schema.optionalKey(Text),
  agentId: Schema.optionalKey(Text),
  graphId: Schema.optionalKey(Text),
  model: Schema.optionalKey(Text),
  repository: Schema.optionalKey(Text),
  /** Runs that started at this time or later. */
  from: Schema.optionalKey(Instant),
  /** Runs that started before this time. */
  to: Schema.optionalKey(Instant),
  /** Runs with a known cost of at least this, as counted when they ended. */
  costUsdMin: Schema.optionalKey(Usd),
  /** Runs with a known cost of at most this, as counted when they ended. */
  costUsdMax: Schema.optionalKey(Usd)
})

export type RunFilter = typeof RunFilter.Type

/** The place of a run in the order of pages. */
export const Place = Schema.Struct({ startedAt: Schema.String, runId: RunId })

export type Place = typeof Place.Type

export interface RunSearch {
  readonly filter?: RunFilter | undefined
  /** `next` of the page before. Absent for the first page. */
  readonly after?: Place | undefined
  /** Maximum number of runs (default and maximum {@link pageRunsMax}). */
  readonly limit?: number | undefined
}

export interface RunPage<Record extends Source> {
  readonly records: ReadonlyArray<Record>
  /** Present if there may be more. */
  readonly next?: Place | undefined
}

/** Fields of a filter that a fact must equal. */
export const equalFields = [
  "billingAccountId",
  "grantId",
  "sessionId",
  "agentId",
  "graphId",
  "model",
  "repository"
] as const satisfies ReadonlyArray<keyof RunFilter & keyof RunFacts>

/** Returns whether a run fits a filter. */
export const matches = (facts: RunFacts, filter: RunFilter = {}): boolean => {
  const { costUsdMax, costUsdMin, from, reasons, states, to } = filter
  const { costUsd, reason, startedAt, state } = facts
  return (
    (states === undefined || states.includes(state)) &&
    (reasons === undefined || (reason !== undefined && reasons.includes(reason))) &&
    equalFields.every((field) => filter[field] === undefined || filter[field] === facts[field]) &&
    (from === undefined || startedAt >= from) &&
    (to === undefined || startedAt < to) &&
    (costUsdMin === undefined || (costUsd !== undefined && costUsd >= costUsdMin)) &&
    (costUsdMax === undefined || (costUsd !== undefined && costUsd <= costUsdMax))
  )
}

export const placeOf = ({ runId, startedAt }: Place): Place => ({ startedAt, runId })

/** Orders places from the newest run to the oldest. */
export const order = (a: Place, b: Place): number => {
  const [left, right] = a.startedAt === b.startedAt ? [a.runId, b.runId] : [a.startedAt, b.startedAt]
  return left === right ? 0 : left < right ? 1 : -1
}

/** Returns the number of runs in a page. */
export const limitOf = ({ limit = pageRunsMax }: RunSearch): number =>
  Math.min(Math.max(1, limit), pageRunsMax)

/** Searches records that are all in memory. */
export const search = <Record extends Source>(
  records: ReadonlyArray<Record>,
  asked: RunSearch
): RunPage<Record> => {
  const { after, filter } = asked
  const limit = limitOf(asked)
  const found = records
    .filter((record) => (after === undefined || order(after, record) < 0) && matches(factsOf(record), filter))
    .toSorted(order)
  const page = found.slice(0, limit)
  const last = page.at(-1)
  return found.length > page.length && last !== undefined
    ? { records: page, next: placeOf(last) }
    : { records: page }
}

const PlaceText = Schema.fromJsonString(Place)
const decodePlace = Schema.decodeUnknownOption(PlaceText)

/** Formats a place as an opaque cursor. */
export const formatCursor = (place: Place): string => Base64Url.encode(JSON.stringify(placeOf(place)))

/** Parses a cursor. Returns `undefined` for text that {@link formatCursor} did not write. */
export const parseCursor = (cursor: string): Place | undefined =>
  Option.getOrUndefined(Option.flatMap(Option.getSuccess(Base64Url.decodeString(cursor)), decodePlace))
