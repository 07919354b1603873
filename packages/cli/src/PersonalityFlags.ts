/** The flags of `personalities` and `skills`. */
import { Argument } from "effect/cli"
import * as Flags from "./Flags.ts"

export const personalityName = Argument.String("name").pipe(
  Argument.withDescription("Name of the personality, as runs choose it")
)

export const skillName = Argument.String("name").pipe(Argument.withDescription("Name of the skill"))

const target = {
  repo: Flags.optional(
    "repo",
    "URL",
    "Repository that holds the configuration (default COGNI_CONFIG_REPOSITORY)"
  ),
  base: Flags.optional(
    "base",
    "BRANCH",
    "Branch to propose the change of (default COGNI_CONFIG_BRANCH, or else the repository's)"
  ),
  output: Flags.output
}

const instructions = Flags.optional(
  "instructions",
  "FILE",
  "File with the instructions, in Markdown; - reads standard input"
)

/** Flags of a personality. `absent` says what happens without a flag: the default of a new one, or something else. */
const flagsOf = (absent: (ofNew: string) => string) => ({
  instructions,
  displayName: Flags.optional(
    "display-name",
    "NAME",
    `Name that it uses for itself (default ${absent("none")})`
  ),
  description: Flags.optional(
    "description",
    "TEXT",
    `Description for people, in one line (default ${absent("none")})`
  ),
  agents: Flags.several(
    "agent",
    "ID",
    `Agent that has it: openclaw, claude-code or codex; may be repeated (default ${absent("openclaw")})`
  ),
  model: Flags.optional("model", "NAME", `Model of runs that name none (default ${absent("the host's")})`),
  skills: Flags.several(
    "skill",
    "NAME",
    `Skill of the configuration; may be repeated (default ${absent("none")})`
  ),
  subagents: Flags.several(
    "subagent",
    "NAME",
    `Subagent of the configuration, for claude-code; may be repeated (default ${absent("none")})`
  ),
  effort: Flags.optional(
    "effort",
    "WORD",
    `How much its model thinks, such as low or high, for claude-code and codex (default ${absent("the agent's")})`
  ),
  toolsDenied: Flags.several(
    "deny-tool",
    "NAME",
    `Tool of the agent that it cannot use, for openclaw and claude-code; may be repeated (default ${absent("none")})`
  ),
  ...target
})

export const personality = flagsOf((ofNew) => ofNew)

/** The same flags for a personality that exists. */
export const personalityEdit = flagsOf(() => "as it is")

export const skill = {
  instructions,
  description: Flags.optional(
    "description",
    "TEXT",
    "When to use it, in one line; the agent always sees this"
  ),
  ...target
}
