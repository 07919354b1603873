/**
 * The agents of this installation: the built-in ones, with the personalities and skills of a directory.
 *
 * `COGNI_CONFIG_DIR` names the directory, such as a checkout of the repository of the configuration. It is read once,
 * when a command starts, and no agent may have it as its workspace.
 */
import type { Files } from "@cogni/sandbox-core/Executor"
import type { FileRefused } from "@cogni/sandbox-core/SandboxError"
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AgentPersonalities from "@cogni/sandbox-graph-provider/agents/AgentPersonalities"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { claudeCode } from "@cogni/sandbox-graph-provider/agents/ClaudeCode"
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import * as OpenClaw from "@cogni/sandbox-graph-provider/agents/OpenClaw"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import * as Personality from "@cogni/sandbox-sessions/config/Personality"
import * as PersonalityCatalog from "@cogni/sandbox-sessions/config/PersonalityCatalog"
import { Effect, Layer } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import type { Settings } from "./Settings.ts"

/** Where agents without personalities of their own look for skills. */
const skillsDirectories = [
  { agent: claudeCode, skillsDirectory: "/home/agent/.claude/skills" },
  { agent: codex, skillsDirectory: "/home/agent/.codex/skills" }
] as const

/** Rules of the catalog that depend on the agents. */
export const options = {
  agentTools: {
    openclaw: OpenClaw.tools,
    ...Object.fromEntries(skillsDirectories.map(({ agent }) => [agent.id, []]))
  },
  namesTaken: Object.keys(OpenClaw.personalities)
}

/** Uses the files of a directory, in which no link leads out. */
export const withFiles = <A, E, R>(
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
    ...skillsDirectories.map(({ agent, skillsDirectory }) =>
      AgentPersonalities.add(agent, {
        personalities: personalitiesOf(catalog, agent.id),
        skills,
        skillsDirectory
      })
    )
  ]
}

const personalitiesOf = (
  { personalities }: PersonalityCatalog.PersonalityCatalog,
  agent: string
): Readonly<Record<string, OpenClaw.OpenClawPersonality>> =>
  Object.fromEntries(
    Object.entries(personalities)
      .filter(([, { agents = Personality.agentsDefault }]) => agents.includes(agent))
      .map(([name, { displayName, instructions, model, skills, toolsDenied }]) => [
        name,
        { instructions, ...Flags.given({ name: displayName, model, skills, toolsDenied }) }
      ])
  )

/** The registry of agents. Fails if the directory is invalid: its agents would be others than configured. */
export const registry = (
  settings: Pick<Settings["Service"], "configDirectory">
): Effect.Effect<AgentRegistry.AgentRegistry["Service"], Refusal> =>
  settings.configDirectory === undefined
    ? Effect.succeed(AgentRegistry.make(AgentRegistry.builtIn))
    : read(settings.configDirectory).pipe(
        Effect.map((catalog) => AgentRegistry.make(agentsOf(catalog))),
        Effect.catchTag("CatalogInvalid", ({ message }) =>
          Effect.fail(
            refusal(
              "configuration",
              `COGNI_CONFIG_DIR: ${message}`,
              `See: cogni-sandbox config check ${settings.configDirectory}`
            )
          )
        )
      )

export const layer = (
  settings: Pick<Settings["Service"], "configDirectory">
): Layer.Layer<AgentRegistry.AgentRegistry, Refusal> =>
  Layer.effect(AgentRegistry.AgentRegistry, registry(settings))
