/**
 * Sealed sandboxes with Promises: one call for one sandbox, or a host for many.
 *
 *     createSandbox ─► exec · spawn · files ─► close
 *     createHost ─► createSandbox · run · stream · runAgent · streamAgent ─► close
 *
 * A thin layer over the services of the other packages. It adds no behavior: specs, limits, errors and results are
 * theirs. Use their Effects instead for retries, other stores, grants, tools and git repositories.
 */
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import type { RunEvent } from "@cogni/sandbox-core/RunEvent"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { InvalidSpec } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { type SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as DockerSocket from "@cogni/sandbox-docker/DockerSocket"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostSandboxPool from "@cogni/sandbox-docker/HostSandboxPool"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import { type Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import { type Message } from "@cogni/sandbox-graph-provider/agents/AgentFields"
import { defaultImage } from "@cogni/sandbox-graph-provider/agents/AgentParts"
import type { AgentAnswer, AgentEvent } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import * as AgentCatalog from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import type { PackageMirrorOptions } from "@cogni/sandbox-proxy/PackageMirror"
import { Config, ConfigProvider, Data, Effect, Layer, Queue, Redacted, Result, Schema, Stream } from "effect"
import * as HostLedger from "./internal/HostLedger.ts"
import * as HostRuntime from "./internal/HostRuntime.ts"
import { toProgram } from "./internal/MemoryPrograms.ts"
import * as PromiseSandbox from "./internal/PromiseSandbox.ts"
import type { MemoryProgram } from "./MemoryProgram.ts"
import type { Sandbox } from "./Sandbox.ts"

export { SandboxError } from "@cogni/sandbox-core/SandboxError"
export type { RunEvent } from "@cogni/sandbox-core/RunEvent"
export type { RunResult } from "@cogni/sandbox-core/RunResult"

/** The model API, as the host reaches it. The key never enters a sandbox. */
export interface Upstream extends Omit<GatewayLlmProxy.GatewayLlmProxyOptions, "key" | "packages" | "tools"> {
  readonly key: string
}

/** A host without the choice of its model and of who hears what that costs. */
interface Place {
  /**
   * Address of the Docker Engine, such as `/var/run/docker.sock` or `tcp://…`. Default: the variable `DOCKER_HOST`, or
   * else `/var/run/docker.sock`.
   */
  readonly docker?: string | undefined
  /** OCI runtime that starts sandboxes, by its name on the engine, such as `crun`. Default: the engine's. */
  readonly engineRuntime?: string | undefined
  /**
   * Simulates containers in memory instead, with this program in place of each command. Then nothing else here is used
   * but `agents`: no engine, no model, no registry and no file.
   */
  readonly inMemory?: MemoryProgram | undefined
  /** Registries from which sandboxes may install the packages that their specs name. Without it, none. */
  readonly registries?: PackageMirrorOptions | undefined
  /** Directory for the records of runs and their audits (default `~/.local/state/cogni-sandbox`). */
  readonly stateDirectory?: string | undefined
  /** Agents in addition to the built-in ones. One with the ID of a built-in agent replaces it. */
  readonly agents?: ReadonlyArray<Agent> | undefined
}

/** The model API and its ledger. One without the other is refused. */
interface Billed {
  /** Model API for sandboxes and agents that have a model. Without it, none of them can have one. */
  readonly upstream?: Upstream | undefined
  /**
   * Ledger that every model call of `upstream` is entered into, such as `SqlLedger.layerAt("./ledger.db")` of
   * `@cogni/sandbox-sql`. A run that cannot be entered does not start. With `"none"`, only the results and the records
   * of runs have costs, and an open sandbox has no result.
   */
  readonly ledger: Layer.Layer<Ledger, { readonly message: string }> | "none"
}

/** No model: no sandbox can have one. */
interface Unbilled {
  readonly upstream?: undefined
  readonly ledger?: undefined
}

/** Options of a host. One with a model has a ledger, or states that it has none. */
export type HostOptions = Place & (Billed | Unbilled)

/** Options of a host that runs more than one sandbox. */
interface Pool {
  /**
   * Starts sandboxes in advance, so that most runs need no start of a container. Nothing is started before the first
   * call of `run`, `stream`, `runAgent`, `streamAgent` or `createSandbox`, not even what `keep` names. To start earlier,
   * call `run({ argv: ["true"] })`. Runs with canaries or an internal network start cold. So do
   * those with a workspace of the caller's, unless this process is root on a host that can bind directories. Default:
   * none waits.
   */
  readonly pool?: Omit<NonNullable<Parameters<typeof HostSandboxPool.layer>[0]>, "reports"> | undefined
}

interface Signal {
  /** Ends the call when it aborts. The Promise rejects with the signal's reason, after the cleanup. */
  readonly signal?: AbortSignal | undefined
}

/** The spec of a sandbox. Everything has a default; `image` is `cogni-sandbox/runtime:latest`. */
export interface SandboxOptions
  extends Partial<Omit<SandboxSpecInput, "argv" | "preload" | "tools">>, Signal {}

/** The spec of a run. Only `argv` has no default. */
export interface RunOptions extends SandboxOptions, Pick<SandboxSpecInput, "argv"> {}

/** The task of an agent, and the spec of its run. `image` is the agent's own by default. */
export interface AgentOptions
  extends Omit<SandboxOptions, "llm" | "inputs">, Required<Pick<SandboxSpecInput, "llm">> {
  /** The last message is the task; those before it are the history. A string is one message of the user. */
  readonly prompt: string | readonly [Message, ...ReadonlyArray<Message>]
  /** Only for agents that have personalities. */
  readonly personality?: string | undefined
}

/** Answer of an agent, and the result of its run. */
export interface AgentEnd extends AgentAnswer {
  readonly result: RunResult
}

/** The run succeeded, but the agent gave no answer: it reported an error, or ended with another exit code than 0. */
export class AnswerMissing extends Data.TaggedError("AnswerMissing")<
  AgentRun.AnswerMissing & { readonly result: RunResult }
> {}

/** Runs sandboxes of one engine, with one gateway to the model. Disposing of it ends everything that it runs. */
export interface SandboxHost extends AsyncDisposable {
  /** The agents of `runAgent`, by name, as a catalog for menus such as `useAgents` of `@cogni/sandbox-react`. */
  readonly agents: ReadonlyArray<AgentCatalog.AgentDescriptor>
  /** Opens a sandbox that runs many commands. `limits.runtimeSecondsMax` bounds its whole life. */
  readonly createSandbox: (options?: SandboxOptions) => Promise<Sandbox>
  /** Runs one command to its end. An exit code other than 0 is a result, not an error. */
  readonly run: (options: RunOptions) => Promise<RunResult>
  /** Like `run`, as events. A consumer that stops early ends the run. The last event has the result. */
  readonly stream: (options: RunOptions) => AsyncIterable<RunEvent>
  /** Runs an agent on a task. Rejects with `AnswerMissing` if it gives no answer. */
  readonly runAgent: (agentId: string, options: AgentOptions) => Promise<AgentEnd>
  /** Like `runAgent`, as events: those of the agent, then `end`. */
  readonly streamAgent: (
    agentId: string,
    options: AgentOptions
  ) => AsyncIterable<AgentEvent | { readonly type: "end"; readonly end: AgentEnd }>
  /** Ends all runs and sandboxes, and waits until they are removed. */
  readonly close: () => Promise<void>
}

/** Options as a program without types may give them, with a model and without a ledger. */
interface Host extends Place {
  readonly upstream?: Upstream | undefined
  readonly ledger?: Billed["ledger"] | undefined
}

/** Creates a host. Nothing is started before its first use. */
export const createHost = (options: HostOptions & Pool = {}): SandboxHost => hostOf(options)

const hostOf = (options: Host & Pool): SandboxHost => {
  const runtime = HostRuntime.make(layerOf(options))
  const agents = AgentRegistry.make([...AgentRegistry.builtIn, ...(options.agents ?? [])])
  const runner = SandboxRunner.SandboxRunner
  return {
    agents: AgentCatalog.ofRegistry(agents),
    createSandbox: (given) => openIn(runtime, given),
    run: ({ signal, ...spec }) =>
      runtime.settle(
        runner.use((one) => one.run(withImage(spec))),
        signal
      ),
    stream: ({ signal, ...spec }) =>
      runtime.iterate(Stream.unwrap(runner.useSync((one) => one.stream(withImage(spec)))), signal),
    runAgent: (agentId, { signal, ...asked }) =>
      runtime.settle(
        agentRun(agents, agentId, asked, () => Effect.void),
        signal
      ),
    streamAgent: (agentId, { signal, ...asked }) =>
      runtime.iterate(agentStream(agents, agentId, asked), signal),
    close: runtime.close,
    [Symbol.asyncDispose]: runtime.close
  }
}

/** Opens one sandbox on a host of its own, which closes with it. */
export const createSandbox = async (options: HostOptions & SandboxOptions = {}): Promise<Sandbox> => {
  const [host, { signal, ...spec }] = divided(options)
  const runtime = HostRuntime.make(layerOf(host))
  try {
    return await openIn(runtime, { ...spec, signal }, runtime.close)
  } catch (error) {
    // A release that fails as well would hide why.
    await runtime.close().catch(() => undefined)
    throw error
  }
}

/** Runs one command on a host of its own. */
export const run = async (options: HostOptions & RunOptions): Promise<RunResult> => {
  const [own, { argv, ...spec }] = divided(options)
  await using host = hostOf(own)
  return await host.run({ ...spec, argv })
}

/** Runs one agent on a host of its own. */
export const runAgent = async (agentId: string, options: HostOptions & AgentOptions): Promise<AgentEnd> => {
  const [own, asked] = divided(options)
  await using host = hostOf(own)
  return await host.runAgent(agentId, asked)
}

const divided = <O extends Host>(options: O): readonly [Host, Omit<O, keyof Host>] => {
  const { agents, docker, engineRuntime, inMemory, ledger, registries, stateDirectory, upstream, ...rest } =
    options
  return [{ agents, docker, engineRuntime, inMemory, ledger, registries, stateDirectory, upstream }, rest]
}

const layerOf = (options: Host & Pool): Layer.Layer<SandboxRunner.SandboxRunner, SandboxError> => {
  if (options.inMemory !== undefined)
    return options.ledger === undefined || options.ledger === "none"
      ? SandboxRunner.layerMemory({ program: toProgram(options.inMemory) })
      : failed(HostLedger.withoutModel)
  const stateDirectory = options.stateDirectory ?? StateDirectory.defaultPath(undefined)
  const paths = StateDirectory.paths(stateDirectory)
  return SandboxRunner.layer.pipe(
    Layer.provide(
      options.pool === undefined
        ? Layer.empty
        : HostSandboxPool.layer({ ...options.pool, reports: paths.pools })
    ),
    Layer.provide(proxyOf(options, paths.packages)),
    Layer.provide([
      containersOf(options),
      FileRunStore.layer({
        directory: stateDirectory,
        trafficOf: AuditTraffic.reader({ prices: options.upstream?.prices })
      }),
      HostWorkspace.layer({
        claims: paths.claims,
        waiting: paths.waiting,
        forbidden: [
          {
            path: stateDirectory,
            name: "the state directory",
            remedy: "Use another workspace, or another stateDirectory"
          }
        ]
      })
    ]),
    Layer.catch(failed)
  )
}

const dockerHost = Config.withDefault(Config.String("DOCKER_HOST"), "")

/** Containers of the engine of these options, or else of the one that the environment names at this moment. */
const containersOf = ({ docker, engineRuntime }: Pick<Place, "docker" | "engineRuntime">) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const named = docker ?? (yield* dockerHost.parse(ConfigProvider.fromEnv()))
      return DockerContainerRuntime.layer({
        host: named === "" ? DockerSocket.defaultPath : named,
        engineRuntime
      })
    }).pipe(Effect.orDie)
  )

