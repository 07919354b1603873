/**
 * Composes the packages to a server of graphs.
 *
 * Separate from `Composition`, so that no other command loads it.
 */
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import type { RunStoreError } from "@cogni/sandbox-core/RunStore"
import type { Misconfigured, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import { DockerApi } from "@cogni/sandbox-docker/DockerApi"
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import * as AgentCatalog from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import { BaseBranch, isLocal, OriginUrl } from "@cogni/sandbox-git-relay/Refs"
import * as OriginAddress from "@cogni/sandbox-git-relay/OriginAddress"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import * as SharedSecret from "@cogni/sandbox-sql/SharedSecret"
import * as SqlApprovals from "@cogni/sandbox-sql/SqlApprovals"
import * as SqlGrantStore from "@cogni/sandbox-sql/SqlGrantStore"
import { Threads } from "@cogni/sandbox-graph-provider/threads/Threads"
import * as TaskGraphProvider from "@cogni/sandbox-graph-provider/graphs/TaskGraphProvider"
import * as AiSdkChatModel from "@cogni/sandbox-loop/AiSdkChatModel"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as ConfigurationProposals from "@cogni/sandbox-server/ConfigurationProposals"
import * as Deliveries from "@cogni/sandbox-server/Deliveries"
import * as IdempotencyKeys from "@cogni/sandbox-server/IdempotencyKeys"
import * as PageSite from "@cogni/sandbox-server/PageSite"
import * as RelayRepositories from "@cogni/sandbox-server/RelayRepositories"
import * as SandboxServer from "@cogni/sandbox-server/SandboxServer"
import { Probes } from "@cogni/sandbox-server/ServerHealth"
import * as ServerLimits from "@cogni/sandbox-server/ServerLimits"
import { Clock, Effect, Layer, Result, Schedule, Schema } from "effect"
import type { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import * as Connections from "./Connections.ts"
import * as Composition from "./Composition.ts"
import * as ConfiguredAgents from "./ConfiguredAgents.ts"
import { type Refusal, refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import type * as PoolFlags from "./PoolFlags.ts"
import * as HostFacts from "./HostFacts.ts"
import * as HostThreads from "./HostThreads.ts"
import * as IdentityProof from "./IdentityProof.ts"
import * as RunPlan from "./RunPlan.ts"
import * as Records from "./Records.ts"
import * as Reaping from "./Reaping.ts"
import * as Reconciling from "./Reconciling.ts"
import { Settings } from "./Settings.ts"
import type * as ServeFlags from "./ServeFlags.ts"

/** Flags of `serve`. */
export type ServeInput = Flags.Typed<typeof ServeFlags.serve & typeof PoolFlags.serve>

/** Returns the limits that flags set. */
export const limitsOf = (input: ServeInput): Partial<ServerLimits.ServerLimits> =>
  Flags.given(Object.fromEntries(Object.entries(input).filter(([name]) => name in ServerLimits.defaults)))

/** The grant store, in the run database. */
export const grants = (settings: Settings["Service"]): Layer.Layer<GrantStore, Refusal> =>
  Records.inDatabase(settings, SqlGrantStore.layer, "grants cannot be looked up")

/** Approvals of tool calls, in the run database. */
export const approvals = (settings: Settings["Service"]): Layer.Layer<never, Refusal> =>
  Records.inDatabase(settings, SqlApprovals.layer, "approvals cannot be looked up")

/** Idempotency keys, whose secret is in the run database. */
export const idempotencyKeys = (
  settings: Settings["Service"],
  idPrefix?: typeof IdempotencyKeys.prefix | typeof IdempotencyKeys.submittedPrefix
): Layer.Layer<IdempotencyKeys.IdempotencyKeys, Refusal> =>
  Records.inDatabase(
    settings,
    IdempotencyKeys.layer(SharedSecret.make("idempotency-keys", IdempotencyKeys.secretBytes), idPrefix),
    "the secret of idempotency keys cannot be read"
  )

/** Refuses an address that cannot lead to a trace. The page shows it to everybody who may see a run. */
export const traceUrlOf = ({
  traceUrl
}: Pick<ServeInput, "traceUrl">): Effect.Effect<string | undefined, Refusal> => {
  if (traceUrl === undefined) return Effect.succeed(undefined)
  const url = URL.parse(traceUrl)
  const problem =
    url === null || !/^https?:$/u.test(url.protocol)
      ? "is no http or https address"
      : url.username !== "" || url.password !== ""
        ? "has a user name or a password, which the page would show"
        : traceUrl.includes("{traceId}")
          ? undefined
          : "has no {traceId}, so every link would be the same"
  return problem === undefined
    ? Effect.succeed(traceUrl)
    : Effect.fail(
        refusal(
          "usage",
          `--trace-url ${problem}`,
          "Write it such as https://jaeger.example.com/trace/{traceId}"
        )
      )
}

/** The whole server, except for its HTTP platform. */
export const server = (
  settings: Settings["Service"],
  options: ServeInput,
  operatorPlatform?: Layer.Layer<SandboxServer.Platform, Refusal>
): Layer.Layer<never, Refusal | Misconfigured | RuntimeUnavailable | RunStoreError, SandboxServer.Platform> =>
  Layer.unwrap(
    Effect.gen(function* () {
      const wayOut = yield* Effect.fromResult(wayOutOf(settings, options))
      if (wayOut._tag === "Upstream") yield* IdentityProof.required(settings)
      const budget = yield* Effect.fromResult(RunPlan.budgetOf(options, "serve"))
      const { forges } = yield* Effect.fromResult(settings.git)
      // Made once: each MCP server is started once.
      const hostTools = yield* Composition.hostTools(settings, undefined)
      const runner = Composition.runner(settings, {
        wayOut,
        hostTools,
        proxy: options.proxy,
        auditBodies: options.auditBodies,
        allowedWorkspace: (path) =>
          Composition.isClone(settings)(path) || HostThreads.isThread(settings)(path),
        approvalWaitSecondsMax: options.approvalWaitSecondsMax,
        pool: options.pool,
        poolMemoryBytes: options.poolMemoryBytes,
        shareEvents: options.shareEvents
      })
      const graphs = {
        enabled: settings.sandboxEnabled,
        canaries: options.canaries,
        imageOf: settings.imageOf,
        models: offeredOf(settings, options),
        budget,
        tools: hostTools
      }
      // Now, and not with the first run that needs a credential.
      yield* Effect.fromResult(settings.connections)
      const server = {
        hostNames: options.hostNames,
        trustedProxies: options.trustedProxies,
        limits: limitsOf(options),
        model: modelOf(settings, options),
        traceUrl: yield* traceUrlOf(options),
        page: options.noPage ? undefined : PageSite.directory
      }
      return SandboxServer.layer(server, operatorPlatform).pipe(
        Layer.provide(executor),
        Layer.provide(Layer.merge(SandboxGraphProvider.layer(graphs), TaskGraphProvider.layer(graphs))),
        Layer.provide(sweeping),
        Layer.provide(AiSdkChatModel.layer()),
        Layer.provide(AgentCatalog.layer([TaskGraphProvider.catalog])),
        Layer.provide(HostFacts.layer(settings)),
        Layer.provide(ConfiguredAgents.layer(settings)),
        Layer.provide(yield* proposals(settings)),
        // The ledger is made from the audits of runs, and needs no observer.
        Layer.provide(GraphObserver.layerNone),
        Layer.provide(repositoriesOf({ forges, hostOrigins: options.hostRepositories })),
        Layer.provide(Records.audits(settings)),
        Layer.provide(
          Composition.relay(settings, {
            // Each use is on behalf of the grant of its run.
            user: undefined,
            privateServers: forges
              .filter(({ allowPrivateAddresses }) => allowPrivateAddresses === true)
              .map(({ host }) => OriginAddress.serverHost(`https://${host}`))
          })
        ),
        Layer.provide(probes),
        Layer.provide(tidying(settings)),
        Layer.provide(ruleWarnings(hostTools)),
        Layer.provide(imageWarning(settings)),
        Layer.provide(reconciling(settings, options, wayOut)),
        Layer.provide(
          Layer.mergeAll(runner, grants(settings), Connections.store(settings), idempotencyKeys(settings))
        ),
        // The runs and the API share them, so they are provided to both.
        Layer.provide(Layer.merge(approvals(settings), HostThreads.layer(settings)))
      )
    })
  )

/** Repositories that requests may name, and the deliveries to them that can be repeated. */
const repositoriesOf = (options: RelayRepositories.RelayRepositoriesOptions) =>
  Layer.merge(
    RelayRepositories.layer(options),
    Layer.unwrap(
      Effect.map(DockerReaper, ({ reap }) =>
        Deliveries.layer({ ...options, before: Effect.ignore(reap, { log: "Warn" }) })
      )
    )
  )

/** Changes of personalities and skills, if their repository is configured. */
const proposals = Effect.fnUntraced(function* (settings: Settings["Service"]) {
  const { configBranch, configRepository } = settings
  if (configRepository === undefined) return Layer.empty
  if (!Schema.is(OriginUrl)(configRepository) || isLocal(configRepository)) {
    return yield* refusal(
      "configuration",
      "COGNI_CONFIG_REPOSITORY is not a plain https URL",
      "Write https://HOST/OWNER/NAME, without a user, a query or a fragment"
    )
  }
  if (configBranch !== undefined && !Schema.is(BaseBranch)(configBranch)) {
    return yield* refusal(
      "configuration",
      "COGNI_CONFIG_BRANCH is not a plain branch name",
      "Name one such as main or release/1.2"
    )
  }
  return ConfigurationProposals.layer({
    ...(yield* ConfiguredAgents.rules(settings)),
    repository: configRepository,
    baseBranch: configBranch
  })
})

/** Returns the model for requests that name none. */
export const modelOf = (settings: Settings["Service"], { demo, model }: ServeInput): string | undefined =>
  model ?? (demo ? DemoUpstream.model : settings.model)

/** Returns the models for grants that name none: the server's own, and those of `--offer-model`. */
const offeredOf = (settings: Settings["Service"], options: ServeInput): ReadonlyArray<string> => {
  const own = modelOf(settings, options)
  return [...(own === undefined ? [] : [own]), ...options.offeredModels]
}

/** Selects the egress of runs: none if sandboxes are disabled. A model need not be configured if runs name one. */
const wayOutOf = (
  settings: Settings["Service"],
  { costUsdMax, demo, model }: ServeInput
): Result.Result<RunPlan.WayOut, Refusal> =>
  settings.sandboxEnabled
    ? RunPlan.modelWayOut(
        {
          costUsdMax,
          demo,
          model: model ?? (demo || settings.model !== undefined ? undefined : "named by each run")
        },
        settings
      )
    : Result.succeed({ _tag: "None" })

/** Combines the graph providers. The first one comes first because `sandbox:task` is not an agent of the registry. */
const executor = AggregatingGraphExecutor.layer([
  TaskGraphProvider.TaskGraphProvider,
  SandboxGraphProvider.SandboxGraphProvider
])

const probes = Layer.effect(
  Probes,
  Effect.map(DockerApi, ({ ping }) => [{ name: "engine", check: ping }])
)

/** Removes orphaned resources when the server starts, and then every 10 minutes. */
const tidying = (settings: Settings["Service"]) =>
  Reaping.round.pipe(
    Effect.provideService(Settings, settings),
    Effect.repeat(Schedule.spaced("10 minutes")),
    Effect.forkScoped,
    Layer.effectDiscard
  )

/** Removes threads that the limits no longer allow when the server starts, and then every 10 minutes. */
const sweeping = Effect.flatMap(Threads, ({ sweep }) => sweep()).pipe(
  Effect.tap(({ failed }) =>
    Effect.forEach(failed, ({ key, reason }) => Effect.logWarning(`thread ${key} was not removed: ${reason}`))
  ),
  Effect.ignore({ log: "Warn" }),
  Effect.repeat(Schedule.spaced("10 minutes")),
  Effect.forkScoped,
  Layer.effectDiscard
)

/** Warns if the runtime image is missing. The images of other agents are needed only for their runs. */
const imageWarning = (settings: Settings["Service"]): Layer.Layer<never, never, DockerApi> =>
  Effect.flatMap(DockerApi, (engine) => HostFacts.runtimeProblem(engine, settings)).pipe(
    Effect.flatMap((problem) => (problem === undefined ? Effect.void : Effect.logWarning(problem))),
    Layer.effectDiscard
  )

/** Warns about rules of grants that restrict no tool of this host: they may be mistyped. */
const ruleWarnings = (tools: ReadonlyArray<Tool>): Layer.Layer<never, never, GrantStore> =>
  Effect.gen(function* () {
    const found = yield* (yield* GrantStore).list
    const lines = unusedRules(found, tools, yield* Clock.currentTimeMillis)
    yield* Effect.forEach(lines, (line) => Effect.logWarning(line), { discard: true })
  }).pipe(Effect.scoped, Effect.ignore({ log: "Warn" }), Layer.effectDiscard)

/** Describes rules of valid grants that cover none of the tools. */
export const unusedRules = (
  grants: ReadonlyArray<ExecutionGrant>,
  tools: ReadonlyArray<Tool>,
  nowMillis: number
): ReadonlyArray<string> =>
  grants
    .filter(({ expiresAt, revokedAt }) => revokedAt === null && !(expiresAt && +expiresAt <= nowMillis))
    .flatMap(({ id, permissions: { toolRules = [] } }) =>
      ToolAccess.withoutTool(toolRules, tools).map(
        (rule) =>
          `the rule ${ToolAccess.ruleText(rule)} of ${id} covers no tool of this server, so it restricts nothing. ` +
          "If it is mistyped, revoke the grant and create another one"
      )
    )

/** Time between two comparisons with the upstream's rows, in seconds, unless a flag names one. */
const reconcileSecondsDefault = 60

/** Reconciles the ledger in the background. The demo upstream keeps no rows. */
const reconciling = (
  settings: Settings["Service"],
  { reconcileSeconds = reconcileSecondsDefault }: ServeInput,
  { _tag }: RunPlan.WayOut
): Layer.Layer<never, Refusal, Ledger> =>
  _tag !== "Upstream" || reconcileSeconds === 0
    ? Layer.empty
    : Reconciler.repeated(reconcileSeconds).pipe(
        Effect.forkScoped,
        Layer.effectDiscard,
        Layer.provide(Reconciling.layer(settings))
      )
