/**
 * `personalities create|edit|list`, `skills create|edit`: propose changes of personalities and skills.
 *
 * A change ends as a pull request to the repository that holds the configuration, after all personalities and skills
 * were checked with it. Nothing is loaded from here: an operator deploys what people have merged.
 */
import { BaseBranch, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import { RelayObserver } from "@cogni/sandbox-git-relay/GitRelay"
import * as ConfigurationProposals from "@cogni/sandbox-server/ConfigurationProposals"
import type * as Personality from "@cogni/sandbox-sessions/config/Personality"
import { Effect, Layer, Schema, type Stdio } from "effect"
import * as Composition from "./Composition.ts"
import * as ConfiguredAgents from "./ConfiguredAgents.ts"
import type { ExitName } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import type * as PersonalityFlags from "./PersonalityFlags.ts"
import * as Progress from "./Progress.ts"
import * as Prompt from "./Prompt.ts"
import * as RepoRun from "./RepoRun.ts"
import { Settings } from "./Settings.ts"
import { columns, oneLine } from "./TerminalText.ts"

type Named<F> = Flags.Typed<F> & { readonly name: string }

type PersonalityInput = Named<typeof PersonalityFlags.personality>

type SkillInput = Named<typeof PersonalityFlags.skill>

/** Lists the personalities that runs can choose here, with their models. */
export const list = Effect.fnUntraced(function* (input: Output.Asked) {
  const { list: agents } = yield* ConfiguredAgents.registry(yield* Settings)
  const found = agents.flatMap(({ capabilities, id }) =>
    capabilities.personalities.map((name) => ({
      name,
      agent: id,
      model: capabilities.personalityModels?.[name] ?? null
    }))
  )
  return yield* input.output === "json"
    ? Output.json(found)
    : Output.lines(
        columns([
          ["PERSONALITY", "AGENT", "MODEL"],
          ...found.map(({ agent, model, name }) => [name, agent, model ?? "the host's"])
        ])
      )
})

export const createPersonality = Effect.fnUntraced(function* (input: PersonalityInput) {
  const instructions = yield* required(yield* textOf(input))
  const { description, displayName, effort, model, name } = input
  const settings = Flags.given({ description, displayName, effort, model })
  const content = { ...settings, ...listsOf(input), instructions }
  yield* propose(input, { _tag: "CreatePersonality", name, content })
})

export const editPersonality = Effect.fnUntraced(function* (input: PersonalityInput) {
  const { description, displayName, effort, model, name } = input
  const edit = {
    ...Flags.given({ description, displayName, effort, model, instructions: yield* textOf(input) }),
    ...listsOf(input)
  }
  if (Object.keys(edit).length === 0) return yield* nothing
  yield* propose(input, { _tag: "EditPersonality", name, edit: emptied(edit) })
})

export const createSkill = Effect.fnUntraced(function* (input: SkillInput) {
  const instructions = yield* required(yield* textOf(input))
  const { description, name } = input
  if (description === undefined)
    return yield* refusal("usage", "the skill has no description", "Say when to use it: --description TEXT")
  yield* propose(input, { _tag: "CreateSkill", name, content: { description, instructions } })
})

export const editSkill = Effect.fnUntraced(function* (input: SkillInput) {
  const edit = Flags.given({ description: input.description, instructions: yield* textOf(input) })
  if (Object.keys(edit).length === 0) return yield* nothing
  yield* propose(input, { _tag: "EditSkill", name: input.name, edit })
})

const nothing = refusal("usage", "nothing is changed", "Name a change, such as --instructions FILE")

const listsOf = ({
  agents,
  skills,
  subagents,
  toolsDenied
}: Readonly<Record<"agents" | "skills" | "subagents" | "toolsDenied", ReadonlyArray<string>>>) =>
  Object.fromEntries(
    Object.entries({ agents, skills, subagents, toolsDenied }).filter(([, names]) => names.length > 0)
  )

/** An empty value of a flag removes the setting. */
const emptied = (edit: Personality.PersonalityEdit): Personality.PersonalityEdit =>
  Object.fromEntries(
    Object.entries(edit).map(([field, value]) => [
      field,
      value === "" || (Array.isArray(value) && value.every((name) => name === "")) ? null : value
    ])
  )

const required = (text: string | undefined) =>
  text === undefined
    ? Effect.fail(
        refusal("usage", "there are no instructions", "Name a file: --instructions FILE, or - for input")
      )
    : Effect.succeed(text)

/** Reads the instructions, without empty space at their ends. */
const textOf = ({
  instructions
}: {
  readonly instructions?: string | undefined
}): Effect.Effect<string | undefined, Refusal, Stdio.Stdio> =>
  instructions === undefined
    ? Effect.succeed(undefined)
    : Effect.map(
        Prompt.read(
          instructions === "-" ? { _tag: "Stdin" } : { _tag: "File", path: instructions },
          undefined
        ),
        (text) => text.trim()
      )

/** Where the change goes. */
const repositoryOf = Effect.fnUntraced(function* ({ base, repo }: Pick<PersonalityInput, "base" | "repo">) {
  const { configBranch, configRepository } = yield* Settings
  const repository = repo ?? configRepository
  if (repository === undefined) {
    return yield* refusal(
      "configuration",
      "no repository of the configuration is named",
      "Name it: --repo URL, or COGNI_CONFIG_REPOSITORY"
    )
  }
  const baseBranch = base ?? configBranch
  if (!Schema.is(OriginUrl)(repository) || repository.startsWith("/"))
    return yield* refusal("usage", "the repository is not a plain https URL", "Write https://HOST/OWNER/NAME")
  if (baseBranch !== undefined && !Schema.is(BaseBranch)(baseBranch))
    return yield* refusal(
      "usage",
      "the base is not a plain branch name",
      "Name one such as main or release/1.2"
    )
  return { repository, baseBranch }
})

const propose = Effect.fnUntraced(function* (
  input: Output.Asked & Pick<PersonalityInput, "base" | "repo">,
  change: ConfigurationProposals.ConfigurationChange
) {
  const settings = yield* Settings
  const target = yield* repositoryOf(input)
  const rules = yield* ConfiguredAgents.rules(settings)
  const proposed = yield* Effect.gen(function* () {
    const progress = yield* Progress.make({ quiet: input.output === "json" })
    const { propose } = yield* ConfigurationProposals.ConfigurationProposals
    return yield* propose(change).pipe(
      Effect.provideService(RelayObserver, RepoRun.observe(progress)),
      Effect.ensuring(progress.rest)
    )
  }).pipe(
    Effect.provide(
      Layer.provide(ConfigurationProposals.layer({ ...rules, ...target }), Composition.relayAlone(settings))
    ),
    Effect.scoped,
    Effect.catchTag("ChangeRefused", (error) => Effect.fail(ofChange(error)))
  )
  if (input.output === "json") return yield* Output.json({ ok: true, ...proposed })
  yield* Output.lines([oneLine(describe(proposed))])
})

const describe = ({
  baseBranch,
  branch,
  existing,
  path,
  pullRequestUrl,
  status
}: ConfigurationProposals.ProposedChange) =>
  status === "unchanged"
    ? `${path} already has this content on ${baseBranch}; nothing was pushed`
    : `${existing === true ? "already open" : "opened"}: ${pullRequestUrl} (${path}, from ${branch} to ${baseBranch})`

const exits: Readonly<Record<ConfigurationProposals.ChangeRefused["code"], ExitName>> = {
  invalid: "input",
  denied: "configuration",
  not_found: "notFound",
  conflict: "input",
  unavailable: "unavailable"
}

const ofChange = ({ code, detail, reason, remedy }: ConfigurationProposals.ChangeRefused) =>
  refusal(exits[code], detail.replace(/\.$/u, ""), remedy === "" ? "Nothing was proposed" : remedy, {
    reason
  })
