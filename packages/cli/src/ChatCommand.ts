/**
 * `cogni-sandbox chat`: reads messages and writes replies as lines of JSON. Each session has its own sandbox.
 *
 * For a program that has a channel (such as a messenger bot) and needs isolated agents. The host asks the model,
 * through the session's own proxy, and executes its tool calls in the session's container. A changed configuration is
 * read again.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { LlmProxy, type LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import { named } from "@cogni/sandbox-core/Remedy"
import * as RunId from "@cogni/sandbox-core/RunId"
import { HostFailed, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import type { LlmAccess, LlmBudget, LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import * as AiSdkChatModel from "@cogni/sandbox-loop/AiSdkChatModel"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import type { Configuration } from "@cogni/sandbox-sessions/config/Configuration"
import type * as ConfigurationError from "@cogni/sandbox-sessions/config/ConfigurationError"
import * as ConfigurationStore from "@cogni/sandbox-sessions/config/ConfigurationStore"
import * as HostExecutor from "@cogni/sandbox-sessions/executor/HostExecutor"
import * as HostSessionWorkspaces from "@cogni/sandbox-sessions/sandbox/HostSessionWorkspaces"
import * as MessageLines from "@cogni/sandbox-sessions/router/MessageLines"
import * as ModelOrchestrators from "@cogni/sandbox-sessions/router/ModelOrchestrators"
import * as Sessions from "@cogni/sandbox-sessions/Sessions"
import * as SessionId from "@cogni/sandbox-sessions/sandbox/SessionId"
import * as SessionWorkspaces from "@cogni/sandbox-sessions/sandbox/SessionWorkspaces"
import { Context, Effect, FileSystem, Layer, Option, Result, Stdio, Stream } from "effect"
import { join } from "node:path"
import { hostSessionSecondsMax } from "./ChatRemains.ts"
import * as Composition from "./Composition.ts"
import * as ConfigCommand from "./ConfigCommand.ts"
import * as Connections from "./Connections.ts"
import { mapLayerError, type Refusal, refusal, refuse } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as HostTools from "./HostTools.ts"
import * as IdentityProof from "./IdentityProof.ts"
import * as MetricsPort from "./MetricsPort.ts"
import * as Output from "./Output.ts"
import * as PoolFlags from "./PoolFlags.ts"
import * as ProxyFlags from "./ProxyFlags.ts"
import * as Reaping from "./Reaping.ts"
import * as RunPlan from "./RunPlan.ts"
import { inChat } from "./RemedyWords.ts"
import * as ServeComposition from "./ServeComposition.ts"
import { Settings } from "./Settings.ts"
import * as ToolRuleText from "./ToolRuleText.ts"

type ChatInput = Flags.Typed<typeof Flags.chat & typeof PoolFlags.chat> & { readonly file: string }

/** Longest time until a change of the configuration takes effect. */
export const reloadSecondsMax = 2

const reading = `reading messages, one per line: {"channel":"…","senderId":"…","text":"…"}`

/** Output limits of one command on the host: bytes it may write, and bytes that are kept. */
const hostLimits = { outputBytesMax: 64 * 1024 * 1024, outputRetainedBytesMax: 4 * 1024 * 1024 }

