/**
 * Claude Code and Codex with the personalities of an application, each in the form that the agent has for it.
 *
 * Claude Code: skills, subagents, denied tools, effort. Codex: skills and effort; its profiles are files of its home
 * directory, and it can neither deny a tool nor, here, start a subagent.
 */
import type { Agent } from "./Agent.ts"
import * as AgentPersonalities from "./AgentPersonalities.ts"
import * as ClaudeCode from "./ClaudeCode.ts"
import * as Codex from "./Codex.ts"

/** Tools of Claude Code that a personality can deny, and that a subagent can have. */
export const claudeCodeTools: ReadonlyArray<string> = [
  "Bash",
  "Edit",
  "Monitor",
  "NotebookEdit",
  "Read",
  "Skill",
  "Task",
  "Write"
]

/** Subagents that Claude Code has of its own. One of the same name would take part in runs that do not name it. */
export const claudeCodeSubagents: ReadonlyArray<string> = [
  "claude-code-guide",
  "explore",
  "general-purpose",
  "output-style-setup",
  "plan",
  "statusline-setup"
]

/** Efforts that the agents know. Not every model knows all of them. */
export const claudeCodeEfforts: ReadonlyArray<string> = ["low", "medium", "high", "xhigh", "max"]
export const codexEfforts: ReadonlyArray<string> = ["minimal", "low", "medium", "high", "xhigh"]

export interface CodexPersonality extends AgentPersonalities.AgentPersonality {
  /** One of {@link codexEfforts}. */
  readonly effort?: string
}

export interface ClaudeCodePersonality extends AgentPersonalities.AgentPersonality {
  /** One of {@link claudeCodeEfforts}. */
  readonly effort?: string
  /** Those of {@link claudeCodeTools} that neither it nor its subagents can use. */
  readonly toolsDenied?: ReadonlyArray<string>
  /** Names of the subagents that it has, besides those of Claude Code. */
  readonly subagents?: ReadonlyArray<string>
}

/** An agent that Claude Code can give a part of its work to. It has the model of the run. */
export interface Subagent {
  /** When to use it. Claude Code always sees this. */
  readonly description: string
  readonly instructions: string
  /** Those of {@link claudeCodeTools} that it can use (default: all of its run). */
  readonly tools?: ReadonlyArray<string>
}

/** Texts of `SKILL.md` of the skills that personalities name, and the subagents. */
export interface NamedTexts {
  readonly skills?: Readonly<Record<string, string>>
  readonly subagents?: Readonly<Record<string, Subagent>>
}

const subagentsFile = "subagents.json"

/** Names of subagents come from files, so a name may be that of a property of every object. */
const subagentsOf = (
  { subagents: names = [] }: ClaudeCodePersonality,
  known: Readonly<Record<string, Subagent>>
): ReadonlyArray<readonly [string, Subagent]> =>
  names.map((name) => {
    const found = Object.hasOwn(known, name) ? known[name] : undefined
    if (found === undefined)
      throw new TypeError(`a personality names the subagent ${name}, which is missing. Pass it in subagents`)
    return [name, found]
  })

/** Claude Code with personalities. Throws if one names a skill or a subagent that is missing. */
export const claudeCode = (
  personalities: Readonly<Record<string, ClaudeCodePersonality>>,
  { skills = {}, subagents = {} }: NamedTexts = {}
): Agent => {
  for (const one of Object.values(personalities)) subagentsOf(one, subagents)
  return AgentPersonalities.add(ClaudeCode.claudeCode, {
    personalities,
    skills,
    skillsDirectory: ({ session }) => `${session?.directory ?? "/home/agent/.claude"}/skills`,
    settings: ({ effort, subagents: names = [], toolsDenied }) => ({
      effort,
      toolsDenied,
      subagentsPath: names.length === 0 ? undefined : `/cogni/${subagentsFile}`
    }),
    inputs: (one) => {
      const found = subagentsOf(one, subagents).map(([name, { description, instructions, tools }]) => [
        name,
        { description, prompt: instructions, model: "inherit", ...(tools === undefined ? {} : { tools }) }
      ])
      return found.length === 0
        ? []
        : [{ name: subagentsFile, content: JSON.stringify(Object.fromEntries(found)) }]
    }
  })
}

/** Codex with personalities. Throws if one names a skill that is missing. */
export const codex = (
  personalities: Readonly<Record<string, CodexPersonality>>,
  { skills = {} }: Pick<NamedTexts, "skills"> = {}
): Agent =>
  AgentPersonalities.add(Codex.codex, {
    personalities,
    skills,
    skillsDirectory: ({ session }) => `${session?.directory ?? "/home/agent/.codex"}/skills`,
    settings: ({ effort }) => ({ effort })
  })
