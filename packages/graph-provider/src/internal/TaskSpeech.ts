/** Converts the progress of a task to events of a graph. */
import { toolResult, toolStart } from "../agents/AgentOutput.ts"
import type { AiEvent } from "../events/AiEvent.ts"
import type { GraphPatch } from "../events/GraphPatch.ts"
import type { TaskProgress } from "../TaskRun.ts"

/** Puts an empty line between the texts of two steps. */
export const make = (): ((event: TaskProgress) => ReadonlyArray<AiEvent>) => {
  let hasSpoken = false
  let isNew = true
  return (event) => {
    if (event.type === "step_started") isNew = true
    if (event.type !== "text_delta") return eventsOf(event)
    const gap = hasSpoken && isNew ? "\n\n" : ""
    hasSpoken = true
    isNew = false
    return [{ type: "text_delta", delta: `${gap}${event.delta}` }]
  }
}

const eventsOf = (event: Exclude<TaskProgress, { readonly type: "text_delta" }>): ReadonlyArray<AiEvent> => {
  switch (event.type) {
    case "sandbox_opened":
      return [{ type: "status", phase: "entrypoint" }]
    case "tool_call_started":
      return [toolStart(event.id, event.name, event.input)]
    case "tool_call_ended":
      return [toolResult(event.id, event.content, event.isError)]
    case "loop_ended": {
      const { patch } = event
      return [
        { type: "status", phase: "agent" },
        { type: "status", phase: "patch", label: describe(patch), patch }
      ]
    }
    case "step_started":
    case "step_ended":
      return []
  }
}

const describe = ({ bytes, files, problem }: GraphPatch): string =>
  problem ?? `${files} ${files === 1 ? "file" : "files"}, ${bytes} bytes`