export const chat = Effect.fnUntraced(function* (input: ChatInput) {
  yield* PoolFlags.checked(input)
  yield* MetricsPort.opened(input.metricsPort)
  const settings = yield* Settings
  const output = yield* Output.Output
  const stdio = yield* Stdio.Stdio
  const spending = yield* Effect.fromResult(spendingOf(input))
  const upstream = yield* Effect.fromResult(upstreamOf(input, settings))
  const { runtimeImage } = settings
  const tools = yield* HostTools.make(settings, Connections.operator(settings))
  const toolNames = HostTools.namesOf(tools)
  const offered = input.proxy === "nginx-shared" ? [] : tools
  const gated = yield* gatedOf(offered, input)
  const store = yield* Layer.build(
    ConfigurationStore.layerFile(input.file, { toolNames, runtimeImage, reloadSecondsMax }).pipe(
      mapLayerError(refusalOf)
    )
  ).pipe(input.demo ? Effect.map(withoutModels) : (built) => built)
  const configuration = yield* Context.get(store, ConfigurationStore.ConfigurationStore).current
  yield* Effect.fromResult(offeredOnly(configuration, { tools, offered }))
  const fallback = input.model ?? (input.demo ? DemoUpstream.model : settings.model)
  const model = yield* Effect.fromResult(modelOf(configuration, fallback))
  const wayOut = { ...upstream, model }
  yield* Effect.fromResult(RunPlan.paid(settings, wayOut))
  const { hostSessions, sessions: directory } = StateDirectory.paths(settings.stateDirectory)
  const pool = yield* poolOf(configuration, input)
  const host = input.hostDirectory === undefined ? undefined : yield* hostExecutor(input.hostDirectory)
  if (wayOut._tag === "Upstream") yield* IdentityProof.required(settings)
  const runner = Composition.runner(settings, {
    wayOut,
    ...pool,
    hostTools: offered,
    approvalWaitSecondsMax: input.approvalWaitSecondsMax,
    proxy: input.proxy,
    auditBodies: input.auditBodies,
    allowedWorkspace: (path) => path.startsWith(`${directory}/`)
  }).pipe(Layer.provide(gated.asks ? ServeComposition.approvals(settings) : Layer.empty))
  // With canaries, the model's calls go through the proxy of the sandbox, which knows them.
  const talksOnHost = input.canaries === "off"
  const identity = { billingAccountId: settings.billingAccountId, attempt: 0 }
  const orchestrators = orchestratorsOf({
    fallback,
    access: { identity, ...spending },
    request: gated.request,
    hostSessions,
    talksOnHost,
    // As long as a container, so that what a session has spent is settled, and its reservation returned, as often.
    endpointSecondsMax: Math.min(configuration.sandbox.timeoutSecondsMax, hostSessionSecondsMax / 2)
  })
  const sessions = Sessions.layer({
    host,
    identityOf,
    moreTools: ({ toolOverrides }) => HostTools.named(offered, toolOverrides),
    settings: talksOnHost
      ? {}
      : {
          ...gated.request,
          llm: { model, identity, ...spending, caller: "host" },
          canaries: input.canaries
        }
  }).pipe(
    Layer.provide(orchestrators.pipe(Layer.provide(AiSdkChatModel.layer()))),
    Layer.provide(workspaces(directory)),
    Layer.provideMerge(runner),
    Layer.provideMerge(Layer.succeedContext(store))
  )
  yield* Effect.gen(function* () {
    // Orphaned resources are removed, and the usage of dead processes recorded, before the first message.
    yield* Effect.flatMap(DockerReaper, (reaper) => reaper.reapAtStart)
    yield* Reaping.records.pipe(
      Effect.catch(({ message }) =>
        Effect.logWarning(
          `the records of dead processes were not updated (try cogni-sandbox prune): ${message}`
        )
      )
    )
    if (!input.quiet) yield* announced(input, settings, wayOut)
    yield* MessageLines.serve({
      input: stdio.stdin,
      write: output.stdoutJson,
      wording: inChat,
      demo: input.demo
    })
  }).pipe(Effect.scoped, Effect.provide(sessions))
}, Effect.scoped)

/** Returns the budget of each session. Refuses limits that the proxy could not enforce, before a session starts. */
const spendingOf = (input: ChatInput): Result.Result<{ readonly budget?: LlmBudget }, Refusal> =>
  Result.flatMap(RunPlan.budgetOf(input, "chat"), (budget) =>
    // Rules for host tools refuse nothing: agents are offered none behind such a proxy.
    Result.map(ProxyFlags.served({ ...input, askTools: undefined }), () =>
      budget === undefined ? {} : { budget }
    )
  )

type Store = Context.Context<ConfigurationStore.ConfigurationStore>

/** Leaves out the models of the file, as `run --demo` does: calls of the demo must not be counted as theirs. */
const withoutModels = (store: Store): Store => {
  const { changes, current, reload } = Context.get(store, ConfigurationStore.ConfigurationStore)
  const without = (configuration: Configuration): Configuration => ({ ...configuration, models: {} })
  return Context.make(ConfigurationStore.ConfigurationStore, {
    current: Effect.map(current, without),
    reload: Effect.map(reload, without),
    changes: Stream.map(changes, without)
  })
}

/** Returns the upstream, before its models are known: the configuration may name them. */
const upstreamOf = (
  { costUsdMax, demo, model = "named by the configuration" }: ChatInput,
  settings: Settings["Service"]
) => RunPlan.modelWayOut({ costUsdMax, demo, model }, settings)

