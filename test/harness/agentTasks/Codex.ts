/**
 * Tool names of Codex, which depend on the model's name. An unknown model gets only commands, also for patches. The
 * newest models get one tool that runs JavaScript, and call the others from there.
 */
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import type { AgentRow } from "./AgentRow.ts"

const patch = (path: string, before: string, after: string) =>
  `*** Begin Patch\n*** Update File: ${path}\n@@\n-${before}\n+${after}\n*** End Patch`

export const row: AgentRow = {
  agent: codex,
  read: (_, path) => ({ name: "exec_command", args: { cmd: `cat ${path}` } }),
  replace: (_, path, before, after) => ({
    name: "exec_command",
    args: { cmd: `apply_patch <<'EOF'\n${patch(path, before, after)}\nEOF` }
  }),
  shell: (line) => ({ name: "exec_command", args: { cmd: line } }),
  toolNames: ["command_execution", "file_change", "command_execution"],
  toolsNeverOffered: ["web_search", "tool_search", "spawn_agent"],
  refusal: "refused"
}

const script = (input: string) => ({ name: "exec", args: { input } })

export const rowOfCodeMode: AgentRow = {
  agent: codex,
  model: "gpt-6-sol",
  read: (_, path) =>
    script(`text((await tools.exec_command({ cmd: ${JSON.stringify(`cat ${path}`)} })).output)`),
  replace: (_, path, before, after) =>
    script(`text(await tools.apply_patch(${JSON.stringify(patch(path, before, after))}))`),
  shell: (line) => script(`text((await tools.exec_command({ cmd: ${JSON.stringify(line)} })).output)`),
  toolNames: ["command_execution", "file_change", "command_execution"]
}
