/**
 * One agent, as the test of all agents needs to know it: how a model asks it for the same three things, and where what
 * it does differs from what is asked.
 */
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import type { AgentUsage } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import type { Call, Figures } from "@cogni/sandbox-proxy/ScriptedModelApi"

/** Paths are relative to the workspace; `directory` is its absolute path inside the sandbox. */
export interface AgentRow {
  readonly agent: Agent
  /** By whose name the agent behaves otherwise. Absent: a name that nobody knows. */
  readonly model?: string
  /** Reads a file of the workspace: what is in it is in the result. */
  readonly read: (directory: string, path: string) => Call
  /** Changes the only occurrence of a text, on a line of its own. */
  readonly replace: (directory: string, path: string, before: string, after: string) => Call
  /** Runs a line of `sh`: what it writes is in the result. */
  readonly shell: (line: string) => Call
  /** What the events call those three tools. */
  readonly toolNames: readonly [read: string, replace: string, shell: string]
  /** Tools that it must not offer its model here, because they reach out or wait for somebody. */
  readonly toolsNeverOffered?: ReadonlyArray<string>
  /** Out of what its calls cost, what it says they did. Absent: the sum. */
  readonly usage?: (calls: ReadonlyArray<Figures>) => AgentUsage | undefined
  /** What it leaves in the workspace besides. */
  readonly files?: ReadonlyArray<string>
  /** The code of its failure where its model refuses a call for good. Absent: it takes too long to give up. */
  readonly refusal?: string
}
