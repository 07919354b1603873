/** Tool names of Claude Code. */
import { claudeCode } from "@cogni/sandbox-graph-provider/agents/ClaudeCode"
import type { AgentRow } from "./AgentRow.ts"

export const row: AgentRow = {
  agent: claudeCode,
  read: (directory, path) => ({ name: "Read", args: { file_path: `${directory}/${path}` } }),
  replace: (directory, path, before, after) => ({
    name: "Edit",
    args: { file_path: `${directory}/${path}`, old_string: before, new_string: after }
  }),
  shell: (line) => ({ name: "Bash", args: { command: line, description: "As asked" } }),
  toolNames: ["Read", "Edit", "Bash"],
  toolsNeverOffered: ["CronCreate", "CronDelete", "CronList", "ScheduleWakeup", "WebFetch", "WebSearch"],
  refusal: "invalid_request_error"
}
