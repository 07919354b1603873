/** A schedule in the same namespace that is not one of ours. */
import { Client, Connection } from "@temporalio/client"

/** Adds a schedule of another program. */
export const addOther = async (address: string) => {
  const connection = await Connection.connect({ address })
  await new Client({ connection }).schedule.create({
    scheduleId: "other",
    spec: { intervals: [{ every: "1 day" }] },
    action: { type: "startWorkflow", workflowType: "other", taskQueue: "other" }
  })
  await connection.close()
}
