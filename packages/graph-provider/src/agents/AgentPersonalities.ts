/**
 * Personalities that an application adds to an agent: instructions before the conversation, skills in the directory
 * where the agent looks for them, and a model.
 */
import type { Agent, AgentTask, Capabilities } from "./Agent.ts"
import * as AgentSkills from "./AgentSkills.ts"

export interface AgentPersonality {
  /** Instructions before the conversation. */
  readonly instructions?: string
  /** Model of runs that name none. */
  readonly model?: string
  /** Names of the skills that it has. */
  readonly skills?: ReadonlyArray<string>
}

export interface PersonalitiesOptions {
  readonly personalities: Readonly<Record<string, AgentPersonality>>
  /** Texts of `SKILL.md` of the skills that personalities name. */
  readonly skills?: Readonly<Record<string, string>>
  /** Where the agent looks for skills, such as `/home/agent/.claude/skills`. */
  readonly skillsDirectory: string
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

/** Adds personalities to an agent. A task without a personality is as before. */
export const add = (agent: Agent, options: PersonalitiesOptions): Agent => {
  requireSkills(options)
  const { personalities, skills = {}, skillsDirectory } = options
  const chosen = ({ personality }: AgentTask): AgentPersonality =>
    personality === undefined ? {} : (personalities[personality] ?? {})
  const instructed = (task: AgentTask): AgentTask => {
    const { instructions } = chosen(task)
    return instructions === undefined
      ? task
      : { ...task, messages: [{ role: "system", content: instructions }, ...task.messages] }
  }
  return {
    ...agent,
    capabilities: {
      ...agent.capabilities,
      personalities: [...agent.capabilities.personalities, ...Object.keys(personalities)],
      ...modelsOf(personalities)
    },
    argv: (task) =>
      AgentSkills.before(skillsDirectory, chosen(task).skills ?? [], agent.argv(instructed(task))),
    inputs: (task) => [
      ...agent.inputs(instructed(task)),
      ...AgentSkills.inputs(chosen(task).skills ?? [], skills)
    ]
  }
}
