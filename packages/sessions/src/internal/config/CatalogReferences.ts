/** Checks what a personality names: skills, subagents, a model, and what its agents know. Pure. */
import * as GrantPattern from "@cogni/sandbox-core/GrantPattern"
import type { Problem } from "../../config/ConfigurationError.ts"
import * as Personality from "../../config/Personality.ts"

/** Settings of personalities that an agent knows. One that is absent here is refused. */
interface AgentRules {
  /** Tools that a personality can deny. */
  readonly toolsDenied?: ReadonlyArray<string>
  readonly efforts?: ReadonlyArray<string>
  /** Tools that a subagent can have. Absent: there are no subagents. */
  readonly subagentTools?: ReadonlyArray<string>
  /** Names of the subagents that the agent has of its own: a file of that name would replace one. */
  readonly subagentNamesTaken?: ReadonlyArray<string>
}

/** Rules for what personalities name outside of their directory. */
export interface CatalogRules {
  /** Agents that can have personalities. Default: any, with any settings. */
  readonly agents?: Readonly<Record<string, AgentRules>> | undefined
  /** Patterns of the models that a personality or the configuration of sessions may name. Default: any. */
  readonly models?: ReadonlyArray<string> | undefined
}

/** Contents of a directory that its personalities can name. */
interface Known {
  readonly skills: Readonly<Record<string, Personality.Skill>>
  readonly subagents: Readonly<Record<string, Personality.Subagent>>
}

/** Returns the problems of a personality whose file is valid by itself. */
export const problemsOf = (
  personality: Personality.Personality,
  { skills, subagents }: Known,
  options: CatalogRules
): ReadonlyArray<Problem> => [
  ...missing("skills", personality.skills, skills),
  ...missing("subagents", personality.subagents, subagents),
  ...modelProblems("model", personality.model, options),
  ...(options.agents === undefined
    ? []
    : (personality.agents ?? Personality.agentsDefault).flatMap((agent) =>
        ofAgent(agent, personality, subagents, options.agents ?? {})
      ))
]

/** Returns the problems of the models of a configuration of sessions, by tier. */
export const problemsOfModels = (
  models: Readonly<Partial<Record<string, string>>>,
  options: CatalogRules
): ReadonlyArray<Problem> =>
  Object.entries(models).flatMap(([tier, model]) => modelProblems(`models.${tier}`, model, options))

const missing = (
  key: "skills" | "subagents",
  names: ReadonlyArray<string> = [],
  known: Readonly<Record<string, unknown>>
): ReadonlyArray<Problem> =>
  names
    .filter((name) => !Object.hasOwn(known, name))
    .map((name) => ({ key, message: `Expected the name of a ${key.slice(0, -1)} in ${key}, got ${name}` }))

const modelProblems = (
  key: string,
  model: string | undefined,
  { models }: CatalogRules
): ReadonlyArray<Problem> =>
  model === undefined ||
  models === undefined ||
  models.some((pattern) => GrantPattern.matches(pattern, model))
    ? []
    : [{ key, message: `Expected a model that ${models.join(" or ") || "nothing"} matches, got ${model}` }]

/** Checks settings against one agent. */
const ofAgent = (
  agent: string,
  { effort, subagents: named = [], toolsDenied = [] }: Personality.Personality,
  subagents: Known["subagents"],
  agents: Readonly<Record<string, AgentRules>>
): ReadonlyArray<Problem> => {
  const rules = Object.hasOwn(agents, agent) ? agents[agent] : undefined
  if (rules === undefined)
    return [{ key: "agents", message: `Expected one of ${Object.keys(agents).join(", ")}, got ${agent}` }]
  const { efforts = [], subagentTools } = rules
  const denied = unknown("tools_denied", toolsDenied, rules.toolsDenied ?? [], `${agent} cannot deny one`)
  const thought = unknown("effort", effort === undefined ? [] : [effort], efforts, `${agent} has none here`)
  if (subagentTools === undefined) {
    const one = unknown("subagents", named, [], `${agent} starts none here`)
    return [...denied, ...thought, ...one]
  }
  const own = named.flatMap((name) =>
    Object.hasOwn(subagents, name)
      ? unknown("subagents", subagents[name]?.tools ?? [], subagentTools, "").map(({ key, message }) => ({
          key,
          message: `${message}, in ${name}`
        }))
      : []
  )
  return [...denied, ...thought, ...own]
}

const unknown = (
  key: string,
  names: ReadonlyArray<string>,
  known: ReadonlyArray<string>,
  whyNone: string
): ReadonlyArray<Problem> => {
  const rule = known.length === 0 ? `none, because ${whyNone}` : `one of ${known.join(", ")}`
  return names
    .filter((name) => !known.includes(name))
    .map((name) => ({ key, message: `Expected ${rule}, got ${name}` }))
}
