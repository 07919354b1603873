/** Tool names of OpenClaw. It reports no tool calls before its end. */
import { openClaw } from "@cogni/sandbox-graph-provider/agents/OpenClaw"
import type { AgentRow } from "./AgentRow.ts"

export const row: AgentRow = {
  agent: openClaw,
  read: (_, path) => ({ name: "read", args: { path } }),
  replace: (_, path, before, after) => ({
    name: "edit",
    args: { path, edits: [{ oldText: before, newText: after }] }
  }),
  shell: (line) => ({ name: "exec", args: { command: line } }),
  toolNames: ["read", "edit", "exec"],
  toolsNeverOffered: [
    "ask_user",
    "automations",
    "browser",
    "cron",
    "gateway",
    "message",
    "nodes",
    "openclaw",
    "sessions_spawn",
    "web_fetch",
    "web_search"
  ],
  refusal: "cli_error"
}
