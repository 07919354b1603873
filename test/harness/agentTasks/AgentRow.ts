/**
 * The properties of one agent for the test of all agents: how a model calls the same three tools, and how the agent's
 * behaviour differs from the others'.
 */
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import type { AgentUsage } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import type { Call, Figures } from "../../../packages/proxy/src/internal/scripted/Script.ts"

/** Paths are relative to the workspace; `directory` is its absolute path inside the sandbox. */
export interface AgentRow {
  readonly agent: Agent
  /** Name of a model that changes the agent's behaviour. Absent: a name that no agent knows. */
  readonly model?: string
  /** Reads a file of the workspace. The result contains its content. */
  readonly read: (directory: string, path: string) => Call
  /** Replaces the only occurrence of a text, on its own line. */
  readonly replace: (directory: string, path: string, before: string, after: string) => Call
  /** Runs a line of `sh`. The result contains its output. */
  readonly shell: (line: string) => Call
  /** Names of those three tools in events. */
  readonly toolNames: readonly [read: string, replace: string, shell: string]
  /** Tools that it must not offer its model, because they use the network or wait for a user. */
  readonly toolsNeverOffered?: ReadonlyArray<string>
  /** Derives the usage that the agent reports from that of its calls. Absent: the sum. */
  readonly usage?: (calls: ReadonlyArray<Figures>) => AgentUsage | undefined
  /** Further files that it leaves in the workspace. */
  readonly files?: ReadonlyArray<string>
  /** Code of its failure if the model rejects a call permanently. Absent: the agent retries for too long. */
  readonly refusal?: string
}
