/** Tool names of opencode. */
import { openCode } from "@cogni/sandbox-graph-provider/agents/OpenCode"
import type { AgentRow } from "./AgentRow.ts"

export const row: AgentRow = {
  agent: openCode,
  read: (directory, path) => ({ name: "read", args: { filePath: `${directory}/${path}` } }),
  replace: (directory, path, before, after) => ({
    name: "edit",
    args: { filePath: `${directory}/${path}`, oldString: before, newString: after }
  }),
  shell: (line) => ({ name: "bash", args: { command: line, description: "As asked" } }),
  toolNames: ["read", "edit", "bash"],
  toolsNeverOffered: ["codesearch", "question", "webfetch", "websearch"],
  refusal: "APIError"
}
