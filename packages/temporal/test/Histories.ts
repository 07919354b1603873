/** Reads histories of runs from Temporal. */
import { Client, Connection } from "@temporalio/client"

/** How an activity of a run is retried. No attempts: as often as its time allows. */
export const retryOf = async (
  address: string,
  runId: string,
  activity: string
): Promise<{ readonly maximumAttempts?: number | null } | null | undefined> => {
  const connection = await Connection.connect({ address })
  try {
    const { events } = await new Client({ connection }).workflow.getHandle(runId).fetchHistory()
    const scheduled = (events ?? []).flatMap((event) => event.activityTaskScheduledEventAttributes ?? [])
    return scheduled.find(({ activityType }) => activityType?.name === activity)?.retryPolicy
  } finally {
    await connection.close()
  }
}
