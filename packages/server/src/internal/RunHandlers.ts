/**
 * Handlers for the runs of one account: get, list, and cancel a run that is under way in this server or was submitted
 * to a queue. A run of another account is answered as if it did not exist.
 */
import { RunState } from "@cogni/sandbox-core/RunFacts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunSearch from "@cogni/sandbox-core/RunSearch"
import { RunStore, type RunStoreError } from "@cogni/sandbox-core/RunStore"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import {
  type SubmittedRun,
  SubmittedRuns,
  type SubmittedRunsUnavailable
} from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as RunCost from "@cogni/sandbox-ledger/RunCost"
import { Effect, Option, Schema } from "effect"
import { HttpBody, HttpServerRequest } from "effect/http"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import { type ListQuery, listQuery } from "./RunsApi.ts"
import { RunRoster } from "./RunRoster.ts"
import * as RunView from "./RunView.ts"
import * as SharedReadings from "./SharedReadings.ts"
import * as UnrecordedRuns from "./UnrecordedRuns.ts"

const listedDefault = 20

const isRunId = Schema.is(RunId)

/** Returns the view of a run that has no record: it starts, or its queue ended it before a host had it. */
const unrecordedView = ({
  end,
  graphId,
  model,
  repository,
  runId
}: UnrecordedRuns.Unrecorded): RunView.RunView => ({
  runId,
  status: end?.state ?? "starting",
  graphId,
  model,
  repository,
  ...(end?.reason === undefined ? {} : { error: { reason: end.reason } }),
  timings: []
})

/** Returns a view as the body of an answer, which any number of answers can have. */
const bodyOf = (view: RunView.RunView): HttpBody.HttpBody => HttpBody.jsonUnsafe(view)

/** Returns the view of a run whose host cannot tell any more that it was lost. */
const lostView = (view: RunView.RunView, { end }: Pick<SubmittedRun, "end">): RunView.RunView =>
  end === undefined || view.status !== "running"
    ? view
    : { ...view, status: end.state, error: { reason: end.reason ?? "HostLost" } }

const notFound = Problem.make(
  "not_found",
  "RunNotFound",
  "this account has no such run. See /api/v1/runs for its runs"
)

const cancelElsewhere = Problem.make(
  "conflict",
  "RunElsewhere",
  "the run is under way in another process. Cancel it there"
)

const cancelUnknown = Problem.make(
  "conflict",
  "RunElsewhere",
  "the run is under way on a host, and its queue names no account for it. Cancel it at the server of its host, or ask " +
    "the operator to cancel it in the queue"
)

const isState = Schema.is(RunState)

/** Splits a list of a query, or fails with the first unknown value. */
const statusesOf = (status: string | undefined) => {
  if (status === undefined) return Effect.succeed(undefined)
  const asked = status.split(",")
  const unknown = asked.find((one) => !isStatus(one))
  return unknown === undefined
    ? Effect.succeed(asked as ReadonlyArray<RunView.RunStatus>)
    : Effect.fail(
        Problem.make(
          "invalid_request",
          "RequestInvalid",
          `status: Expected a list of ${RunView.RunStatus.literals.join(", ")}, separated by commas`
        )
      )
}

const isStatus = Schema.is(RunView.RunStatus)

/** Fails for a parameter that a list does not have: with a misspelt condition, it would have all runs. */
const checkNames = Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ url }) => {
  const names = [...new URLSearchParams(url.split("?")[1] ?? "").keys()]
  const unknown = names.find((name) => !Object.hasOwn(listQuery, name))
  return unknown === undefined
    ? Effect.void
    : Effect.fail(
        Problem.make(
          "invalid_request",
          "RequestInvalid",
          `${unknown.slice(0, 100)}: no such parameter. A list has ${Object.keys(listQuery).join(", ")}`
        )
      )
})

/** Returns what a query asks of the store, or fails with the problem of the query. */
const searchOf = Effect.fnUntraced(function* (query: ListQuery, billingAccountId: string) {
  const { after, agent, graph, maxCostUsd, minCostUsd, grant, limit, reason, session, status, ...same } =
    query
  const { account: _, ...equal } = same
  const statuses = yield* statusesOf(status)
  const place = after === undefined ? undefined : RunSearch.parseCursor(after)
  const starting = after === undefined ? undefined : UnrecordedRuns.parseCursor(after)
  if (after !== undefined && place === undefined && starting === undefined)
    return yield* Effect.fail(
      Problem.make(
        "invalid_request",
        "CursorInvalid",
        "after is not a cursor of this list. Send `next` of the page before, unchanged"
      )
    )
  const filter: RunSearch.RunFilter = {
    ...equal,
    billingAccountId,
    ...(statuses === undefined ? {} : { states: statuses.filter(isState) }),
    ...(reason === undefined ? {} : { reasons: reason.split(",").slice(0, 50) }),
    ...(agent === undefined ? {} : { agentId: agent }),
    ...(graph === undefined ? {} : { graphId: graph }),
    ...(grant === undefined ? {} : { grantId: grant }),
    ...(session === undefined ? {} : { sessionId: session }),
    ...(minCostUsd === undefined ? {} : { costUsdMin: minCostUsd }),
    ...(maxCostUsd === undefined ? {} : { costUsdMax: maxCostUsd })
  }
  return { filter, place, starting, statuses, limit: limit ?? listedDefault }
})

