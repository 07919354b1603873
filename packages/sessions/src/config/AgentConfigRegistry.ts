/**
 * The agents of a configuration, by name: one that is registered stays as it is.
 *
 * Every change makes another registry, so that a caller keeps the agents of one configuration as long as it needs
 * them. Pure.
 */
import { Data, Option, Result } from "effect"
import type { AgentConfig } from "./AgentConfig.ts"
import type { ConfigurationFile } from "../internal/config/ConfigurationFile.ts"

export interface AgentConfigRegistry {
  readonly get: (name: string) => Option.Option<AgentConfig>
  /** In the order in which they were registered. */
  readonly list: ReadonlyArray<AgentConfig>
}

/** There is an agent of this name. */
export class AgentNameTaken extends Data.TaggedError("AgentNameTaken")<{ readonly name: string }> {
  override get message(): string {
    return `there is an agent ${this.name} already. Give this one another name, or register it alone`
  }
}

const over = (agents: ReadonlyArray<AgentConfig>): AgentConfigRegistry => {
  const list = Object.freeze(agents.map(frozen))
  const byName = new Map(list.map((agent) => [agent.name, agent]))
  return Object.freeze({ get: (name: string) => Option.fromUndefinedOr(byName.get(name)), list })
}

/** A copy: the caller may go on to change its own. */
const frozen = (agent: AgentConfig): AgentConfig =>
  Object.freeze({
    ...agent,
    toolOverrides: Object.freeze({
      allow: Object.freeze([...agent.toolOverrides.allow]),
      deny: Object.freeze([...agent.toolOverrides.deny])
    })
  })

export const empty: AgentConfigRegistry = over([])

/** Those, and this one. */
export const register = (
  registry: AgentConfigRegistry,
  agent: AgentConfig
): Result.Result<AgentConfigRegistry, AgentNameTaken> =>
  Option.isSome(registry.get(agent.name))
    ? Result.fail(new AgentNameTaken({ name: agent.name }))
    : Result.succeed(over([...registry.list, agent]))

/** What is under `agent_configs` of a file that was read. */
export const loadFromConfig = (agents: ConfigurationFile["agent_configs"]): AgentConfigRegistry =>
  over(
    Object.entries(agents).map(([name, agent]) => ({
      name,
      ...(agent.system_prompt === undefined ? {} : { systemPrompt: agent.system_prompt }),
      modelTier: agent.model_tier,
      toolProfile: agent.tool_profile,
      toolOverrides: agent.tool_overrides,
      sandbox: agent.sandbox
    }))
  )
