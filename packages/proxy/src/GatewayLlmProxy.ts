/**
 * The way out of many runs: one gateway in the host process, with a socket for each of them.
 *
 *     sandbox ── /llm-sock/llm.sock ──► gateway: route, body, budget, canaries, audit ── key, identity ──► upstream
 *
 * Who speaks follows from the socket, so there is no token to forge. What goes upstream is written anew from
 * allowlists, never passed on; what was left out is in the audit. Closing the run closes its socket and every stream on
 * it. How the socket gets into the sandbox is a carrier's: a directory of the host where the engine can mount one, a
 * container of sockets where it cannot. The code that decides is the same.
 */
import { Duration, Effect, Layer, Result, type Scope } from "effect"
import type * as http from "node:http"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import {
  type LlmEndpoint,
  type LlmObservation,
  LlmProxy,
  type LlmProxyError,
  type LlmRequest
} from "@cogni/sandbox-core/LlmProxy"
import type { LlmTraffic } from "@cogni/sandbox-core/RunResult"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import type { Tool } from "@cogni/sandbox-core/Tool"
import type { AuditEntry } from "./AuditEntry.ts"
import * as Budget from "./Budget.ts"
import * as AuditFile from "./internal/AuditFile.ts"
import * as ContainerCarrier from "./internal/ContainerCarrier.ts"
import * as GatewayRun from "./internal/GatewayRun.ts"
import * as GatewayServer from "./internal/GatewayServer.ts"
import * as GatewayTools from "./internal/GatewayTools.ts"
import * as HostDirectoryCarrier from "./internal/HostDirectoryCarrier.ts"
import * as Inspector from "./internal/Inspector.ts"
import * as RequestReader from "./internal/RequestReader.ts"
import type { SocketCarrier } from "./internal/SocketCarrier.ts"
import * as UpstreamClient from "./internal/UpstreamClient.ts"
import * as KeyInjection from "./KeyInjection.ts"
import type { Prices } from "./Prices.ts"
import * as RoutePolicy from "./RoutePolicy.ts"
import * as Upstream from "./Upstream.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export interface GatewayLlmProxyOptions {
  /** Where the host reaches the model API, with or without `/v1`. */
  readonly url: string
  readonly key: KeyInjection.UpstreamKey
  /** Which header the upstream reads the key from: `x-api-key` for Anthropic's own API, else the usual one. */
  readonly keyHeader?: KeyInjection.KeyHeader | undefined
  /** How sockets get into sandboxes. `auto`: a directory of the host where the engine shares this one, else a container. */
  readonly carrier?: "auto" | "directory" | "container" | undefined
  /** The gateway image, as `images/gateway` builds it; needed for the container. */
  readonly image?: string | undefined
  /** What the host offers to agents; a run gets those that its spec names. */
  readonly tools?: ReadonlyArray<Tool> | undefined
  /** What a model costs, where the upstream does not say it with every answer. */
  readonly prices?: Prices | undefined
  /** `full` keeps requests and answers in the audit as well, without secrets of the host and the run. */
  readonly auditBodies?: "digest" | "full" | undefined
  readonly requestBytesMax?: number | undefined
  /** The most output tokens of one call; also put into a call that names no cap. */
  readonly outputTokensPerCallMax?: number | undefined
  /** Of one run, where its budget says nothing. */
  readonly concurrentCallsMax?: number | undefined
  readonly requestsPerSecondMax?: number | undefined
  readonly connectionsMax?: number | undefined
  /** What the requests of all runs may hold in memory together. */
  readonly heldBytesMax?: number | undefined
  readonly auditBytesMax?: number | undefined
  readonly connectSecondsMax?: number | undefined
  readonly headerSecondsMax?: number | undefined
  readonly requestSecondsMax?: number | undefined
  /** PEM certificates to trust for an https upstream, instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

const MiB = 1024 * 1024

/** What holds where nothing else is said. @category constants */
export const defaults = {
  requestBytesMax: RoutePolicy.requestBytesMax,
  concurrentCallsMax: 64,
  requestsPerSecondMax: 200,
  connectionsMax: 512,
  heldBytesMax: 512 * MiB,
  auditBytesMax: 1024 * MiB,
  connectSecondsMax: 10,
  headerSecondsMax: 15,
  requestSecondsMax: 120
} as const

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = Effect.fnUntraced(function* (options: GatewayLlmProxyOptions) {
  const address = yield* Effect.result(
    Effect.fromResult(Upstream.address({ type: "host", url: options.url }))
  )
  const carrier = yield* carrierOf(options)
  const tools = options.tools ?? []
  const shared = yield* Effect.acquireRelease(
    Effect.sync(() => (Result.isFailure(address) ? undefined : makeShared(options, address.success))),
    (made) =>
      Effect.sync(() => {
        made?.client.close()
        made?.inspector.close()
      })
  )

  const acquire = Effect.fn("LlmProxy.acquire")(function* (
    request: LlmRequest
  ): Effect.fn.Return<LlmEndpoint, LlmProxyError, Scope.Scope> {
    const { runId } = request
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.runId, runId)
    if (shared === undefined) return yield* refused(Result.isFailure(address) ? address.failure : undefined)
    yield* usable(options, request)
    const audit = yield* AuditFile.acquire({
      parent: request.directory,
      runId,
      bytesMax: options.auditBytesMax ?? defaults.auditBytesMax
    })
    const run = yield* runOf(options, shared, request, audit)
    // A loop on this host needs no way into the sandbox.
    const carries = request.llm.caller === "host" ? HostDirectoryCarrier.make : yield* carrier
    const carried = yield* carries.acquire({
      runId,
      directory: request.directory,
      runtimeSecondsMax: request.runtimeSecondsMax
    })
    yield* Effect.promise(() => audit.append(opened(run, request, carries.name)))
    const server = GatewayServer.make({
      run,
      connectionsMax: options.connectionsMax ?? defaults.connectionsMax,
      headerSecondsMax: options.headerSecondsMax ?? defaults.headerSecondsMax,
      requestSecondsMax: options.requestSecondsMax ?? defaults.requestSecondsMax,
      tools: yield* GatewayTools.make({ run, request, tools })
    })
    const traffic = Effect.sync(() => trafficOf(run, request, audit, `gateway (${carries.name})`))
    const finish = yield* Effect.cached(Effect.andThen(closeRun(run, server, audit), traffic))
    yield* carried.listen(server)
    yield* Effect.addFinalizer(() => finish)
    return {
      mounts: carried.mounts,
      hostSocketPath: carried.hostSocketPath,
      ready: carried.ready,
      failure: Effect.raceFirst(carried.failure, audit.failure),
      traffic,
      finish
    }
  })

  return LlmProxy.of({
    capabilities: {
      name: "gateway",
      inspectsBodies: true,
      servesHost: true,
      tools: tools.map(({ name }) => name)
    },
    acquire
  })
})

