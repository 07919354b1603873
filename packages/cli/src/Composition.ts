/** Composes the packages according to the environment. */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { LlmProxyCapabilities } from "@cogni/sandbox-core/LlmObservation"
import { layerNoop, LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as PoolUse from "@cogni/sandbox-core/PoolUse"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { RunStore, RunStoreError } from "@cogni/sandbox-core/RunStore"
import type { Misconfigured, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { UsageObserver } from "@cogni/sandbox-core/UsageObserver"
import type { Workspace } from "@cogni/sandbox-core/Workspace"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import * as DockerSocket from "@cogni/sandbox-docker/DockerSocket"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import type * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxShape from "@cogni/sandbox-core/SandboxShape"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as SchemaIssues from "@cogni/sandbox-core/SchemaIssues"
import * as HostSandboxPool from "@cogni/sandbox-docker/HostSandboxPool"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as WaitingRemains from "@cogni/sandbox-docker/WaitingRemains"
import * as Forge from "@cogni/sandbox-git-relay/forge/Forge"
import type { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import type { PrivateServers } from "@cogni/sandbox-git-relay/OriginAddress"
import type { AccountLimits } from "@cogni/sandbox-ledger/AccountLimits"
import type { AccountReservations } from "@cogni/sandbox-ledger/AccountReservations"
import type { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import type * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import * as SharedNginxLlmProxy from "@cogni/sandbox-proxy/SharedNginxLlmProxy"
import type { PackageMirrorOptions } from "@cogni/sandbox-proxy/PackageMirror"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import * as CurrentTime from "@cogni/sandbox-proxy/tools/CurrentTime"
import * as MetricsQuery from "@cogni/sandbox-proxy/tools/MetricsQuery"
import type { SqlRunStore } from "@cogni/sandbox-sql/SqlRunStore"
import { Context, Effect, FileSystem, Layer, Redacted, Result, Schema, type Scope } from "effect"
import { basename, dirname, join, resolve } from "node:path"
import * as Connections from "./Connections.ts"
import { ofReason } from "./ExitCode.ts"
import { mapLayerError, type Refusal, refusal } from "./Failure.ts"
import * as HostTools from "./HostTools.ts"
import * as KeyFile from "./KeyFile.ts"
import * as Records from "./Records.ts"
import { inFlags } from "./RemedyWords.ts"
import * as RunKeyComposition from "./RunKeyComposition.ts"
import type { RunKeySettings } from "./RunKeySettings.ts"
import * as RunLedger from "./RunLedger.ts"
import type { UpstreamWayOut, WayOut } from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"

/** Requests that the demo upstream received; `undefined` if another upstream was asked. */
export class DemoWitness extends Context.Service<
  DemoWitness,
  { readonly received: Effect.Effect<ReadonlyArray<ScriptedModelApi.Received> | undefined> }
>()("@cogni/sandbox-cli/DemoWitness") {}

/** Options for the egress and the workspaces of a runner. */
export interface Plan {
  readonly wayOut: WayOut
  /** The proxy. Absent: a gateway, which detects whether it needs a container. */
  readonly proxy?:
    | "gateway"
    | "gateway-directory"
    | "gateway-container"
    | "nginx"
    | "nginx-shared"
    | undefined
  /** `true` keeps whole bodies in the audit. Absent: a digest of each. */
  readonly auditBodies?: boolean | undefined
  /** The user of tools that are not called on behalf of a grant: the operator of the command. Absent: none. */
  readonly user?: ConnectionUser | undefined
  /** The tools of this host, if they are made already. Absent: they are made for the runner. */
  readonly hostTools?: ReadonlyArray<Tool> | undefined
  /** Names of the tools that runs may call, so that no other MCP server starts. Absent: any. */
  readonly toolNames?: ReadonlyArray<string> | undefined
  /** Workspaces that are allowed although they lie in a forbidden place: the relay's clones. */
  readonly allowedWorkspace?: HostWorkspace.Options["allowed"]
  /** How long a tool call waits for an approval, in seconds. */
  readonly approvalWaitSecondsMax?: number | undefined
  /** `true` keeps events of runs in the run database too. */
  readonly shareEvents?: boolean | undefined
  /** Maximum number of sandboxes that wait for runs. Absent: every run starts cold. */
  readonly pool?: number | undefined
  /** Memory of all of them together. Absent: the default of a pool. */
  readonly poolMemoryBytes?: number | undefined
  /** The open sandboxes for which the pool starts all of them. Absent: it learns from the runs. */
  readonly keep?: SandboxSpec.OpenSpecInput | undefined
}

/** Services of a runner. */
export type Runner =
  | SandboxRunner.SandboxRunner
  | ContainerRuntime
  | LlmProxy
  | RunStore
  | SqlRunStore
  | Ledger
  | AccountReservations
  | DockerReaper.DockerReaper
  | DockerApi.DockerApi
  | DemoWitness

export const engine = (settings: Settings["Service"]): Layer.Layer<DockerApi.DockerApi, RuntimeUnavailable> =>
  DockerApi.layer(settings.dockerHost === undefined ? {} : { host: settings.dockerHost })

/** The container runtime, with the pull policy and the OCI runtime of the environment. */
const containers = (
  settings: Pick<Settings["Service"], "engineRuntime" | "images">
): Layer.Layer<ContainerRuntime, Refusal, DockerApi.DockerApi> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(settings.images), ({ policy }) =>
      DockerContainerRuntime.layerApi({ images: policy, engineRuntime: settings.engineRuntime })
    )
  )

export const reaper = (
  settings: Settings["Service"]
): Layer.Layer<DockerReaper.DockerReaper | DockerApi.DockerApi, RuntimeUnavailable> =>
  Layer.provideMerge(DockerReaper.layerApi(), engine(settings))

/**
 * Paths that a workspace must not be, contain or lie in, in addition to system paths: the engine's socket, the records
 * and their database, and key files. Each is listed as named and with its links resolved.
 */
export const neverHeld = Effect.fnUntraced(function* (
  settings: Pick<Settings["Service"], "dockerHost" | "keyFile" | "stateDirectory"> &
    Partial<
      Pick<
        Settings["Service"],
        "configDirectory" | "database" | "databaseFile" | "imageKeyFile" | "upstreamFiles"
      >
    >
): Effect.fn.Return<ReadonlyArray<HostWorkspace.Forbidden>, never, FileSystem.FileSystem> {
  const address = DockerSocket.parse(settings.dockerHost ?? DockerSocket.defaultPath)
  const { database, upstreamFiles = [] } = settings
  const records = {
    name: "the records of runs",
    remedy: "Move the database (COGNI_DATABASE_URL, COGNI_DATABASE_URL_FILE) out of the workspace"
  }
  const named = [
    {
      path: settings.keyFile,
      name: "the key file",
      remedy: "Move the key file (COGNI_LLM_KEY_FILE) out of the workspace"
    },
    ...upstreamFiles.map((path) => ({
      path,
      name: "a file about the upstream, the registries, the accounts, their connections or tools",
      remedy:
        "Move it (COGNI_LLM_PROFILE_FILE, COGNI_LLM_IDENTITY_SECRET_FILE, COGNI_PACKAGES_FILE, " +
        "COGNI_ACCOUNT_LIMITS_FILE, COGNI_CONNECTIONS_KEY_FILE, COGNI_GITHUB_APP_KEY_FILE, " +
        "COGNI_HTTP_TOOLS_FILE, COGNI_MCP_SERVERS_FILE, COGNI_SQL_TOOL_FILE) out of the workspace"
    })),
    {
      path: settings.configDirectory,
      name: "the configuration of agents",
      remedy: "Name another workspace: an agent could change its own instructions (COGNI_CONFIG_DIR)"
    },
    {
      path: settings.stateDirectory,
      name: "the state directory",
      remedy: "Name another workspace, or keep the state outside of it (COGNI_STATE_DIR)"
    },
    {
      path: settings.imageKeyFile,
      name: "the key that images are verified with",
      remedy: "Move that key (COGNI_IMAGE_KEY_FILE) out of the workspace"
    },
    { path: settings.databaseFile, ...records },
    { path: database === undefined ? undefined : fileOf(database), ...records },
    {
      path: address?.type === "unix" ? address.path : undefined,
      name: "the engine's socket",
      remedy: "Name a workspace without it: access to that socket gives root access to this host"
    }
  ].flatMap(({ path, ...told }) => (path === undefined ? [] : [{ ...told, path: resolve(path) }]))
  const really = yield* Effect.forEach(named, (one) =>
    Effect.map(real(one.path), (path) => ({ ...one, path }))
  )
  return [...named, ...really.filter(({ path }, at) => path !== named[at]!.path)]
})

/** Rules for the directories that runs may have as workspaces. */
export const workspaces = (
  settings: Parameters<typeof neverHeld>[0]
): Effect.Effect<HostWorkspace.Options, never, FileSystem.FileSystem> =>
  Effect.map(neverHeld(settings), (forbidden) => {
    const { claims, waiting } = StateDirectory.paths(settings.stateDirectory)
    return { forbidden, claims, waiting }
  })

export const runner = (
  settings: Settings["Service"],
  plan: Plan
): Layer.Layer<Runner, Refusal | Misconfigured | RuntimeUnavailable | RunStoreError, FileSystem.FileSystem> =>
  SandboxRunner.layer.pipe(
    Layer.provideMerge(pool(settings, plan)),
    Layer.provideMerge(proxy(settings, plan)),
    Layer.provideMerge(
      Layer.mergeAll(
        containers(settings),
        Layer.unwrap(
          Effect.map(workspaces(settings), (rules) =>
            HostWorkspace.layer({ ...rules, allowed: plan.allowedWorkspace })
          )
        ),
        Records.store(settings),
        plan.shareEvents === true ? Records.sharedJournal(settings, "written") : Records.journal(settings)
      )
    ),
    Layer.provideMerge(reaper(settings))
  )

/** Refuses sandboxes to keep that no spec can have. The environment may name the image. */
const invalidKept = (error: Parameters<typeof SchemaIssues.problemsOf>[0]): Refusal =>
  refusal(
    "input",
    `the sandboxes of --pool cannot be started: ${SchemaIssues.problemsOf(error).join("; ")}`,
    "Correct their image (COGNI_RUNTIME_IMAGE) and their limits"
  )

/**
 * The sandbox that waits for open sandboxes of a spec; `undefined` if each of them starts cold, whatever the pool has.
 *
 * A directory counts as one that can be bound: the pool asks the engine, and says if it cannot.
 */
export const keptOf = (
  spec: SandboxSpec.OpenSpecInput,
  proxy: LlmProxyCapabilities
): Effect.Effect<Omit<SandboxPool.Kept, "count"> | undefined, Refusal> =>
  Effect.flatMap(Effect.mapError(SpecDecoder.decodeOpen(spec), invalidKept), (decoded) => {
    const { image, limits, memory, workspace } = spec
    const reason = SandboxShape.coldReason({ spec: decoded, supervised: true, proxy, directory: {} })
    if (reason === undefined)
      return Effect.succeed({
        image,
        ...(limits === undefined ? {} : { limits }),
        ...(memory === undefined ? {} : { memory }),
        supervised: true,
        directory: workspace?.type === "directory" ? workspace.path : undefined
      })
    // `PoolFlags` warns of canaries.
    const warned = decoded.canaries === "off" ? PoolUse.reasonOf(reason) : undefined
    return Effect.as(
      warned === undefined ? Effect.void : Effect.logWarning(`no sandbox of --pool waits, because ${warned}`),
      undefined
    )
  })

/** Names the flags that were given. The problems of the library name its own options, and how to raise them. */
const refusedLimits = (
  problems: ReadonlyArray<string>,
  sandboxesMax: number,
  memoryBytesMax: number | undefined
): Refusal =>
  refusal(
    "usage",
    `--pool ${sandboxesMax}${memoryBytesMax === undefined ? "" : `, --pool-memory ${formatBytes(memoryBytesMax)}`}: ` +
      problems.map((problem) => problem.replace(/^pool: (?:keep: )?/u, "").split(". ")[0]).join("; "),
    memoryBytesMax === undefined ? "Lower --pool" : "Raise --pool-memory, or lower --pool"
  )

/** Sandboxes that wait for runs. */
const pool = (
  { stateDirectory }: Pick<Settings["Service"], "stateDirectory">,
  { keep, pool: sandboxesMax = 0, poolMemoryBytes: memoryBytesMax }: Plan
): Layer.Layer<never, Refusal, ContainerRuntime | LlmProxy | Workspace> =>
  sandboxesMax === 0
    ? Layer.empty
    : Layer.unwrap(
        Effect.gen(function* () {
          const kept = keep === undefined ? undefined : yield* keptOf(keep, (yield* LlmProxy).capabilities)
          return HostSandboxPool.layer({
            limits: { sandboxesMax, ...(memoryBytesMax === undefined ? {} : { memoryBytesMax }) },
            keep: kept === undefined ? [] : [{ ...kept, count: sandboxesMax }],
            reports: StateDirectory.paths(stateDirectory).pools
          }).pipe(
            mapLayerError((error) =>
              error._tag === "ContainerFailed"
                ? refusal(ofReason(error._tag), error.detail, inFlags(error.remedy), { reason: error._tag })
                : refusedLimits(error.problems, sandboxesMax, memoryBytesMax)
            )
          )
        })
      )

/** Path of the relay's clone that a run works in. */
export const cloneWorkspace = (
  settings: Pick<Settings["Service"], "stateDirectory">,
  runId: string
): string => join(relaysOf(settings), runId, "workspace")

/** Whether a path is the relay's clone of some run. */
export const isClone =
  (settings: Pick<Settings["Service"], "stateDirectory">) =>
  (path: string): boolean => {
    const runId = basename(dirname(path))
    return Schema.is(RunId)(runId) && path === cloneWorkspace(settings, runId)
  }

/**
 * The git relay, in the same container runtime as runs. A local user may name any server. Callers over HTTP may not, so
 * `serve` passes the servers that may have private addresses.
 */
export const relay = (
  settings: Settings["Service"],
  {
    privateServers = "any",
    user
  }: {
    readonly privateServers?: PrivateServers
    /** The user of operations that have none. */
    readonly user: ConnectionUser | undefined
  } = { user: Connections.operator(settings) }
): Layer.Layer<GitRelay, Refusal, ContainerRuntime> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(settings.git), (git) => {
      const { upstream } = settings
      return HostGitRelay.layer({
        directory: relaysOf(settings),
        image: settings.runtimeImage,
        owners: HostOwner,
        cache: { directory: StateDirectory.paths(settings.stateDirectory).mirrors },
        network: git.network,
        privateServers,
        policies: git.policies,
        secrets: [
          ...(upstream._tag === "Configured" ? [{ name: "the key of the model", secret: upstream.key }] : []),
          ...git.tokens.map(({ server, token }) => ({ name: `the token for ${server}`, secret: token }))
        ]
      }).pipe(
        Layer.provide(
          Forge.layer({
            forges: { [git.gitLabServer]: "gitlab", [git.gitHubServer]: "github" },
            gitHubApis: git.gitHubApi === undefined ? {} : { [git.gitHubServer]: git.gitHubApi }
          })
        ),
        Layer.provide(Connections.credentials(settings, user))
      )
    })
  )

