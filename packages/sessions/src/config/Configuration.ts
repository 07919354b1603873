/**
 * What a host of sessions is configured to do: its sandboxes, its agents, and which agent answers whom.
 *
 * Read from YAML as a whole or not at all, with everything that is wrong told at once and at its place. What is left
 * out is the safe choice. No secret belongs in it. Pure: whoever has the text brings it.
 */
import type { Network } from "@cogni/sandbox-core/SandboxSpec"
import { Effect, Result, Schema } from "effect"
import * as AgentConfigRegistry from "./AgentConfigRegistry.ts"
import type { AgentConfig, ModelTier } from "./AgentConfig.ts"
import * as ConfigurationError from "./ConfigurationError.ts"
import * as ConfigurationFile from "../internal/config/ConfigurationFile.ts"
import * as Quantity from "../internal/config/ConfigurationQuantity.ts"
import * as ConfigurationRules from "../internal/config/ConfigurationRules.ts"
import * as YamlIssues from "../internal/config/YamlIssues.ts"
import * as YamlText from "../internal/config/YamlText.ts"
import * as YamlTree from "../internal/config/YamlTree.ts"

/** How sessions execute. */
export interface SandboxConfiguration {
  /** Without it every agent runs on the host, if it runs at all. */
  readonly enabled: boolean
  readonly image: string
  readonly workspaceDirectory: "/workspace"
  readonly network: Network
  readonly memoryBytesMax: number
  readonly cpusMax: number
  /** How long one container lives. */
  readonly timeoutSecondsMax: number
  readonly commandTimeoutSecondsMax: number
  /** After which a session without a message is ended. */
  readonly idleSeconds: number
  readonly sessionsMax: number
  readonly whenFull: "refuse" | "evict_idle"
  /** What happens to commands when the engine is not there. */
  readonly onUnavailable: "refuse" | "host"
  readonly persistentWorkspaces: boolean
}

/** Which agent answers whom, by the names of agents that there are. */
export interface Routing {
  readonly defaultAgent: string
  readonly channels: Readonly<Record<string, string>>
  /** `CHANNEL:SENDER`, the sender one or a pattern. */
  readonly senders: Readonly<Record<string, string>>
}

/** One whole snapshot: nothing in it changes. */
export interface Configuration {
  /** What it was read from, as its reader calls it. */
  readonly file: string
  readonly sandbox: SandboxConfiguration
  readonly agents: AgentConfigRegistry.AgentConfigRegistry
  readonly routing: Routing
  /** By tier; a tier without one is the host's. */
  readonly models: Readonly<Partial<Record<ModelTier, string>>>
  /** What is worth saying at the start: what runs, or may come to run, outside of a sandbox. */
  readonly warnings: ReadonlyArray<ConfigurationError.Problem>
}

export interface ParseOptions {
  /** As it is to be called in errors, such as `cogni.yaml`. */
  readonly file: string
  /** Tools that there are; with them a name in `tool_overrides` that is none is refused. */
  readonly toolNames?: ReadonlyArray<string> | undefined
}

/** Of a file, in UTF-8. */
export const textBytesMax = YamlText.textBytesMax

/** How a file is written; it is published as JSON Schema. */
export const File = ConfigurationFile.ConfigurationFile

/** For editors: draft 2020-12, each key with what it means. */
export const jsonSchema = (): Readonly<Record<string, unknown>> => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(File, { onExcessProperty: "error" })
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Configuration of sessions",
    ...schema,
    ...(Object.keys(definitions).length === 0 ? {} : { $defs: definitions })
  }
}

/** What a text of YAML says; fails with everything that is wrong with it. */
export const parse = (
  text: string,
  options: ParseOptions
): Effect.Effect<Configuration, ConfigurationError.ConfigurationError> =>
  Effect.suspend(() => Effect.fromResult(parseResult(text, options)))

const parseResult = (
  text: string,
  { file, toolNames }: ParseOptions
): Result.Result<Configuration, ConfigurationError.ConfigurationError> => {
  const parsed = YamlTree.parse(text)
  if (parsed._tag === "Broken") return Result.fail(ConfigurationError.invalid(file, parsed.problems))
  const { findings, tree } = parsed
  const decoded = YamlIssues.decode(File, tree.value)
  const all = [
    ...findings,
    // What is wrong with a value already is not also missing or of a wrong type.
    ...[
      ...(Result.isFailure(decoded) ? decoded.failure : []),
      ...ConfigurationRules.findings(tree.value, toolNames)
    ].filter((finding) => !findings.some(({ path }) => isWithin(path, finding.path)))
  ]
  const [first, ...rest] = all.map((finding) => YamlIssues.toProblem(tree, finding))
  return Result.isSuccess(decoded) && first === undefined
    ? Result.succeed(toConfiguration(file, decoded.success, tree))
    : Result.fail(ConfigurationError.invalid(file, [first ?? nothingElse, ...rest]))
}

/** Of a file that is refused without a finding, which there is none of. */
const nothingElse: ConfigurationError.Problem = { key: "", message: "Expected a configuration" }

/** All that an agent's session is made from, as one text: where it differs, the session is made anew. */
export const fingerprint = ({ models, sandbox }: Configuration, agent: AgentConfig): string => {
  // How many sessions there may be, and for how long, is of no session.
  const { idleSeconds: _, sessionsMax: __, whenFull: ___, ...own } = sandbox
  return canonical([agent, models[agent.modelTier] ?? null, own])
}

/** The same text for the same value, whatever the order of its keys. */
const canonical = (value: unknown): string =>
  JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : inner
  )

const isWithin = (outer: YamlTree.Path, inner: YamlTree.Path): boolean =>
  outer.length > 0 && outer.every((step, at) => inner[at] === step)

const toConfiguration = (
  file: string,
  written: ConfigurationFile.ConfigurationFile,
  tree: YamlTree.Tree
): Configuration => {
  const { models = {}, routing, sandbox } = written
  return deepFreeze({
    file,
    sandbox: {
      enabled: sandbox.enabled,
      image: sandbox.image,
      workspaceDirectory: sandbox.workspace_dir,
      network: Quantity.networkOf(sandbox.network),
      memoryBytesMax: Quantity.bytesOf(sandbox.memory_limit),
      cpusMax: Quantity.cpusOf(sandbox.cpu_limit),
      timeoutSecondsMax: sandbox.timeout_seconds,
      commandTimeoutSecondsMax: sandbox.command_timeout_seconds ?? Math.min(120, sandbox.timeout_seconds),
      idleSeconds: sandbox.idle_seconds,
      sessionsMax: sandbox.sessions_max,
      whenFull: sandbox.when_full,
      onUnavailable: sandbox.on_unavailable,
      persistentWorkspaces: sandbox.persistent_workspaces
    },
    agents: AgentConfigRegistry.loadFromConfig(written.agent_configs),
    routing: { defaultAgent: routing.default_agent, channels: routing.channels, senders: routing.senders },
    models,
    warnings: ConfigurationRules.warnings(written).map((finding) => YamlIssues.toProblem(tree, finding))
  })
}

const deepFreeze = <A>(value: A): A => {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const inner of Object.values(value)) deepFreeze(inner)
  }
  return value
}
