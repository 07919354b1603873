/**
 * What a host of sessions is configured to do: its sandboxes, its agents, and which agent answers whom.
 *
 * Read from YAML as a whole or not at all, with everything that is wrong told at its place. What is left out is the
 * safe choice. No secret belongs in it. Pure: the caller brings the text.
 */
import type { Network } from "@cogni/sandbox-core/SandboxSpec"
import { Effect, Result, Schema, SchemaIssue } from "effect"
import * as AgentConfigRegistry from "./AgentConfigRegistry.ts"
import type { AgentConfig, ModelTier } from "./AgentConfig.ts"
import { bytesOf, ConfigurationFile } from "../internal/config/ConfigurationFile.ts"
import { consistent, warnings } from "../internal/config/ConfigurationRules.ts"
import * as YamlDocument from "../internal/config/YamlDocument.ts"
import * as ConfigurationError from "./ConfigurationError.ts"

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
  /** Existing tools: any other name in `tool_overrides` is refused. Left out: every name is taken. */
  readonly toolNames?: ReadonlyArray<string> | undefined
}

/** The longest file, in UTF-8. */
export const textBytesMax = 1024 * 1024

/** How a file is written; it is published as JSON Schema. */
export const File = ConfigurationFile

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
export const parse = Effect.fnUntraced(function* (
  text: string,
  { file, toolNames }: ParseOptions
): Effect.fn.Return<Configuration, ConfigurationError.ConfigurationError> {
  const refuse = (problems: ReadonlyArray<ConfigurationError.Problem>) =>
    Effect.fail(ConfigurationError.invalid(file, problems))
  if (Buffer.byteLength(text) > textBytesMax) {
    return yield* refuse([{ key: "", message: `Expected at most ${textBytesMax} bytes (1 MiB)` }])
  }
  const document = YamlDocument.parse(text)
  if (Result.isFailure(document)) return yield* refuse(document.failure)
  const { problem, value } = document.success
  const decoded = decode(consistent(toolNames))(value)
  if (Result.isSuccess(decoded)) return toConfiguration(file, decoded.success, problem)
  const { issues } = format(decoded.failure.issue)
  return yield* refuse(issues.map(({ message, path = [] }) => problem(path as YamlDocument.Path, message)))
})

const decode = (schema: ReturnType<typeof consistent>) =>
  Schema.decodeUnknownResult(schema, { errors: "all", onExcessProperty: "error" })

const format = SchemaIssue.makeFormatterStandardSchemaV1()

/** All that an agent's session is made from, as one text: where it differs, the session is made anew. */
export const fingerprint = ({ models, sandbox }: Configuration, agent: AgentConfig): string => {
  // How many sessions there may be, and for how long, is of no session.
  const { idleSeconds: _, sessionsMax: __, whenFull: ___, ...own } = sandbox
  return JSON.stringify([agent, models[agent.modelTier] ?? null, own])
}

const toConfiguration = (
  file: string,
  written: ConfigurationFile,
  problem: YamlDocument.YamlDocument["problem"]
): Configuration => {
  const { models = {}, routing, sandbox } = written
  return deepFreeze({
    file,
    sandbox: {
      enabled: sandbox.enabled,
      image: sandbox.image,
      workspaceDirectory: sandbox.workspace_dir,
      network: networkOf(sandbox.network),
      memoryBytesMax: bytesOf(sandbox.memory_limit),
      cpusMax: Number(sandbox.cpu_limit),
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
    warnings: warnings(written).map(({ issue, path }) => problem(path, issue))
  })
}

const networkOf = (network: string): Network =>
  network.startsWith("internal:")
    ? { mode: "internal", networkName: network.slice("internal:".length) }
    : { mode: "none" }

const deepFreeze = <A>(value: A): A => {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const inner of Object.values(value)) deepFreeze(inner)
  }
  return value
}
