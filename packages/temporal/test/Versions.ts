/** The operator's side of worker versions, which `temporal worker deployment` has. */
import { Client, Connection } from "@temporalio/client"

const withClient = async <A>(address: string, use: (client: Client) => Promise<A>): Promise<A> => {
  const connection = await Connection.connect({ address })
  try {
    return await use(new Client({ connection }))
  } finally {
    await connection.close()
  }
}

/** Lets new runs begin with a version. False: no worker of it has polled yet. */
export const setCurrent = (address: string, deploymentName: string, buildId: string): Promise<boolean> =>
  withClient(address, ({ connection }) =>
    connection.workflowService
      .setWorkerDeploymentCurrentVersion({ namespace: "default", deploymentName, buildId })
      .then(
        () => true,
        () => false
      )
  )

/** The version that a run began with. */
export const versionOf = (address: string, runId: string): Promise<string | undefined> =>
  withClient(address, async ({ workflow }) => {
    const { raw } = await workflow.getHandle(runId).describe()
    return raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId ?? undefined
  })
