/** The agents of a configuration, by name. Pure. */
import { Option } from "effect"
import type { AgentConfig } from "./AgentConfig.ts"
import type { ConfigurationFile } from "../internal/config/ConfigurationFile.ts"

export interface AgentConfigRegistry {
  readonly get: (name: string) => Option.Option<AgentConfig>
  /** In the order of the file. */
  readonly list: ReadonlyArray<AgentConfig>
}

export const make = (list: ReadonlyArray<AgentConfig>): AgentConfigRegistry => {
  const byName = new Map(list.map((agent) => [agent.name, agent]))
  return { get: (name) => Option.fromUndefinedOr(byName.get(name)), list }
}

/** Reads the agents from `agent_configs` of a decoded file. */
export const loadFromConfig = (agents: ConfigurationFile["agent_configs"]): AgentConfigRegistry =>
  make(
    Object.entries(agents).map(([name, agent]) => ({
      name,
      ...(agent.system_prompt === undefined ? {} : { systemPrompt: agent.system_prompt }),
      modelTier: agent.model_tier,
      toolProfile: agent.tool_profile,
      toolOverrides: agent.tool_overrides,
      sandbox: agent.sandbox
    }))
  )