// -----------------------------------------------------------------------------
// layers
// -----------------------------------------------------------------------------

/** @category layers */
export const layer = (options: GatewayLlmProxyOptions): Layer.Layer<LlmProxy, never, ContainerRuntime> =>
  Layer.effect(LlmProxy, make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Found out with the first run, and then the same for all. */
const carrierOf = Effect.fnUntraced(function* (
  options: GatewayLlmProxyOptions
): Effect.fn.Return<Effect.Effect<SocketCarrier, LlmProxyError>, never, ContainerRuntime | Scope.Scope> {
  const runtime = yield* ContainerRuntime
  const inContainer = yield* ContainerCarrier.make({ image: options.image, runtime })
  switch (options.carrier ?? "auto") {
    case "directory":
      return Effect.succeed(HostDirectoryCarrier.make)
    case "container":
      return Effect.succeed(inContainer)
    default:
      return Effect.map(runtime.sharesHost, (shared) => (shared ? HostDirectoryCarrier.make : inContainer))
  }
})

const makeShared = (options: GatewayLlmProxyOptions, address: Upstream.Address): GatewayRun.Shared => ({
  address,
  client: UpstreamClient.make({
    address,
    connectSecondsMax: options.connectSecondsMax ?? defaults.connectSecondsMax,
    certificateAuthorities: options.certificateAuthorities
  }),
  holding: RequestReader.makeHolding(options.heldBytesMax ?? defaults.heldBytesMax),
  inspector: Inspector.make(),
  upstreamKey: options.key,
  keyHeader: options.keyHeader ?? "authorization",
  requestBytesMax: options.requestBytesMax ?? defaults.requestBytesMax,
  outputTokensPerCallMax: options.outputTokensPerCallMax,
  auditBodies: options.auditBodies ?? "digest"
})

/** All that can be wrong with what was configured, before anything is started. */
const usable = (options: GatewayLlmProxyOptions, { llm, runId }: LlmRequest) =>
  Effect.fromResult(
    KeyInjection.inject({
      upstreamKey: options.key,
      identity: llm.identity,
      runId,
      client: [],
      keyHeader: options.keyHeader
    })
  ).pipe(Effect.mapError(({ message, remedy }) => new ProxyFailed({ detail: message, remedy })))

const refused = (problem: Upstream.UpstreamRefused | undefined) =>
  Effect.fail(
    new ProxyFailed({
      detail: problem?.message ?? "the upstream's URL cannot be used",
      remedy: problem?.remedy ?? "Give the URL of a model API"
    })
  )

const runOf = Effect.fnUntraced(function* (
  options: GatewayLlmProxyOptions,
  shared: GatewayRun.Shared,
  request: LlmRequest,
  audit: AuditFile.AuditFile
): Effect.fn.Return<GatewayRun.GatewayRun> {
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  const observing = { active: 0 }
  // The run waits for what was observed before it says its last word.
  const observe = (observation: LlmObservation) => {
    observing.active += 1
    fork(request.observe(observation)).addObserver(() => {
      observing.active -= 1
    })
  }
  return GatewayRun.make({
    shared,
    runId: request.runId,
    llm: request.llm,
    ledger: Budget.make(request.llm.budget, {
      ...(options.prices === undefined ? {} : { prices: options.prices }),
      defaults: {
        concurrentCallsMax: options.concurrentCallsMax ?? defaults.concurrentCallsMax,
        requestsPerSecondMax: options.requestsPerSecondMax ?? defaults.requestsPerSecondMax
      }
    }),
    append: audit.append,
    canaries: request.canaries,
    observing,
    suspected: (evidence) => observe({ _tag: "ExfiltrationSuspected", evidence }),
    exhausted: (exhaustion) => observe({ _tag: "BudgetExhausted", exhaustion })
  })
})

const opened = (
  { llm, modelNames, runId, shared }: GatewayRun.GatewayRun,
  { canaries, tools }: LlmRequest,
  carrier: string
): AuditEntry => ({
  type: "run.opened",
  runId,
  proxy: "gateway",
  carrier,
  upstream: shared.address.display,
  models: modelNames,
  identity: llm.identity,
  ...(llm.budget === undefined ? {} : { budget: llm.budget }),
  tools,
  canaries: canaries.policy
})

const trafficOf = (
  { calls, counts, ledger, shared }: GatewayRun.GatewayRun,
  { directory, tools }: LlmRequest,
  audit: AuditFile.AuditFile,
  proxy: string
): LlmTraffic => {
  const exhausted = ledger.exhausted()
  return {
    proxy,
    upstream: shared.address.display,
    calls: [...calls],
    callsTotal: counts.callsTotal,
    unreadableRows: 0,
    injectedHeaders: [...KeyInjection.injectedHeaderNames, "x-litellm-call-id"],
    ...(directory === undefined ? {} : { auditPath: audit.path }),
    auditHead: audit.head(),
    usage: ledger.total(),
    ...(exhausted === undefined ? {} : { exhausted }),
    ...(tools.length === 0 ? {} : { toolCallsTotal: counts.toolCallsTotal })
  }
}

/** How long calls that have their answer may take to be written down. */
const settleMillisMax = 2000
const settleStepMillis = 5
/** How long an agent's connections may outlive it, before they are cut off. */
const lingerMillis = 200

const isBusy = ({ counts, observing }: GatewayRun.GatewayRun) => counts.active > 0 || observing.active > 0

const idle = (run: GatewayRun.GatewayRun, millisMax: number) =>
  Effect.sleep(Duration.millis(settleStepMillis)).pipe(
    Effect.repeat({ while: () => isBusy(run) }),
    Effect.timeoutOption(Duration.millis(millisMax)),
    Effect.when(Effect.sync(() => isBusy(run)))
  )

/** Nobody new, then nobody: what has its answer is let end, the rest is cut off; then the last entry. */
const closeRun = (run: GatewayRun.GatewayRun, server: http.Server, audit: AuditFile.AuditFile) =>
  Effect.gen(function* () {
    server.close()
    server.closeIdleConnections()
    yield* idle(run, lingerMillis)
    run.closing = true
    server.closeAllConnections()
    yield* idle(run, settleMillisMax)
    // No end will be heard of what is still under way.
    run.ledger.endAll()
    const { callsTotal, refusedTotal, toolCallsTotal } = run.counts
    yield* Effect.promise(() =>
      audit.close({ usage: run.ledger.total(), callsTotal, toolCallsTotal, refusedTotal })
    )
  }).pipe(Effect.uninterruptible)