/** The relay without a runner, for `relay list`, `relay retry` and `relay drop`. */
export const relayAlone = (
  settings: Settings["Service"]
): Layer.Layer<
  GitRelay | RunStore | DockerReaper.DockerReaper | DockerApi.DockerApi,
  Refusal | RuntimeUnavailable | RunStoreError
> =>
  relay(settings).pipe(
    Layer.provide(containers(settings)),
    Layer.provideMerge(Layer.merge(reaper(settings), Records.store(settings)))
  )

const relaysOf = ({ stateDirectory }: Pick<Settings["Service"], "stateDirectory">) =>
  StateDirectory.paths(stateDirectory).relays

/** Resolves the links of a path, as far as the path exists. */
const real = (path: string): Effect.Effect<string, never, FileSystem.FileSystem> =>
  FileSystem.FileSystem.use((fs) => fs.realPath(path)).pipe(
    Effect.catch(() =>
      path === dirname(path)
        ? Effect.succeed(path)
        : Effect.map(real(dirname(path)), (parent) => join(parent, basename(path)))
    )
  )

const fileOf = (database: Settings["Service"]["database"]): string | undefined =>
  Result.isSuccess(database) && database.success.address._tag === "Sqlite"
    ? database.success.address.path
    : undefined

const noWitness = Layer.succeed(DemoWitness, { received: Effect.succeed(undefined) })

