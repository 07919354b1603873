/** The recorded histories of workflows, as the SDK replays them: under the ID that their workflow had. */
import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const directory = fileURLToPath(new URL("histories", import.meta.url))

/** The part of a history that is read here. */
interface History {
  readonly events: ReadonlyArray<{
    readonly workflowExecutionStartedEventAttributes: {
      readonly workflowId: string
      readonly originalExecutionRunId: string
      readonly workflowType: { readonly name: string }
    }
  }>
}

/** The histories by their files. */
export const all = readdirSync(directory).map((file) => {
  const history = JSON.parse(readFileSync(`${directory}/${file}`, "utf8")) as History
  const { originalExecutionRunId, workflowId, workflowType } =
    history.events[0]!.workflowExecutionStartedEventAttributes
  return { file, history, workflowId, runId: originalExecutionRunId, workflowType: workflowType.name }
})

/** Returns the file of a history, by the ID of its execution. IDs of workflows are in several of them. */
export const fileOf = (runId: string): string => all.find((one) => one.runId === runId)?.file ?? runId
