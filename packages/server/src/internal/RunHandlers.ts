/**
 * Handlers for the runs of one account: get, list, and cancel a run that is under way in this server. A run of another
 * account is answered as if it did not exist.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { type RunRecord, RunStore } from "@cogni/sandbox-core/RunStore"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as RunCost from "@cogni/sandbox-ledger/RunCost"
import { Effect, Option, Schema } from "effect"
import { CurrentGrant } from "./Authentication.ts"
import * as Problem from "./Problem.ts"
import { type RosterRun, RunRoster } from "./RunRoster.ts"
import * as RunView from "./RunView.ts"

const listedDefault = 20

const isRunId = Schema.is(RunId)

/** Returns the view of a run that has no record yet. */
const starting = ({ graphId, model, runId }: RosterRun): RunView.RunView => ({
  runId,
  status: "starting",
  graphId,
  model,
  timings: []
})

/** Returns the view of a run for a list, without its long posture. */
const listed = (record: RunRecord): RunView.RunView => {
  const { posture: _, ...view } = RunView.fromRecord(record)
  return view
}

const notFound = Problem.make(
  "not_found",
  "RunNotFound",
  "this account has no such run. See /api/v1/runs for its runs"
)

export const make = Effect.gen(function* () {
  const roster = yield* RunRoster
  const store = yield* RunStore
  const ledger = yield* Effect.serviceOption(Ledger)

  /** The cost of a run. A view without it is better than none. */
  const costOf = (runId: RunId) =>
    Option.isNone(ledger)
      ? Effect.succeed(undefined)
      : RunCost.find(runId).pipe(
          Effect.provideService(Ledger, ledger.value),
          Effect.catch(({ message }) =>
            Effect.as(Effect.logWarning(`the cost of run ${runId} is not shown. ${message}`), undefined)
          )
        )

  /** Looks up a run of the account: its record, its entry in this server's roster, or both. */
  const lookUp = Effect.fnUntraced(function* (id: string) {
    const { billingAccountId } = yield* CurrentGrant
    if (!isRunId(id)) return yield* Effect.fail(notFound)
    const here = yield* roster.find(id)
    const record = yield* store.describe(id).pipe(Effect.catch(Problem.storeUnavailable))
    const ours = {
      here: here?.billingAccountId === billingAccountId ? here : undefined,
      record: record !== undefined && RunView.accountOf(record) === billingAccountId ? record : undefined
    }
    return ours.here === undefined && ours.record === undefined ? yield* Effect.fail(notFound) : ours
  })

  return {
    get: Effect.fn("SandboxServer.getRun")(function* (id: string) {
      const { here, record } = yield* lookUp(id)
      return record === undefined
        ? starting(here!)
        : { ...RunView.fromRecord(record), cost: yield* costOf(record.runId) }
    }),
    list: Effect.fn("SandboxServer.listRuns")(function* (limit: number = listedDefault) {
      const { billingAccountId } = yield* CurrentGrant
      const records = (yield* store.list.pipe(Effect.catch(Problem.storeUnavailable))).filter(
        (record) => RunView.accountOf(record) === billingAccountId
      )
      const known = new Set(records.map(({ runId }) => runId))
      const begun = (yield* roster.list).filter(
        (run) => run.billingAccountId === billingAccountId && !known.has(run.runId)
      )
      return { runs: [...begun.map(starting), ...records.slice(0, limit).map(listed)].slice(0, limit) }
    }),
    cancel: Effect.fn("SandboxServer.cancelRun")(function* (id: string) {
      const { here, record } = yield* lookUp(id)
      if (here === undefined) {
        const isOver = record === undefined || RunView.isOver(record)
        return yield* Effect.fail(
          isOver
            ? Problem.make("conflict", "RunOver", "the run has already ended")
            : Problem.make(
                "conflict",
                "RunElsewhere",
                "the run is under way in another process. Cancel it there"
              )
        )
      }
      yield* here.cancel
      return { runId: here.runId, status: "cancelling" as const }
    })
  }
})
