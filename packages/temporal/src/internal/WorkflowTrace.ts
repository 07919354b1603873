/**
 * Passes the trace of a submission on to the activities of its run. Bundled with the workflow.
 *
 * A run without one, such as that of a schedule, gets a trace of its own from the ID of its workflow run. That is the
 * same after each replay.
 */
import { workflowInfo, type WorkflowInterceptors } from "@temporalio/workflow"
import { type Parent, parentIn, withParent } from "./TraceHeader.ts"

const ownTrace = (): Parent => {
  const traceId = workflowInfo().runId.replaceAll("-", "")
  return { traceId, spanId: traceId.slice(0, 16) }
}

export const interceptors = (): WorkflowInterceptors => {
  let parent: Parent | undefined
  return {
    inbound: [
      {
        execute: (input, next) => {
          parent = parentIn(input.headers) ?? ownTrace()
          return next(input)
        }
      }
    ],
    outbound: [
      {
        scheduleActivity: (input, next) => next({ ...input, headers: withParent(input.headers, parent) }),
        scheduleLocalActivity: (input, next) =>
          next({ ...input, headers: withParent(input.headers, parent) }),
        startChildWorkflowExecution: (input, next) =>
          next({ ...input, headers: withParent(input.headers, parent) })
      }
    ]
  }
}