/** `traceUrl` is the address of a viewer of traces, with `{traceId}` in the place of the ID. */
export const make = Effect.fnUntraced(function* (traceUrl?: string) {
  const roster = yield* RunRoster
  const store = yield* RunStore
  const ledger = yield* Effect.serviceOption(Ledger)
  const queue = yield* Effect.serviceOption(SubmittedRuns)

  /** Finds a run in the queue, for one that this server does not run, and whose record does not say how it ended. */
  const submittedOf = (runId: RunId, hasRecord: boolean) =>
    Option.isNone(queue)
      ? Effect.succeed(undefined)
      : queue.value
          .find(runId)
          .pipe(
            Effect.catch((error) =>
              hasRecord
                ? Effect.as(Effect.logWarning(error.message), undefined)
                : Problem.storeUnavailable(error)
            )
          )

  const waiting = SharedReadings.make<ReadonlyArray<SubmittedRun>, SubmittedRunsUnavailable>()

  /** Submitted runs that have not ended. A list without them is better than none. */
  const waitingOf = (billingAccountId: string) =>
    Option.isNone(queue)
      ? Effect.succeed([])
      : waiting(billingAccountId, queue.value.underWay(billingAccountId)).pipe(
          Effect.catch(({ message }) =>
            Effect.as(Effect.logWarning(`runs that wait for a host are not listed. ${message}`), [])
          )
        )

  /** The cost of a run. A view without it is better than none. */
  const costsOf = (runIds: ReadonlyArray<RunId>) =>
    Option.isNone(ledger) || runIds.length === 0
      ? Effect.succeed(new Map<string, RunCost.RunCost>())
      : RunCost.findAll(runIds).pipe(
          Effect.provideService(Ledger, ledger.value),
          Effect.catch(({ message }) =>
            Effect.as(
              Effect.logWarning(`the cost of ${runIds.length} runs is not shown. ${message}`),
              new Map<string, RunCost.RunCost>()
            )
          )
        )

  const linked = (view: RunView.RunView): RunView.RunView =>
    view.traceId === undefined || traceUrl === undefined
      ? view
      : { ...view, traceUrl: traceUrl.replaceAll("{traceId}", encodeURIComponent(view.traceId)) }

  /** Runs of this server and of its queue that may have no record, each once. */
  const begunOf = Effect.fnUntraced(function* (billingAccountId: string, query: ListQuery) {
    const here = (yield* roster.list).filter((run) => run.billingAccountId === billingAccountId)
    const ids = new Set(here.map(({ runId }) => runId))
    const waiting = (yield* waitingOf(billingAccountId)).filter(({ runId }) => !ids.has(runId))
    const all: ReadonlyArray<UnrecordedRuns.Unrecorded> = [...here, ...waiting]
    return all.filter((run) => UnrecordedRuns.isAsked(run, query))
  })

  /** Reads what a record is shown as, with the cost of its run. */
  const viewed = Effect.fnUntraced(function* (runId: RunId, isUnderWay: boolean) {
    const record = yield* store.describe(runId)
    if (record === undefined) return undefined
    const costs = yield* costsOf([runId])
    const view: RunView.RunView = {
      ...linked(RunView.fromRecord(record)),
      isUnderWay: isUnderWay || undefined,
      cost: costs.get(runId)
    }
    return { record, view, body: bodyOf(view) }
  })

  const records = SharedReadings.make<RunRecord | undefined, RunStoreError>()
  const views = SharedReadings.make<Effect.Success<ReturnType<typeof viewed>>, RunStoreError>()

  /**
   * Finds a run of the account: what is read of it, its entry in this server's roster, what its queue knows, or
   * several. The record decides, because a request for a run with the ID of another account's run is in the roster
   * until it is refused.
   */
  const findOwn = Effect.fnUntraced(function* <A>(
    id: string,
    read: (runId: RunId, isUnderWay: boolean) => Effect.Effect<A | undefined, RunStoreError>,
    recordOf: (found: A) => RunRecord
  ) {
    const { billingAccountId } = yield* CurrentGrant
    if (!isRunId(id)) return yield* Effect.fail(notFound)
    const starting = yield* roster.find(id)
    const here = starting?.billingAccountId === billingAccountId ? starting : undefined
    const found = yield* read(id, here !== undefined).pipe(Effect.catch(Problem.storeUnavailable))
    const record = found === undefined ? undefined : recordOf(found)
    if (record !== undefined && RunView.accountOf(record) !== billingAccountId)
      return yield* Effect.fail(notFound)
    const isKnown = here !== undefined || (record !== undefined && RunView.isOver(record))
    const known = isKnown ? undefined : yield* submittedOf(id, record !== undefined)
    const submitted = known?.billingAccountId === billingAccountId ? known : undefined
    if (found === undefined && here === undefined && submitted === undefined)
      return yield* Effect.fail(notFound)
    return { runId: id, here, found, submitted, isForeign: known !== undefined && submitted === undefined }
  })

  /** Looks up a run of the account. */
  const lookUp = (id: string) =>
    Effect.map(
      findOwn(
        id,
        (runId) => records(runId, store.describe(runId)),
        (record) => record
      ),
      ({ found, ...rest }) => ({ ...rest, record: found })
    )

  const cancelSubmitted = Effect.fnUntraced(function* (runId: RunId) {
    const { billingAccountId } = yield* CurrentGrant
    return Option.isNone(queue)
      ? false
      : yield* queue.value.cancel(runId, billingAccountId).pipe(Effect.catch(Problem.storeUnavailable))
  })

  return {
    lookUp,
    /** Returns the JSON of the view of a run. */
    get: Effect.fn("SandboxServer.getRun")(function* (id: string) {
      const { found, here, submitted } = yield* findOwn(
        id,
        (runId, isUnderWay) => views(`${isUnderWay} ${runId}`, viewed(runId, isUnderWay)),
        ({ record }) => record
      )
      // One of them is known.
      if (found === undefined)
        return bodyOf({
          ...unrecordedView(here ?? submitted!),
          isUnderWay: here === undefined ? undefined : true
        })
      return submitted?.end === undefined ? found.body : bodyOf(lostView(found.view, submitted))
    }),
    list: Effect.fn("SandboxServer.listRuns")(function* (query: ListQuery) {
      const { billingAccountId } = yield* CurrentGrant
      yield* checkNames
      const { filter, limit, place, starting, statuses } = yield* searchOf(query, billingAccountId)
      if (query.account !== undefined && query.account !== billingAccountId) return { runs: [] }
      const begun = place === undefined ? yield* begunOf(billingAccountId, query) : []
      const unrecorded = yield* UnrecordedRuns.first(
        UnrecordedRuns.after(starting, begun),
        billingAccountId,
        limit
      ).pipe(Effect.provideService(RunStore, store))
      const first = unrecorded.map(unrecordedView)
      const last = unrecorded.at(-1)
      if (last !== undefined && first.length === limit)
        return { runs: first, next: UnrecordedRuns.formatCursor(last) }
      const isOnlyStarting = statuses !== undefined && filter.states?.length === 0
      const { next, records } = isOnlyStarting
        ? { records: [], next: undefined }
        : yield* store
            .search({ filter, after: place, limit: limit - first.length })
            .pipe(Effect.catch(Problem.storeUnavailable))
      const costs = yield* costsOf(records.map(({ runId }) => runId))
      return {
        runs: [
          ...first,
          ...records.map((record) => ({ ...linked(RunView.listed(record)), cost: costs.get(record.runId) }))
        ],
        ...(next === undefined ? {} : { next: RunSearch.formatCursor(next) })
      }
    }),
    cancel: Effect.fn("SandboxServer.cancelRun")(function* (id: string) {
      const { here, isForeign, record, runId, submitted } = yield* lookUp(id)
      if (here === undefined) {
        // The account has a record of this ID, but the queue has the run of another account.
        if (isForeign) return yield* Effect.fail(notFound)
        const isOver = (record !== undefined && RunView.isOver(record)) || submitted?.end !== undefined
        if (isOver)
          return yield* Effect.fail(Problem.make("conflict", "RunOver", "the run has already ended"))
        // A run that was submitted without its owner is known by its record. Its workflow may name no account.
        if (!(yield* cancelSubmitted(runId)))
          return yield* Effect.fail(Option.isNone(queue) ? cancelElsewhere : cancelUnknown)
        return { runId, status: "cancelling" as const }
      }
      yield* here.cancel
      return { runId: here.runId, status: "cancelling" as const }
    })
  }
})

export type RunHandlers = Effect.Success<ReturnType<typeof make>>