const carriers = {
  gateway: "auto",
  "gateway-directory": "directory",
  "gateway-container": "container"
} as const

const between = (
  settings: Settings["Service"],
  { approvalWaitSecondsMax, auditBodies, hostTools: made, proxy = "gateway", toolNames, user }: Plan,
  {
    key,
    keyFile,
    options,
    packages,
    runKeys,
    url
  }: Pick<UpstreamWayOut, "key" | "options" | "url"> & {
    readonly keyFile?: string | undefined
    readonly runKeys: RunKeySettings
    readonly packages: PackageMirrorOptions | undefined
  }
): Layer.Layer<LlmProxy, Misconfigured | Refusal, ContainerRuntime | UsageObserver> =>
  Layer.unwrap(
    Effect.gen(function* () {
      if (proxy === "nginx") {
        const refused = RunKeyComposition.refusal(runKeys)
        if (refused !== undefined) return yield* refused
        return NginxLlmProxy.layer({
          image: settings.proxyImage,
          upstream: { type: "host", url },
          key,
          ...options
        })
      }
      if (proxy === "nginx-shared") {
        const refused = RunKeyComposition.refusal(runKeys)
        if (refused !== undefined) return yield* refused
        return SharedNginxLlmProxy.layer({
          image: settings.proxyImage,
          upstream: { type: "host", url },
          key,
          directory: yield* sharedDirectory(settings),
          ...options
        })
      }
      // nginx gets its key once, when its container or its run starts. The gateway reads a rotated key from the file.
      const source = keyFile === undefined ? key : KeyFile.source(keyFile, "COGNI_LLM_KEY_FILE")
      return GatewayLlmProxy.layer({
        url,
        key: source,
        ...options,
        runKeys: yield* RunKeyComposition.makeTidy({ settings: runKeys, url, key: source, options }),
        carrier: carriers[proxy],
        image: settings.gatewayImage,
        prices: settings.prices,
        auditBodies: auditBodies === true ? "full" : "digest",
        approvalWaitSecondsMax,
        tools: made ?? (yield* hostTools(settings, user, toolNames)),
        packages
      })
    })
  )

