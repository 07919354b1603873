/**
 * Runs that have no record yet: they start in this server, or wait in its queue. A list has them before all others.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as RunSearch from "@cogni/sandbox-core/RunSearch"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { SubmittedRun } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Effect } from "effect"
import * as Problem from "./Problem.ts"
import type { RosterRun } from "./RunRoster.ts"
import type { ListQuery } from "./RunsApi.ts"

/** A run that has no record yet. */
export type Unrecorded = Pick<RosterRun, "graphId" | "grantId" | "model" | "repository" | "runId"> &
  Pick<SubmittedRun, "end" | "submittedAt">

/** Returns whether a run that is starting fits a query. It has no time, no cost and no reason yet. */
export const isAsked = (run: Unrecorded, query: ListQuery): boolean =>
  (query.status === undefined || query.status.split(",").includes("starting")) &&
  (query.graph === undefined || query.graph === run.graphId) &&
  (query.model === undefined || query.model === run.model) &&
  (query.grant === undefined || query.grant === run.grantId) &&
  (query.repository === undefined || query.repository === run.repository) &&
  [query.reason, query.agent, query.session, query.from, query.to].every((one) => one === undefined) &&
  query.minCostUsd === undefined &&
  query.maxCostUsd === undefined

/** The place of a run in the list. Those of this server come first: nothing tells when they were asked for. */
const placeOf = ({ runId, submittedAt = "9" }: Unrecorded): RunSearch.Place => ({
  startedAt: submittedAt,
  runId
})

/** Begins a cursor to the runs without a record. No other cursor has a dot. */
const cursorPrefix = "starting."

export const formatCursor = (last: Unrecorded): string =>
  `${cursorPrefix}${RunSearch.formatCursor(placeOf(last))}`

export const parseCursor = (cursor: string): RunSearch.Place | undefined =>
  cursor.startsWith(cursorPrefix) ? RunSearch.parseCursor(cursor.slice(cursorPrefix.length)) : undefined

/** Returns the runs after a place, in the order of the list. */
export const after = (
  place: RunSearch.Place | undefined,
  runs: ReadonlyArray<Unrecorded>
): ReadonlyArray<Unrecorded> =>
  runs
    .filter((run) => place === undefined || RunSearch.order(place, placeOf(run)) < 0)
    .toSorted((one, other) => RunSearch.order(placeOf(one), placeOf(other)))

/** Maximum number of pages of running runs that a list reads. */
const runningPagesMax = 3

/** Returns the first runs that have no record. Asks for all that are running, and then only until it has enough. */
export const first = Effect.fnUntraced(function* (
  begun: ReadonlyArray<Unrecorded>,
  billingAccountId: string,
  runsMax: number
) {
  const store = yield* RunStore
  const left = new Map<RunId, Unrecorded>(begun.map((run) => [run.runId, run]))
  const filter: RunSearch.RunFilter = { billingAccountId, states: ["running"] }
  for (let page = 0, from: RunSearch.Place | undefined; page < runningPagesMax && left.size > 0; page++) {
    const { next, records } = yield* store.search({ filter, after: from })
    for (const { runId } of records) left.delete(runId)
    if (next === undefined) break
    from = next
  }
  const found: Array<Unrecorded> = []
  for (const run of left.values()) {
    if (found.length === runsMax) break
    if ((yield* store.describe(run.runId)) === undefined) found.push(run)
  }
  return found
}, Effect.catch(Problem.storeUnavailable))
