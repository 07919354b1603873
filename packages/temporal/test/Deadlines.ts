/** Reads the deadlines of workflows, and starts one that no worker takes. */
import { Client, Connection } from "@temporalio/client"
import { Effect } from "effect"

const using = <A>(address: string, task: (client: Client) => Promise<A>) =>
  Effect.acquireUseRelease(
    Effect.promise(() => Connection.connect({ address })),
    (connection) => Effect.promise(() => task(new Client({ connection }))),
    (connection) => Effect.promise(() => connection.close())
  )

/** Returns the time in seconds after which Temporal ends a workflow. */
export const deadlineOfRun = (address: string, workflowId: string) =>
  using(address, async ({ workflow }) => {
    const { raw } = await workflow.getHandle(workflowId).describe()
    return Number(raw.executionConfig?.workflowExecutionTimeout?.seconds)
  })

/** The same, for each workflow that a schedule starts. */
export const deadlineOfSchedule = (address: string, scheduleId: string) =>
  using(address, async ({ schedule }) => {
    const { raw } = await schedule.getHandle(scheduleId).describe()
    return Number(raw.schedule?.action?.startWorkflow?.workflowExecutionTimeout?.seconds)
  })

/** Starts a workflow that Temporal ends after some seconds. */
export const startUntaken = (address: string, workflowId: string, seconds: number) =>
  using(address, ({ workflow }) =>
    workflow.start("sandboxAgentRun", {
      workflowId,
      taskQueue: "cogni-sandbox",
      workflowExecutionTimeout: `${seconds} seconds`,
      args: []
    })
  )

/** Starts a workflow that no worker knows, so that its tasks fail. */
export const startUnknown = (address: string, workflowId: string) =>
  using(address, ({ workflow }) =>
    workflow.start("unknown", { workflowId, taskQueue: "cogni-sandbox", args: [] })
  )
