/** Tool names of pi. */
import { pi } from "@cogni/sandbox-graph-provider/agents/Pi"
import type { AgentRow } from "./AgentRow.ts"

export const row: AgentRow = {
  agent: pi,
  read: (_, path) => ({ name: "read", args: { path } }),
  replace: (_, path, before, after) => ({
    name: "edit",
    args: { path, edits: [{ oldText: before, newText: after }] }
  }),
  shell: (line) => ({ name: "bash", args: { command: line } }),
  toolNames: ["read", "edit", "bash"],
  refusal: "error"
}
