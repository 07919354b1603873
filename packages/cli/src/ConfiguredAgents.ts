/**
 * The agents of this installation: the built-in ones, with the personalities and skills of a directory.
 *
 * `COGNI_CONFIG_DIR` names the directory, such as a checkout of the repository of the configuration. It is read once,
 * when a command starts, and no agent may have it as its workspace.
 */
import type { Files } from "@cogni/sandbox-core/Executor"
import * as GrantPattern from "@cogni/sandbox-core/GrantPattern"
import type { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import * as ClaudeCode from "@cogni/sandbox-graph-provider/agents/ClaudeCode"
import * as Codex from "@cogni/sandbox-graph-provider/agents/Codex"
import * as AgentsWithPersonalities from "@cogni/sandbox-graph-provider/agents/AgentsWithPersonalities"
import * as OpenClaw from "@cogni/sandbox-graph-provider/agents/OpenClaw"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import * as Personality from "@cogni/sandbox-sessions/config/Personality"
import * as PersonalityCatalog from "@cogni/sandbox-sessions/config/PersonalityCatalog"
import { Effect, Layer, Result, Schema } from "effect"
import { type Refusal, refusal, refuse } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as HostTools from "./HostTools.ts"
import type { Settings } from "./Settings.ts"

/** Rules of the catalog that depend on the agents. */
export const options: PersonalityCatalog.CatalogOptions = {
  agents: {
    openclaw: { toolsDenied: OpenClaw.tools },
    [ClaudeCode.claudeCode.id]: {
      toolsDenied: AgentsWithPersonalities.claudeCodeTools,
      efforts: AgentsWithPersonalities.claudeCodeEfforts,
      subagentTools: AgentsWithPersonalities.claudeCodeTools,
      subagentNamesTaken: AgentsWithPersonalities.claudeCodeSubagents
    },
    [Codex.codex.id]: { efforts: AgentsWithPersonalities.codexEfforts }
  },
  namesTaken: Object.keys(OpenClaw.personalities)
}

/** Rules of the catalog that depend on the agents and on this host, as `config check` and proposals use them. */
export const rules = Effect.fnUntraced(function* (
  settings: Settings["Service"]
): Effect.fn.Return<PersonalityCatalog.CatalogOptions, Refusal> {
  return {
    ...options,
    models: yield* Effect.fromResult(modelsOf(settings)),
    runtimeImage: settings.runtimeImage,
    toolNames: yield* Effect.scoped(HostTools.namesWithoutServers(settings))
  }
})

/** Returns the patterns of the models that a configuration may name, or `undefined` for any. */
const modelsOf = ({
  configModels
}: Pick<Settings["Service"], "configModels">): Result.Result<ReadonlyArray<string> | undefined, Refusal> => {
  if (configModels === undefined) return Result.succeed(undefined)
  const patterns = configModels.split(",").map((pattern) => pattern.trim())
  return patterns.length <= modelPatternsMax && patterns.every(Schema.is(GrantPattern.NamePattern))
    ? Result.succeed(patterns)
    : refuse(
        "configuration",
        "COGNI_CONFIG_MODELS is not a list of patterns of models",
        `Write up to ${modelPatternsMax} names such as openai/*, separated by commas, or unset it`
      )
}

const modelPatternsMax = 100

/** Uses the files of a directory, in which no link leads out. */
const withFiles = <A, E, R>(
  path: string,
  use: (files: Files<FileRefused>) => Effect.Effect<A, E, R>
): Effect.Effect<A, E | Refusal, R> =>
  Effect.scoped(
    HeldDirectory.hold(path, { last: "follow" }).pipe(
      Effect.mapError(({ detail, problem, remedy }) =>
        refusal(
          problem === "not_found" ? "notFound" : "input",
          `the configuration ${path} cannot be read: it ${detail}`,
          remedy
        )
      ),
      Effect.flatMap(({ path: workspace }) => use(WorkspaceFiles.make({ workspace, alias: workspace })))
    )
  )

/** Reads the catalog of a directory. */
export const read = (
  path: string,
  more: PersonalityCatalog.CatalogOptions = {}
): Effect.Effect<PersonalityCatalog.PersonalityCatalog, Refusal | PersonalityCatalog.CatalogInvalid> =>
  withFiles(path, (files) => PersonalityCatalog.read(files, { ...options, ...more })).pipe(
    Effect.catchTag("FileRefused", ({ message }) =>
      Effect.fail(refusal("input", `the configuration ${path} cannot be read: ${message}`, "Check its disk"))
    )
  )

/** Adds the personalities and skills of a catalog to the built-in agents. */
export const agentsOf = (catalog: PersonalityCatalog.PersonalityCatalog): ReadonlyArray<Agent> => {
  const skills = Object.fromEntries(
    Object.entries(catalog.skills).map(([name, skill]) => [name, Personality.formatSkill(name, skill)])
  )
  return [
    ...AgentRegistry.builtIn,
    OpenClaw.make({ ...OpenClaw.personalities, ...personalitiesOf(catalog, "openclaw") }, skills),
    AgentsWithPersonalities.claudeCode(personalitiesOf(catalog, ClaudeCode.claudeCode.id), {
      skills,
      subagents: catalog.subagents
    }),
    AgentsWithPersonalities.codex(personalitiesOf(catalog, Codex.codex.id), { skills })
  ]
}

const personalitiesOf = (
  { personalities }: PersonalityCatalog.PersonalityCatalog,
  agent: string
): Readonly<Record<string, OpenClaw.OpenClawPersonality & AgentsWithPersonalities.ClaudeCodePersonality>> =>
  Object.fromEntries(
    Object.entries(personalities)
      .filter(([, { agents = Personality.agentsDefault }]) => agents.includes(agent))
      .map(([name, { displayName, effort, instructions, model, skills, subagents, toolsDenied }]) => [
        name,
        {
          instructions,
          ...Flags.given({ name: displayName, effort, model, skills, subagents, toolsDenied })
        }
      ])
  )

/** The registry of agents. Fails if the directory is invalid: its agents would be others than configured. */
export const registry = (
  settings: Pick<Settings["Service"], "configDirectory" | "configModels">
): Effect.Effect<AgentRegistry.AgentRegistry["Service"], Refusal> => {
  const { configDirectory } = settings
  return configDirectory === undefined
    ? Effect.succeed(AgentRegistry.make(AgentRegistry.builtIn))
    : Effect.fromResult(modelsOf(settings)).pipe(
        Effect.flatMap((models) => read(configDirectory, { models })),
        Effect.map((catalog) => AgentRegistry.make(agentsOf(catalog))),
        Effect.catchTag("CatalogInvalid", ({ message }) =>
          Effect.fail(
            refusal(
              "configuration",
              `COGNI_CONFIG_DIR: ${message}`,
              `See: cogni-sandbox config check ${configDirectory}`
            )
          )
        )
      )
}

export const layer = (
  settings: Pick<Settings["Service"], "configDirectory" | "configModels">
): Layer.Layer<AgentRegistry.AgentRegistry, Refusal> =>
  Layer.effect(AgentRegistry.AgentRegistry, registry(settings))