const failed = (reason: SandboxError["reason"]): Layer.Layer<SandboxRunner.SandboxRunner, SandboxError> =>
  Layer.effect(SandboxRunner.SandboxRunner, Effect.fail(new SandboxError({ reason })))

const proxyOf = ({ ledger, registries, upstream }: Host, cacheDirectory: string) => {
  const packages = registries === undefined ? undefined : { cacheDirectory, ...registries }
  if (upstream !== undefined) {
    const { key, ...options } = upstream
    const gateway = GatewayLlmProxy.layer({ ...options, key: Redacted.make(key), packages })
    if (ledger === undefined) return Layer.effect(LlmProxy.LlmProxy, Effect.fail(HostLedger.withoutLedger))
    return ledger === "none"
      ? Layer.provide(gateway, UsageObserver.layerNone)
      : HostLedger.entered(gateway, ledger, upstream.prices)
  }
  if (ledger !== undefined && ledger !== "none")
    return Layer.effect(LlmProxy.LlmProxy, Effect.fail(HostLedger.withoutModel))
  return packages === undefined ? LlmProxy.layerNoop : GatewayLlmProxy.layerPackages({ packages })
}

const withImage = <S extends { readonly image?: string | undefined }>({ image, ...spec }: S) => ({
  ...spec,
  image: image ?? defaultImage("runtime")
})

