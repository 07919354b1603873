/**
 * The configuration of a session host: its sandboxes, its agents, and which agent answers which sender.
 *
 * A file is accepted or rejected as a whole, and all problems are reported with their positions. Defaults are the safe
 * choice. A configuration must not contain secrets. Pure: the caller supplies the text.
 */
import type { PackagePattern } from "@cogni/sandbox-core/PackagePattern"
import type { Network } from "@cogni/sandbox-core/SpecFields"
import { Effect, Result, Schema, SchemaIssue } from "effect"
import * as AgentConfigRegistry from "./AgentConfigRegistry.ts"
import type { AgentConfig, ModelTier } from "./AgentConfig.ts"
import { bytesOf, ConfigurationFile } from "../internal/config/ConfigurationFile.ts"
import { consistent, warnings } from "../internal/config/ConfigurationRules.ts"
import * as YamlDocument from "../internal/config/YamlDocument.ts"
import * as ConfigurationError from "./ConfigurationError.ts"

/** How sessions execute. */
export interface SandboxConfiguration {
  /** If false, agents run on the host, if there is a host executor. */
  readonly enabled: boolean
  readonly image: string
  readonly workspaceDirectory: "/workspace"
  readonly network: Network
  /** Packages that sandboxes may install from the host's mirror. */
  readonly packages: ReadonlyArray<PackagePattern>
  readonly memoryBytesMax: number
  readonly cpusMax: number
  /** Lifetime of one container. */
  readonly timeoutSecondsMax: number
  readonly commandTimeoutSecondsMax: number
  /** Time without a message after which a session ends. */
  readonly idleSeconds: number
  readonly sessionsMax: number
  readonly whenFull: "refuse" | "evict_idle"
  /** Policy for commands while the engine is absent. */
  readonly onUnavailable: "refuse" | "host"
  readonly persistentWorkspaces: boolean
}

/** Routing rules; each value is the name of a defined agent. */
export interface Routing {
  readonly defaultAgent: string
  readonly channels: Readonly<Record<string, string>>
  /** Keys are `CHANNEL:SENDER`, where SENDER is an ID or a pattern. */
  readonly senders: Readonly<Record<string, string>>
}

/** One immutable snapshot. */
export interface Configuration {
  /** Name of the source, as in errors. */
  readonly file: string
  readonly sandbox: SandboxConfiguration
  readonly agents: AgentConfigRegistry.AgentConfigRegistry
  readonly routing: Routing
  /** Model names by tier. A missing tier uses the host's model. */
  readonly models: Readonly<Partial<Record<ModelTier, string>>>
  /** Warnings to log at startup, such as agents that run, or may run, outside of a sandbox. */
  readonly warnings: ReadonlyArray<ConfigurationError.Problem>
}

export interface ParseOptions {
  /** Name of the source in errors, such as `cogni.yaml`. */
  readonly file: string
  /** Existing tools: `tool_overrides` accepts no other names (default: accepts any name). */
  readonly toolNames?: ReadonlyArray<string> | undefined
  /** Image of sandboxes if the text names none (default `cogni-sandbox/runtime:latest`). */
  readonly runtimeImage?: string | undefined
}

const runtimeImageDefault = "cogni-sandbox/runtime:latest"

/** The longest file, in UTF-8. */
export const textBytesMax = 1024 * 1024

/** Schema of the file; it is published as JSON Schema. */
export const File = ConfigurationFile

/** Returns the JSON Schema for editors (draft 2020-12), with a description of each key. */
export const jsonSchema = (): Readonly<Record<string, unknown>> => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(File, { onExcessProperty: "error" })
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Configuration of sessions",
    ...schema,
    ...(Object.keys(definitions).length === 0 ? {} : { $defs: definitions })
  }
}

/** Parses YAML into a configuration, or fails with all problems. */
export const parse = Effect.fnUntraced(function* (
  text: string,
  { file, runtimeImage = runtimeImageDefault, toolNames }: ParseOptions
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
  if (Result.isSuccess(decoded)) return toConfiguration(file, runtimeImage, decoded.success, problem)
  const { issues } = format(decoded.failure.issue)
  return yield* refuse(issues.map(({ message, path = [] }) => problem(path as YamlDocument.Path, message)))
})

const decode = (schema: ReturnType<typeof consistent>) =>
  Schema.decodeUnknownResult(schema, { errors: "all", onExcessProperty: "error" })

const format = SchemaIssue.makeFormatterStandardSchemaV1()

/** Returns all inputs of an agent's session as one text. When it changes, the session is recreated. */
export const fingerprint = ({ models, sandbox }: Configuration, agent: AgentConfig): string => {
  // The limits on the number and the idle time of sessions do not affect an existing session.
  const { idleSeconds: _, sessionsMax: __, whenFull: ___, ...own } = sandbox
  return JSON.stringify([agent, models[agent.modelTier] ?? null, own])
}

const toConfiguration = (
  file: string,
  runtimeImage: string,
  written: ConfigurationFile,
  problem: YamlDocument.YamlDocument["problem"]
): Configuration => {
  const { models = {}, routing, sandbox } = written
  return deepFreeze({
    file,
    sandbox: {
      enabled: sandbox.enabled,
      image: sandbox.image ?? runtimeImage,
      workspaceDirectory: sandbox.workspace_dir,
      network: networkOf(sandbox.network),
      packages: sandbox.packages,
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