/** Directory of an nginx for many runs, on the file system of the runs' directories. */
const sharedDirectory = ({ stateDirectory }: Pick<Settings["Service"], "stateDirectory">) =>
  WaitingRemains.acquire(StateDirectory.paths(stateDirectory).proxies, "proxies").pipe(
    Effect.mapError(({ detail, path, remedy }) => refusal("configuration", `${path} ${detail}`, remedy))
  )

/** Tools of this host that runs can call. `user` is whom a tool acts for if its call is on behalf of no grant. */
export const hostTools = Effect.fnUntraced(function* (
  settings: Settings["Service"],
  user: ConnectionUser | undefined,
  toolNames?: ReadonlyArray<string>
): Effect.fn.Return<ReadonlyArray<Tool>, Refusal, Scope.Scope> {
  return [
    CurrentTime.tool,
    MetricsQuery.make({ url: settings.prometheusUrl }),
    ...(yield* HostTools.make(settings, user, toolNames))
  ]
})

const proxy = (
  settings: Settings["Service"],
  plan: Plan
): Layer.Layer<
  LlmProxy | DemoWitness,
  Misconfigured | Refusal,
  ContainerRuntime | Ledger | AccountReservations
> =>
  Layer.unwrap(
    Effect.gen(function* () {
      const packages = yield* Effect.fromResult(settings.packages)
      // Limits that cannot be read forbid every run that they may concern.
      const limits =
        plan.wayOut._tag === "Upstream" ? yield* Effect.fromResult(settings.accountLimits) : undefined
      return proxyWith(settings, plan, { limits, packages })
    })
  )

