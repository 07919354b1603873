/**
 * All of chat sessions, put together: a configuration, a runner of sandboxes and something that answers come in, a
 * router of messages comes out.
 *
 *     message ─► MessageRouter ─► Orchestrator ─► tools ─► SandboxManager ─► the session's container
 *                  └ ConfigurationStore: one snapshot for each message
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect, Layer, Option } from "effect"
import type { Configuration } from "./config/Configuration.ts"
import { ConfigurationStore } from "./config/ConfigurationStore.ts"
import * as DockerSandbox from "./sandbox/DockerSandbox.ts"
import { Executors } from "./executor/Executors.ts"
import * as FileTools from "@cogni/sandbox-loop/FileTools"
import * as MessageRouter from "./router/MessageRouter.ts"
import type { Orchestrators } from "./router/Orchestrator.ts"
import * as ProcessTable from "@cogni/sandbox-loop/ProcessTable"
import * as ProcessTools from "@cogni/sandbox-loop/ProcessTools"
import * as SandboxManager from "./sandbox/SandboxManager.ts"
import type { SessionWorkspaces } from "./sandbox/SessionWorkspaces.ts"
import * as ShellTools from "@cogni/sandbox-loop/ShellTools"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"

export interface SessionsOptions extends Omit<MessageRouter.RouterOptions, "toolsFor"> {
  /** What the configuration does not say of sandboxes, such as how they reach a model. */
  readonly settings?: Partial<DockerSandbox.SandboxSettings> | undefined
  /** For agents that have no sandbox, and for `on_unavailable: host`. None unless given. */
  readonly host?: Executor | undefined
  /** Instead of {@link toolsFor}. */
  readonly toolsFor?: MessageRouter.ToolsFor | undefined
}

/** How a configuration has sandboxes held, and which models are asked through them. */
export const settingsOf = (
  { models, sandbox }: Pick<Configuration, "models" | "sandbox">,
  base: Partial<DockerSandbox.SandboxSettings> = {}
): DockerSandbox.SandboxSettings => ({
  ...base,
  image: sandbox.image,
  network: sandbox.network,
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
 * `shell.exec`, `process.*` and `file.*` over what the session executes in, as far as the agent's profile lets them
 * through. Processes live as long as the session.
 */
export const toolsFor: MessageRouter.ToolsFor = ({ agent, configuration, executor }) =>
  Effect.gen(function* () {
    const table = yield* ProcessTable.make(executor)
    const registry = yield* Effect.fromResult(
      ToolRegistry.make([
        ...ShellTools.make(executor, { timeoutSecondsMax: configuration.sandbox.commandTimeoutSecondsMax }),
        ...ProcessTools.make(executor, table),
        ...FileTools.make(executor)
      ])
    )
    return yield* Effect.fromResult(registry.restrict(agent.toolProfile, agent.toolOverrides))
  })

/** Sandboxes of sessions, as the configuration of the moment has them held. */
export const layerManager = (
  base: Partial<DockerSandbox.SandboxSettings> = {}
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
          settings: settingsOf(configuration, base)
        }))
      )
    )
  )

export const layerExecutors = (
  host?: Executor
): Layer.Layer<Executors, never, SandboxManager.SandboxManager> =>
  Layer.effect(
    Executors,
    Effect.map(SandboxManager.SandboxManager, (manager) => ({
      sandboxFor: manager.getOrCreate,
      host: Option.fromUndefinedOr(host)
    }))
  )

export const layer = (
  options: SessionsOptions = {}
): Layer.Layer<
  MessageRouter.MessageRouter | SandboxManager.SandboxManager,
  never,
  ConfigurationStore | Orchestrators | SandboxRunner | SessionWorkspaces
> =>
  MessageRouter.layer({ ...options, toolsFor: options.toolsFor ?? toolsFor }).pipe(
    Layer.provide(layerExecutors(options.host)),
    Layer.provideMerge(layerManager(options.settings)),
    Layer.provide(DockerSandbox.layer)
  )
