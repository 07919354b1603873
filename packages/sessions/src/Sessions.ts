/**
 * Composes chat sessions: combines a configuration, a sandbox runner and the orchestrators that answer into a message
 * router.
 *
 *     message ─► MessageRouter ─► Orchestrator ─► tools ─► SandboxManager ─► the session's container
 *                  └ ConfigurationStore: one snapshot for each message
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect, Layer, Option } from "effect"
import type { AgentConfig } from "./config/AgentConfig.ts"
import type { Configuration } from "./config/Configuration.ts"
import { ConfigurationStore } from "./config/ConfigurationStore.ts"
import * as DockerSandbox from "./sandbox/DockerSandbox.ts"
import { Executors } from "./executor/Executors.ts"
import * as ExecutorTools from "@cogni/sandbox-loop/ExecutorTools"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import * as MessageRouter from "./router/MessageRouter.ts"
import type { Orchestrators } from "./router/Orchestrator.ts"
import * as SandboxManager from "./sandbox/SandboxManager.ts"
import type { SessionWorkspaces } from "./sandbox/SessionWorkspaces.ts"

interface SessionsOptions extends Omit<MessageRouter.RouterOptions, "toolsFor"> {
  /** Sandbox settings that the configuration does not contain, such as how sandboxes reach a model. */
  readonly settings?: Partial<DockerSandbox.SandboxSettings> | undefined
  /** Adds names such as those of the sender and the session to the identity of `settings` (default none). */
  readonly identityOf?: SandboxManager.ManagerOptions["identityOf"]
  /** Host executor for agents without a sandbox and for `on_unavailable: host` (default: none). */
  readonly host?: Executor | undefined
  /** Tools of an agent's sessions beyond those of its executor, which its profile must allow too (default: none). */
  readonly moreTools?: ((agent: AgentConfig) => ReadonlyArray<Tool>) | undefined
  /** Tools of a session (default: those of the agent's profile, with `moreTools`). */
  readonly toolsFor?: MessageRouter.ToolsFor | undefined
}

/**
 * Converts a configuration to sandbox settings. If `base` has an `llm`, its models include those of the configuration.
 */
export const settingsOf = (
  { models, sandbox }: Pick<Configuration, "models" | "sandbox">,
  base: Partial<DockerSandbox.SandboxSettings> = {}
): DockerSandbox.SandboxSettings => ({
  ...base,
  image: sandbox.image,
  network: sandbox.network,
  ...(sandbox.packages.length === 0 ? {} : { packages: sandbox.packages }),
  limits: {
    ...base.limits,
    memoryBytesMax: sandbox.memoryBytesMax,
    cpusMax: sandbox.cpusMax,
    runtimeSecondsMax: sandbox.timeoutSecondsMax
  },
  ...(base.llm === undefined
    ? {}
    : {
        llm: {
          ...base.llm,
          models: {
            ...Object.fromEntries(Object.values(models).map((name) => [name, name])),
            ...base.llm.models
          }
        }
      })
})

/**
 * Makes `shell.exec`, `process.*` and `file.*` for a session's executor, restricted by the agent's profile. Processes
 * live as long as the session.
 */
const toolsOf = (
  { agent, configuration, executor }: Parameters<MessageRouter.ToolsFor>[0],
  more: ReadonlyArray<Tool>
): ReturnType<MessageRouter.ToolsFor> =>
  ExecutorTools.registry(executor, {
    profile: agent.toolProfile,
    overrides: agent.toolOverrides,
    timeoutSecondsMax: configuration.sandbox.commandTimeoutSecondsMax,
    more
  })

/** Layer of the session sandboxes. Each new sandbox uses the current configuration. */
const layerManager = (
  base: Partial<DockerSandbox.SandboxSettings> = {},
  identityOf?: SessionsOptions["identityOf"]
): Layer.Layer<
  SandboxManager.SandboxManager,
  never,
  ConfigurationStore | DockerSandbox.DockerSandbox | SessionWorkspaces
> =>
  Layer.unwrap(
    Effect.map(ConfigurationStore, (store) =>
      SandboxManager.layer(
        Effect.map(store.current, (configuration) => ({
          ...configuration.sandbox,
          settings: settingsOf(configuration, base),
          identityOf
        }))
      )
    )
  )

const layerExecutors = (host?: Executor): Layer.Layer<Executors, never, SandboxManager.SandboxManager> =>
  Layer.effect(
    Executors,
    Effect.map(SandboxManager.SandboxManager, (manager) => ({
      sandboxFor: manager.getOrCreate,
      host: Option.fromUndefinedOr(host)
    }))
  )

export const layer = ({ moreTools = () => [], ...options }: SessionsOptions = {}): Layer.Layer<
  MessageRouter.MessageRouter | SandboxManager.SandboxManager,
  never,
  ConfigurationStore | Orchestrators | SandboxRunner | SessionWorkspaces
> =>
  MessageRouter.layer({
    ...options,
    toolsFor: options.toolsFor ?? ((input) => toolsOf(input, moreTools(input.agent)))
  }).pipe(
    Layer.provide(layerExecutors(options.host)),
    Layer.provideMerge(layerManager(options.settings, options.identityOf)),
    Layer.provide(DockerSandbox.layer)
  )