/** Says that no model is asked, and to a person what to write. */
const announced = Effect.fnUntraced(function* (
  { demo }: ChatInput,
  settings: Settings["Service"],
  wayOut: RunPlan.WayOut
) {
  const output = yield* Output.Output
  const note = RunPlan.noteOf({ demo }, settings, wayOut)
  if (note !== undefined) yield* Output.note(note)
  if (output.stderrIsTerminal) yield* output.stderr(`· ${reading}\n`)
})

/**
 * Returns the options of a pool for new sessions, as `DockerSandbox` opens them. If no agent has a sandbox, none waits
 * from the start on. The pool learns what sessions of another configuration open.
 */
export const poolOf = (
  configuration: Configuration,
  { canaries, pool, poolMemoryBytes }: Pick<ChatInput, "canaries" | "pool" | "poolMemoryBytes">
) => {
  const { agents, file, sandbox } = configuration
  const sizes = { pool, poolMemoryBytes }
  if (sandbox.enabled && agents.list.some((agent) => agent.sandbox))
    return Effect.succeed({
      ...sizes,
      keep: { ...Sessions.settingsOf(configuration, { canaries }), memory: true }
    })
  const warning =
    `warning: no sandbox of --pool waits, because no agent of ${file} has a sandbox. ` +
    "Set sandbox.enabled to true, or leave out --pool"
  return Effect.as(pool === undefined || pool === 0 ? Effect.void : Output.note(warning), {
    ...sizes,
    keep: undefined
  })
}

/** Refuses an agent that names host tools which no call of it would reach. */
const offeredOnly = (
  { agents }: Configuration,
  { offered, tools }: Readonly<Record<"offered" | "tools", ReadonlyArray<Tool>>>
): Result.Result<void, Refusal> => {
  if (offered.length === tools.length) return Result.succeed(undefined)
  const agent = agents.list.find(
    ({ toolOverrides }) => HostTools.named(tools, { allow: toolOverrides.allow }).length > 0
  )
  return agent === undefined
    ? Result.succeed(undefined)
    : refuse(
        "input",
        `the proxy nginx-shared cannot pass on the calls of host tools, which the agent ${agent.name} may make`,
        "Use --proxy gateway, or remove the host tools from its tool_overrides"
      )
}

/** Orchestrators that answer with a model, through the proxy of this host or of the session's sandbox. */
const orchestratorsOf = ({
  access,
  endpointSecondsMax,
  fallback,
  hostSessions,
  request,
  talksOnHost
}: {
  readonly access: Pick<LlmAccess, "budget" | "identity">
  /** Age at which a session's endpoint on this host is replaced. */
  readonly endpointSecondsMax: number
  /** Model of agents whose tier has none. */
  readonly fallback: string | undefined
  /** Directory of the proxies of this host. */
  readonly hostSessions: string
  readonly request: Pick<LlmRequest, "toolRules" | "tools">
  readonly talksOnHost: boolean
}) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const proxy = yield* LlmProxy
      const endpointOnHost = (asked: string, key: string) =>
        Effect.flatMap(identityOf(access.identity, key), (identity) =>
          Effect.provideService(
            hostEndpoint({ ...access, model: asked, identity }, request, hostSessions),
            LlmProxy,
            proxy
          )
        )
      return ModelOrchestrators.layer({
        model: fallback,
        identity: access.identity,
        endpointOnHost,
        endpointSecondsMax,
        talksOnHost,
        readsMemory: talksOnHost ? "after_tools" : true,
        gatewayTools: request.tools
      })
    })
  )

/** Tools that one session may name, as for any run. */
const gatedToolsMax = 64

/**
 * The host tools of all sessions, which are called through the gateway of the session's run: it applies the rules, asks
 * for approvals, and audits each call. Agents get those that their overrides name.
 */
const gatedOf = Effect.fnUntraced(function* (
  tools: ReadonlyArray<Tool>,
  input: Pick<ChatInput, "askTools" | "closedTools">
) {
  if (tools.length > gatedToolsMax)
    return yield* refusal(
      "configuration",
      `the host has ${tools.length} tools, and a session may have at most ${gatedToolsMax}`,
      "Name fewer tools in COGNI_MCP_SERVERS_FILE"
    )
  const rules = yield* ToolRuleText.ofFlags(input)
  return {
    asks: rules.some(({ access }) => access === "ask"),
    request: {
      tools: tools.map(({ name }) => name),
      ...(rules.length === 0 ? {} : { toolRules: [{ tool: "**", access: "open" as const }, ...rules] })
    }
  }
})

/**
 * Returns the default model of sandboxes, which also allow the models of all tiers: the fallback, or the first agent's
 * model if every agent has one.
 */
