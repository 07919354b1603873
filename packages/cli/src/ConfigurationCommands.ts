/** Defines `config`, `personalities` and `skills`. Their modules load when one is called. */
import { Effect } from "effect"
import { Command } from "effect/cli"
import * as Flags from "./Flags.ts"
import * as PersonalityFlags from "./PersonalityFlags.ts"

const personalitiesCommandOf = () => Effect.promise(() => import("./PersonalitiesCommand.ts"))

const proposed = (what: string) => `${what}, as a pull request to the repository of the configuration

All personalities and skills are checked with the change before anything is pushed. A repeated command finds the pull
request of the first. Nothing takes effect before people merge it and deploy the configuration to COGNI_CONFIG_DIR.`

const personalitiesListCommand = Command.make("list", { output: Flags.output }, (flags) =>
  Effect.flatMap(personalitiesCommandOf(), ({ list }) => list(flags))
).pipe(Command.withDescription("List the personalities that runs can choose, with their models"))

const personalitiesCreateCommand = Command.make(
  "create",
  { name: PersonalityFlags.personalityName, ...PersonalityFlags.personality },
  (flags) => Effect.flatMap(personalitiesCommandOf(), ({ createPersonality }) => createPersonality(flags))
).pipe(
  Command.withDescription(proposed("Propose a new personality")),
  Command.withShortDescription("Propose a new personality, as a pull request")
)

const personalitiesEditCommand = Command.make(
  "edit",
  { name: PersonalityFlags.personalityName, ...PersonalityFlags.personalityEdit },
  (flags) => Effect.flatMap(personalitiesCommandOf(), ({ editPersonality }) => editPersonality(flags))
).pipe(
  Command.withDescription(
    `${proposed("Propose a change of a personality")}

Flags that are absent keep their settings; an empty one, such as --model "", removes it.`
  ),
  Command.withShortDescription("Propose a change of a personality, as a pull request")
)

export const personalities = Command.make("personalities").pipe(
  Command.withDescription("List personalities of agents, and propose changes of them"),
  Command.withSubcommands([personalitiesListCommand, personalitiesCreateCommand, personalitiesEditCommand])
)

const skillsCreateCommand = Command.make(
  "create",
  { name: PersonalityFlags.skillName, ...PersonalityFlags.skill },
  (flags) => Effect.flatMap(personalitiesCommandOf(), ({ createSkill }) => createSkill(flags))
).pipe(
  Command.withDescription(proposed("Propose a new skill")),
  Command.withShortDescription("Propose a new skill, as a pull request")
)

const skillsEditCommand = Command.make(
  "edit",
  { name: PersonalityFlags.skillName, ...PersonalityFlags.skill },
  (flags) => Effect.flatMap(personalitiesCommandOf(), ({ editSkill }) => editSkill(flags))
).pipe(
  Command.withDescription(proposed("Propose a change of a skill")),
  Command.withShortDescription("Propose a change of a skill, as a pull request")
)

export const skills = Command.make("skills").pipe(
  Command.withDescription("Propose changes of the skills of personalities"),
  Command.withSubcommands([skillsCreateCommand, skillsEditCommand])
)

const configCheckCommand = Command.make(
  "check",
  { file: Flags.configuration, output: Flags.output },
  (flags) =>
    Effect.promise(() => import("./ConfigCommand.ts")).pipe(Effect.flatMap(({ check }) => check(flags)))
).pipe(
  Command.withDescription(
    "Check a configuration file, or a directory with personalities and skills, and list every problem"
  )
)

const configResolveCommand = Command.make(
  "resolve",
  { file: Flags.configuration, ...Flags.sender, output: Flags.output },
  (flags) =>
    Effect.promise(() => import("./ConfigCommand.ts")).pipe(Effect.flatMap(({ resolve }) => resolve(flags)))
).pipe(Command.withDescription("Show which agent answers a sender, and by which rule"))

const configSchemaCommand = Command.make("schema", {}, () =>
  Effect.promise(() => import("./ConfigCommand.ts")).pipe(Effect.flatMap(({ schema }) => schema))
).pipe(Command.withDescription("Print the JSON Schema of a configuration, for editors"))

export const config = Command.make("config").pipe(
  Command.withDescription("Configuration of sessions: agents, routing, sandboxes"),
  Command.withSubcommands([configCheckCommand, configResolveCommand, configSchemaCommand])
)
