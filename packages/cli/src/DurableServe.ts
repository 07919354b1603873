/**
 * Composes a server whose runs are durable: the same HTTP API over Temporal and the run database, without an engine.
 *
 * Loaded only with `serve --durable`, because the package for Temporal is optional.
 */
import type { RunStoreError } from "@cogni/sandbox-core/RunStore"
import * as AgentCatalog from "@cogni/sandbox-graph-provider/graphs/AgentCatalog"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as TaskGraphProvider from "@cogni/sandbox-graph-provider/graphs/TaskGraphProvider"
import * as IdempotencyKeys from "@cogni/sandbox-server/IdempotencyKeys"
import * as PageSite from "@cogni/sandbox-server/PageSite"
import * as SandboxServer from "@cogni/sandbox-server/SandboxServer"
import { Probes } from "@cogni/sandbox-server/ServerHealth"
import { Effect, Layer, Result } from "effect"
import * as ConfiguredAgents from "./ConfiguredAgents.ts"
import * as Connections from "./Connections.ts"
import { mapLayerError, refuse, type Refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as HostThreads from "./HostThreads.ts"
import * as Records from "./Records.ts"
import * as ServeComposition from "./ServeComposition.ts"
import type { Settings } from "./Settings.ts"
import type * as TemporalFlags from "./TemporalFlags.ts"
import * as TemporalPackage from "./TemporalPackage.ts"
import * as TemporalSettings from "./TemporalSettings.ts"

export type DurableServeInput = ServeComposition.ServeInput & Flags.Typed<typeof TemporalFlags.serve>

/** Flags about runs in this server, by the field that they set. */
const flagsOfHosts = {
  approvalWaitSecondsMax: "--approval-wait",
  auditBodies: "--audit-bodies",
  callsMax: "--max-calls",
  canaries: "--canaries",
  costUsdMax: "--max-cost",
  demo: "--demo",
  hostRepositories: "--host-repositories",
  inputTokensMax: "--max-input-tokens",
  offeredModels: "--offer-model",
  outputTokensMax: "--max-output-tokens",
  pool: "--pool",
  poolMemoryBytes: "--pool-memory",
  proxy: "--proxy",
  reconcileSeconds: "--reconcile-every",
  shareEvents: "--share-events"
} as const satisfies Partial<Record<keyof ServeComposition.ServeInput, string>>

/** Values of flags that were not given. */
const absent: ReadonlySet<unknown> = new Set([undefined, false, "gateway", "off"])

const isGiven = (value: unknown): boolean => (Array.isArray(value) ? value.length > 0 : !absent.has(value))

/** Refuses flags that would have no effect: the servers of the hosts run the runs. */
export const checked = (input: DurableServeInput): Result.Result<void, Refusal> => {
  const [, flag] =
    Object.entries(flagsOfHosts).find(([name]) => isGiven(input[name as keyof typeof flagsOfHosts])) ?? []
  return flag === undefined
    ? Result.void
    : refuse(
        "usage",
        `${flag} has no effect with --durable: this server runs nothing`,
        "Set it for cogni-sandbox serve on the hosts, beside their workers"
      )
}

/** The whole server, except for its HTTP platform. */
export const server = (
  settings: Settings["Service"],
  input: DurableServeInput,
  operatorPlatform?: Layer.Layer<SandboxServer.Platform, Refusal>
): Layer.Layer<never, Refusal | RunStoreError, SandboxServer.Platform> =>
  Layer.unwrap(
    Effect.gen(function* () {
      yield* Effect.fromResult(checked(input))
      const { hostNames, noPage, noSearch, trustedProxies } = input
      const DurableRuns = yield* TemporalPackage.load(() => import("@cogni/sandbox-temporal/DurableRuns"))
      const DurableGraphProvider = yield* TemporalPackage.load(
        () => import("@cogni/sandbox-temporal/DurableGraphProvider")
      )
      const { placementSecondsMax, wallSecondsMax } = input
      const limits = Flags.given({ placementSecondsMax, wallSecondsMax })
      const named = yield* TemporalSettings.serverOf(settings.temporal, input)
      const temporal = DurableRuns.layer({ ...named, isSearchable: !noSearch }).pipe(
        mapLayerError(TemporalPackage.refusalOf)
      )
      const probes = Layer.effect(
        Probes,
        // With a name that no run can have: it is looked up as often as the health is asked for.
        Effect.map(DurableRuns.DurableRuns, ({ find }) => [{ name: "temporal", check: find("health_check") }])
      )
      const options = {
        hostNames,
        trustedProxies,
        limits: ServeComposition.limitsOf(input),
        model: ServeComposition.modelOf(settings, input) ?? DurableGraphProvider.hostModel,
        traceUrl: yield* ServeComposition.traceUrlOf(input),
        page: noPage ? undefined : PageSite.directory
      }
      return SandboxServer.layer(options, operatorPlatform).pipe(
        Layer.provide(AggregatingGraphExecutor.layer([DurableGraphProvider.DurableGraphProvider])),
        Layer.provide(
          Layer.mergeAll(
            DurableGraphProvider.layer(limits),
            DurableGraphProvider.layerSubmitted(limits),
            AgentCatalog.layer([TaskGraphProvider.catalog]),
            probes
          )
        ),
        Layer.provide(ConfiguredAgents.layer(settings)),
        // The ledger is made from the audits of runs, by their hosts.
        Layer.provide(GraphObserver.layerNone),
        Layer.provide(Records.audits(settings)),
        Layer.provide(
          Layer.mergeAll(
            temporal,
            ServeComposition.grants(settings),
            Connections.store(settings),
            ServeComposition.idempotencyKeys(settings, IdempotencyKeys.submittedPrefix),
            Records.store(settings),
            Records.sharedJournal(settings, "read")
          )
        ),
        Layer.provide(Layer.merge(ServeComposition.approvals(settings), HostThreads.layer(settings)))
      )
    })
  )