const modelOf = (
  { agents, models }: Configuration,
  fallback: string | undefined
): Result.Result<string, Refusal> => {
  if (fallback !== undefined) return Result.succeed(fallback)
  const without = agents.list.find(({ modelTier }) => models[modelTier] === undefined)
  const [first] = agents.list.flatMap(({ modelTier }) => models[modelTier] ?? [])
  return without === undefined && first !== undefined
    ? Result.succeed(first)
    : refuse(
        "configuration",
        `no model is named for the agent ${without?.name}, whose tier is ${without?.modelTier}`,
        "Name one with models in the file, --model NAME, or COGNI_LLM_MODEL"
      )
}

const hostExecutor = Effect.fnUntraced(function* (directory: string) {
  const problem = yield* FileSystem.FileSystem.use((fs) => fs.stat(directory)).pipe(
    Effect.map(({ type }) => (type === "Directory" ? undefined : "is not a directory")),
    Effect.catch(({ reason }) => Effect.succeed(reason._tag === "NotFound" ? "does not exist" : undefined))
  )
  if (problem !== undefined) {
    return yield* refusal(
      "notFound",
      `--host-directory ${JSON.stringify(directory)} ${problem}`,
      "Create it, or name a directory that exists"
    )
  }
  return yield* HostExecutor.make({ workspace: directory, limits: hostLimits }).pipe(
    Effect.mapError(({ message }) => refusal("input", message, "See --host-directory"))
  )
})

/** Workspaces as configured at the start. A later change between persistent and temporary ones has no effect. */
const workspaces = (
  directory: string
): Layer.Layer<SessionWorkspaces.SessionWorkspaces, never, ConfigurationStore.ConfigurationStore> =>
  Layer.unwrap(
    ConfigurationStore.ConfigurationStore.use((store) => store.current).pipe(
      Effect.map(({ sandbox }) =>
        sandbox.persistentWorkspaces
          ? HostSessionWorkspaces.layer({ directory })
          : SessionWorkspaces.layerTemporary
      )
    )
  )

/** Adds the sender, the session and the trace to the account. The key of a session ends with its agent's name. */
const identityOf = Effect.fnUntraced(function* (account: LlmIdentity, key: string) {
  const span = yield* Effect.option(Effect.currentSpan)
  return {
    ...account,
    userId: SessionId.identifierOf(key.slice(0, key.lastIndexOf(":"))),
    sessionId: SessionId.identifierOf(key),
    ...(Option.isSome(span) ? { existingTraceId: span.value.traceId } : {})
  } satisfies LlmIdentity
})

/**
 * Opens a proxy of the host for a session. It is the same proxy as that of a run, with the same key, and with an audit
 * of its own. A session that only talks needs nothing else.
 */
const hostEndpoint = Effect.fnUntraced(function* (
  access: Pick<LlmAccess, "budget" | "identity" | "model">,
  request: Pick<LlmRequest, "toolRules" | "tools">,
  parent: string
) {
  const proxy = yield* LlmProxy
  const runId = yield* RunId.generate
  const directory = join(parent, runId)
  yield* attempt(
    () => OwnFiles.makeDirectory(directory),
    (_message, thrown) =>
      HostFailed.of(
        directory,
        "cannot be created",
        thrown,
        `Set ${named("FileRunStore.directory")} to a directory that this user can write to`
      )
  )
  const { hostSocketPath, ready } = yield* proxy.acquire({
    runId,
    llm: { ...access, models: {}, unknownFields: "drop", caller: "host" },
    runtimeSecondsMax: hostSessionSecondsMax,
    directory,
    ...request,
    canaries: { policy: "off", planted: [] },
    observe: () => Effect.void
  })
  yield* ready
  if (hostSocketPath === undefined) {
    return yield* new ProxyFailed({
      detail: "the proxy has no socket on this host",
      remedy: "Enable the sandbox of the agent"
    })
  }
  return { socketPath: hostSocketPath }
})

/** Returns a refusal with the first problem of a configuration. */
const refusalOf = ({ file, lines, reason }: ConfigurationError.ConfigurationError) =>
  reason._tag === "ConfigurationUnreadable"
    ? ConfigCommand.unreadable(file, reason)
    : refusal(
        "input",
        `the configuration is invalid: ${lines[0]}`,
        lines.length === 1 ? `Correct ${file}` : `List all problems: cogni-sandbox config check ${file}`,
        { reason: reason._tag }
      )
