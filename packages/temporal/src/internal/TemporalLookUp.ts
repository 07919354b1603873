/**
 * Looks up durable runs in Temporal, and cancels them. The memo of a workflow tells whose run it is, and its result how
 * the run ended. Other programs may have workflows in the namespace: only those of our type are seen or cancelled.
 */
import { type WorkflowClient, type WorkflowExecutionInfo, WorkflowNotFoundError } from "@temporalio/client"
import { defineSearchAttributeKey } from "@temporalio/common"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { SubmittedRun } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Effect, Option, Schema } from "effect"
import type { DurableOutcome, DurableRun, RunOwner } from "../DurableRun.ts"
import { type RunsOptions, TemporalFailed } from "../TemporalServer.ts"
import * as Answering from "./Answering.ts"
import * as RunEnd from "./RunEnd.ts"
import * as SearchValue from "./SearchValue.ts"

/** Name of the memo. */
const memoName = "cogni"

/** Most runs of a list. */
const listedMax = 500

/** Most runs that are read for a list: of all accounts, if the name of the account cannot be in a query. */
const readMax = 10 * listedMax

const Memo = Schema.Struct({
  billingAccountId: Schema.String,
  grantId: Schema.String,
  graphId: Schema.String,
  model: Schema.String,
  repository: Schema.optionalKey(Schema.String)
})

const accountKey = defineSearchAttributeKey("CogniAccount", "KEYWORD")

const decodeMemo = Schema.decodeUnknownOption(Memo)
const isRunId = Schema.is(RunId)

/** The memo of a new run. It has nothing of the conversation. */
export const memoOf = ({ grantId, request }: DurableRun, { billingAccountId, model }: RunOwner) => ({
  [memoName]: {
    billingAccountId,
    grantId,
    graphId: request.graphId,
    model,
    ...(request.repository === undefined ? {} : { repository: request.repository.url })
  } satisfies typeof Memo.Type
})

/** Returns a run that was submitted with its owner. */
const runOf = ({
  memo,
  workflowId
}: Pick<WorkflowExecutionInfo, "memo" | "workflowId">): SubmittedRun | undefined => {
  const known = Option.getOrUndefined(decodeMemo(memo?.[memoName]))
  return known === undefined || !isRunId(workflowId) ? undefined : { runId: workflowId, ...known }
}

/** The workflow as far as it tells whose it is. */
type Described = Pick<WorkflowExecutionInfo, "memo" | "typedSearchAttributes" | "workflowId">

/**
 * Returns the account of a workflow. One that was submitted without its owner has no memo: its worker adds the account
 * to its search attributes, if the namespace has them. `undefined`: the workflow names none.
 */
const ownerOf = (described: Described): string | undefined =>
  runOf(described)?.billingAccountId ?? described.typedSearchAttributes.get(accountKey) ?? undefined

/** Names that need no escape in a query. Runs of other accounts are found without this condition. */
const plainName = /^[\w.:@/ +-]+$/u

const describe = (workflow: WorkflowClient, runId: string) =>
  workflow
    .getHandle(runId)
    .describe()
    .catch((error: unknown) => {
      if (error instanceof WorkflowNotFoundError) return undefined
      throw error
    })

/** A workflow without an account is cancelled for no account: it could be that of another. */
const ownerUnknown = (runId: string) =>
  new TemporalFailed({
    reason: "OwnerUnknown",
    detail: `the workflow of ${runId} names no account, so it cannot be cancelled for one`,
    remedy:
      "It was submitted without its owner. Its account is known when a worker has checked its grant, if the namespace " +
      `has search attributes. An operator can cancel it: temporal workflow cancel --workflow-id ${runId}`
  })

export const notFound = (runId: string, namespace: string) =>
  new TemporalFailed({
    reason: "RunNotFound",
    detail: `there is no durable run ${runId} in namespace ${namespace}`,
    remedy: "Check the ID and the namespace. Ended runs are kept for the retention time of the namespace"
  })

/** To interrupt `wait` ends its call. */
export const make = (
  workflow: WorkflowClient,
  { isSearchable, namespace, taskQueue }: RunsOptions,
  workflowType: string,
  wait: (runId: string) => Effect.Effect<DurableOutcome, TemporalFailed>
) => {
  const asked = <A>(what: string, task: () => Promise<A>) =>
    Answering.within(workflow, what, task, (error) => TemporalFailed.of(what, error))
  return {
    find: Effect.fn("DurableRuns.find")(function* (
      runId: string
    ): Effect.fn.Return<SubmittedRun | undefined, TemporalFailed> {
      const described = yield* asked("find a run", () => describe(workflow, runId))
      const run = described?.type === workflowType ? runOf(described) : undefined
      if (run === undefined || described?.status.name === "RUNNING") return run
      // One that was terminated has no outcome.
      const outcome = yield* Effect.result(Answering.bounded("find a run")(wait(runId)))
      if (outcome._tag === "Success") return { ...run, end: RunEnd.stateOf(outcome.success) }
      return outcome.failure.isRetryable
        ? yield* Effect.fail(outcome.failure)
        : { ...run, end: { state: "interrupted", reason: "Terminated" } }
    }),
    cancel: Effect.fn("DurableRuns.cancel")(function* (
      runId: string,
      billingAccountId?: string
    ): Effect.fn.Return<void, TemporalFailed> {
      const found = yield* Answering.within(
        workflow,
        "cancel a run",
        async (): Promise<"absent" | "cancelled" | "unknown"> => {
          const described = await describe(workflow, runId)
          if (described?.type !== workflowType) return "absent"
          if (billingAccountId !== undefined) {
            const owner = ownerOf(described)
            if (owner === undefined) return "unknown"
            if (owner !== billingAccountId) return "absent"
          }
          // Only this execution: another one may get the ID.
          await workflow.getHandle(runId, described.runId).cancel()
          return "cancelled"
        },
        (error) =>
          error instanceof WorkflowNotFoundError
            ? notFound(runId, namespace)
            : TemporalFailed.of("cancel a run", error)
      )
      if (found === "unknown") return yield* ownerUnknown(runId)
      if (found === "absent") return yield* notFound(runId, namespace)
    }),
    underWay: Effect.fn("DurableRuns.underWay")(function* (
      billingAccountId: string
    ): Effect.fn.Return<ReadonlyArray<SubmittedRun>, TemporalFailed> {
      if (!isSearchable) return []
      const account = plainName.test(billingAccountId)
        ? ` AND CogniAccount = "${SearchValue.of(billingAccountId)}"`
        : ""
      const query =
        `WorkflowType = "${workflowType}" AND TaskQueue = "${taskQueue}" AND ExecutionStatus = "Running"` +
        account
      return yield* asked("list the runs", async () => {
        const found: Array<SubmittedRun> = []
        let read = 0
        for await (const info of workflow.list({ query, pageSize: 100 })) {
          const run = runOf(info)
          if (run?.billingAccountId === billingAccountId)
            found.push({ ...run, submittedAt: info.startTime.toISOString() })
          if (found.length === listedMax || ++read === readMax) break
        }
        return found
      })
    })
  }
}
