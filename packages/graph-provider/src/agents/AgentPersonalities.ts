/**
 * Personalities that an application adds to an agent: instructions before the conversation, skills in the directory
 * where the agent looks for them, and a model.
 */
import type { Input } from "@cogni/sandbox-core/SpecFields"
import type { Agent } from "./Agent.ts"
import type { AgentTask } from "./AgentFields.ts"
import type { Capabilities } from "./AgentFields.ts"
import * as AgentSkills from "./AgentSkills.ts"

export interface AgentPersonality {
  /** Instructions before the conversation. */
  readonly instructions?: string
  /** Model of runs that name none. */
  readonly model?: string
  /** Names of the skills that it has. */
  readonly skills?: ReadonlyArray<string>
}

export interface PersonalitiesOptions<P extends AgentPersonality = AgentPersonality> {
  readonly personalities: Readonly<Record<string, P>>
  /** Texts of `SKILL.md` of the skills that personalities name. */
  readonly skills?: Readonly<Record<string, string>>
  /** Where the agent looks for skills, such as `/home/agent/.claude/skills`. A session may have a place of its own. */
  readonly skillsDirectory: (task: AgentTask) => string
  /** Settings of a personality that are options of the agent. Default: none. */
  readonly settings?: (personality: P) => AgentTask["settings"]
  /** Further files for a personality. */
  readonly inputs?: (personality: P) => ReadonlyArray<Input>
}

/** Returns the models of personalities that have their own, as a capability. */
export const modelsOf = (
  personalities: PersonalitiesOptions["personalities"]
): { readonly personalityModels?: Readonly<Record<string, string>> } => {
  const models = Object.entries(personalities).flatMap(([id, { model }]) =>
    model === undefined ? [] : [[id, model]]
  )
  return models.length === 0 ? {} : { personalityModels: Object.fromEntries(models) }
}

/** Returns the model of a run that names none, if its personality has one. */
export const modelOf = (
  { personalityModels = {} }: Capabilities,
  personality: string | undefined
): string | undefined =>
  personality !== undefined && Object.hasOwn(personalityModels, personality)
    ? personalityModels[personality]
    : undefined

/** Throws if a personality names a skill without a text. */
export const requireSkills = ({
  personalities,
  skills = {}
}: Pick<PersonalitiesOptions, "personalities" | "skills">): void => {
  const missing = Object.values(personalities)
    .flatMap((one) => one.skills ?? [])
    .find((name) => !Object.hasOwn(skills, name))
  if (missing !== undefined)
    throw new TypeError(`a personality names the skill ${missing}, which has no text. Pass it in skills`)
}

/** Adds personalities to an agent. A task without a personality is as before, without skills of an earlier turn. */
export const add = <P extends AgentPersonality>(agent: Agent, options: PersonalitiesOptions<P>): Agent => {
  requireSkills(options)
  const { personalities, skills = {}, skillsDirectory } = options
  const chosen = ({ personality }: AgentTask): P | undefined =>
    personality !== undefined && Object.hasOwn(personalities, personality)
      ? personalities[personality]
      : undefined
  const instructed = (task: AgentTask, one: P): AgentTask => ({
    ...task,
    settings: options.settings?.(one),
    messages:
      one.instructions === undefined
        ? task.messages
        : [{ role: "system", content: one.instructions }, ...task.messages]
  })
  return {
    ...agent,
    capabilities: {
      ...agent.capabilities,
      personalities: [...agent.capabilities.personalities, ...Object.keys(personalities)],
      ...modelsOf(personalities)
    },
    argv: (task) => {
      const one = chosen(task)
      const isKept = task.session !== undefined
      const argv = agent.argv(one === undefined ? task : instructed(task, one))
      return AgentSkills.before(skillsDirectory(task), one?.skills ?? [], argv, { isKept })
    },
    inputs: (task) => {
      const one = chosen(task)
      return one === undefined
        ? agent.inputs(task)
        : [
            ...agent.inputs(instructed(task, one)),
            ...AgentSkills.inputs(one.skills ?? [], skills),
            ...(options.inputs?.(one) ?? [])
          ]
    }
  }
}