const openIn = async (
  runtime: HostRuntime.HostRuntime<SandboxRunner.SandboxRunner>,
  { signal, ...spec }: SandboxOptions = {},
  release?: () => Promise<void>
): Promise<Sandbox> =>
  PromiseSandbox.make(
    runtime,
    await runtime.hold(
      SandboxRunner.SandboxRunner.use((runner) => runner.open(withImage(spec))),
      signal
    ),
    release
  )

/** Validates a run ID with the error of an invalid spec, because the agent's files are named after it. */
const withRunId = (spec: object) =>
  Schema.decodeUnknownEffect(Schema.Struct({ runId: RunId.RunId }))(spec).pipe(
    Effect.mapError((error) => new SandboxError({ reason: new InvalidSpec({ problems: problemsOf(error) }) }))
  )

const agentRun = Effect.fnUntraced(function* (
  agents: AgentRegistry.AgentRegistry["Service"],
  agentId: string,
  { image, personality, prompt, ...spec }: Omit<AgentOptions, "signal">,
  see: (said: ReadonlyArray<AgentEvent>) => Effect.Effect<void>
) {
  const agent = yield* agents.get(agentId)
  const asked: AgentRun.AgentRequest = {
    messages: typeof prompt === "string" ? [{ role: "user", content: prompt }] : prompt,
    personality,
    hasRepository: false
  }
  const { subagentShareMax } = spec.llm.budget ?? {}
  const share = subagentShareMax === undefined ? {} : { subagentShareMax }
  yield* Effect.fromResult(AgentRun.check(agent, { ...asked, ...share }))
  const { runId } = spec.runId === undefined ? { runId: yield* RunId.generate } : yield* withRunId(spec)
  const terms = { ...spec, runId, image: image ?? defaultImage(agent.image) }
  const { judged, result } = yield* AgentRun.live(
    AgentRun.specOf(agent, asked, terms),
    agent.reader,
    (_event, said) => see(said)
  )
  if (Result.isFailure(judged)) return yield* new AnswerMissing({ ...judged.failure, result })
  return { ...judged.success, result } satisfies AgentEnd
})

const agentStream = (
  agents: AgentRegistry.AgentRegistry["Service"],
  agentId: string,
  asked: Omit<AgentOptions, "signal">
) =>
  Stream.callback<
    AgentEvent | { readonly type: "end"; readonly end: AgentEnd },
    Effect.Error<ReturnType<typeof agentRun>>,
    SandboxRunner.SandboxRunner
  >(
    (queue) =>
      agentRun(agents, agentId, asked, (said) => Effect.asVoid(Queue.offerAll(queue, said))).pipe(
        Effect.flatMap((end) => Queue.offer(queue, { type: "end", end })),
        Effect.matchCauseEffect({
          onFailure: (cause) => Queue.failCause(queue, cause),
          onSuccess: () => Queue.end(queue)
        })
      ),
    { bufferSize: 16 }
  )