const proxyWith = (
  settings: Settings["Service"],
  plan: Plan,
  {
    limits,
    packages
  }: { readonly limits: AccountLimits | undefined; readonly packages: PackageMirrorOptions | undefined }
): Layer.Layer<
  LlmProxy | DemoWitness,
  Misconfigured | Refusal,
  ContainerRuntime | Ledger | AccountReservations
> => {
  const { wayOut } = plan
  switch (wayOut._tag) {
    case "None":
      return Layer.merge(withoutModel(settings, plan, packages), noWitness)
    case "Upstream":
      return Layer.merge(
        RunLedger.limited(
          settings,
          limits,
          between(settings, plan, {
            ...wayOut,
            keyFile: settings.keyFile,
            runKeys: settings.runKeys,
            packages
          })
        ),
        noWitness
      )
    case "Demo":
      return Layer.unwrap(
        Effect.map(DemoUpstream.acquire(), ({ received, url }) =>
          Layer.merge(
            // The demo upstream accepts what LiteLLM does, whatever the profile of the configured one.
            RunLedger.entered(
              settings,
              between(settings, plan, {
                url,
                key: Redacted.make(`demo-${crypto.randomUUID()}`),
                options: { profile: { name: "litellm" } },
                // It issues no keys, and costs nothing.
                runKeys: { ...settings.runKeys, mode: "off" },
                packages
              }),
              "demo"
            ),
            Layer.succeed(DemoWitness, { received })
          )
        )
      )
  }
}

/** Egress of sandboxes without a model: packages, if registries are configured. */
const withoutModel = (
  settings: Settings["Service"],
  { proxy = "gateway" }: Plan,
  packages: PackageMirrorOptions | undefined
): Layer.Layer<LlmProxy, Misconfigured, ContainerRuntime> =>
  packages === undefined || proxy === "nginx" || proxy === "nginx-shared"
    ? layerNoop
    : GatewayLlmProxy.layerPackages({
        packages,
        carrier: carriers[proxy],
        image: settings.gatewayImage
      })
