/**
 * The workflow `scheduledAgentRun`: what a schedule of Temporal starts at each firing.
 *
 * Temporal appends a time to its ID, which is not a run ID. So it starts the run as a child, whose workflow ID is the
 * run ID as for any other run, and stays until the run has ended: then Temporal's rules for overlaps apply to the run.
 */
import { defineSearchAttributeKey, WorkflowExecutionAlreadyStartedError } from "@temporalio/common"
import {
  ApplicationFailure,
  ChildWorkflowFailure,
  executeChild,
  isCancellation,
  ParentClosePolicy,
  workflowInfo,
  WorkflowIdReusePolicy
} from "@temporalio/workflow"
import type { DurableOutcome, DurableRun } from "../DurableRun.ts"
import type { RunSchedule } from "../RunSchedule.ts"
import type { WorkflowInput } from "./WorkflowInput.ts"
import { runSecondsMax } from "./RunDeadline.ts"
import { runIdOf } from "./ScheduledRunId.ts"

/** The input of the workflow. */
export interface ScheduledInput {
  readonly schedule: RunSchedule
  /** A part of each run ID that no other account can guess. */
  readonly tag?: string
  readonly isSearchable: boolean
  /** Search attributes of the run, by their names. */
  readonly attributes: Readonly<Record<string, string>>
}

export async function scheduledAgentRun(input: ScheduledInput): Promise<DurableOutcome> {
  const { attributes, isSearchable, tag } = input
  const { name, run } = input.schedule
  const { workflowId } = workflowInfo()
  const runId = runIdOf(name, tag, workflowId)
  if (runId === undefined)
    throw ApplicationFailure.nonRetryable(`no schedule has started ${workflowId}`, "ScheduleInvalid")
  const child: WorkflowInput = { run: { ...run, runId: runId as DurableRun["runId"] }, isSearchable }
  try {
    return await executeChild<(input: WorkflowInput) => Promise<DurableOutcome>>("sandboxAgentRun", {
      workflowId: runId,
      args: [child],
      workflowExecutionTimeout: `${runSecondsMax(run)} seconds`,
      workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
      // If this workflow is terminated, the sandbox must end in order.
      parentClosePolicy: ParentClosePolicy.REQUEST_CANCEL,
      ...(isSearchable ? { typedSearchAttributes: keysOf(attributes) } : {})
    })
  } catch (error) {
    throw failureOf(runId, error)
  }
}

const keysOf = (attributes: ScheduledInput["attributes"]) =>
  Object.entries(attributes).map(([name, value]) => ({
    key: defineSearchAttributeKey(name, "KEYWORD"),
    value
  }))

/** The failure of the run, so that the schedule shows it. */
const failureOf = (runId: string, error: unknown): unknown => {
  if (error instanceof WorkflowExecutionAlreadyStartedError)
    return ApplicationFailure.nonRetryable(`a durable run ${runId} exists already`, "RunIdInUse")
  const cause = error instanceof ChildWorkflowFailure && !isCancellation(error) ? error.cause : undefined
  return cause instanceof ApplicationFailure
    ? ApplicationFailure.nonRetryable(cause.message, cause.type, ...(cause.details ?? []))
    : error
}
