/**
 * The way out of many runs: one gateway in the host process, with a socket for each of them, served in threads of their
 * own, so that runs do not share fate.
 *
 *     sandbox ── /llm-sock/llm.sock ──► gateway: route, body, budget, canaries, audit ── key, identity ──► upstream
 *
 * Who speaks follows from the socket, so there is no token to forge. What goes upstream is written anew from
 * allowlists, never passed on; what was left out is in the audit. Closing the run closes its socket and every stream on
 * it. How the socket gets into the sandbox is a carrier's: a directory of the host where the engine can mount one, a
 * container of sockets where it cannot. The code that decides is the same.
 */
import { Deferred, Effect, Layer, Record, Result, type Scope } from "effect"
import * as os from "node:os"
import * as path from "node:path"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmEndpoint, LlmProxy, type LlmProxyError, type LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { LlmTraffic } from "@cogni/sandbox-core/RunResult"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import type { AuditEntry } from "./AuditEntry.ts"
import * as AuditChain from "./internal/audit/AuditChain.ts"
import * as ContainerCarrier from "./internal/carrier/ContainerCarrier.ts"
import * as DescriptorLimit from "./internal/shards/DescriptorLimit.ts"
import * as HostDirectoryCarrier from "./internal/carrier/HostDirectoryCarrier.ts"
import * as GatewayLimits from "./internal/shards/GatewayLimits.ts"
import * as HostDisk from "./internal/HostDisk.ts"
import * as ServedRun from "./internal/shards/ServedRun.ts"
import type { RunTraffic, ShardConfig } from "./internal/shards/ShardMessage.ts"
import * as ShardPool from "./internal/shards/ShardPool.ts"
import { socketName } from "./internal/carrier/SocketCarrier.ts"
import * as KeyInjection from "./KeyInjection.ts"
import type { Prices } from "./Prices.ts"
import * as Upstream from "./Upstream.ts"

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
  /** Of one run: requests of any kind, health checks and refused ones included. */
  readonly requestsPerSecondMax?: number | undefined
  /** Of one run. */
  readonly connectionsPerSecondMax?: number | undefined
  /** Of one run. */
  readonly connectionsMax?: number | undefined
  /** Of all runs together (default: what the limit of file descriptors allows). Half is divided among the runs. */
  readonly connectionsTotalMax?: number | undefined
  /** What the requests of all runs may hold in memory together. Half is divided among the runs. */
  readonly heldBytesMax?: number | undefined
  /** Of one processor, that the requests of one run may use on average (1: a whole one). */
  readonly processorShareMax?: number | undefined
  /** A request body that makes less progress than `bodyBytesPerSecondMin` for so long is dropped. */
  readonly bodyProgressSecondsMax?: number | undefined
  readonly bodyBytesPerSecondMin?: number | undefined
  /** Threads that serve runs (default: one for each processor, at least 2 and at most 16). */
  readonly shardsMax?: number | undefined
  /** Memory of one such thread for its objects. */
  readonly shardHeapBytesMax?: number | undefined
  /** A thread that gives no sign of life for so long is ended, and its runs fail. */
  readonly shardSilentSecondsMax?: number | undefined
  readonly auditBytesMax?: number | undefined
  readonly connectSecondsMax?: number | undefined
  readonly headerSecondsMax?: number | undefined
  readonly requestSecondsMax?: number | undefined
  /** PEM certificates to trust for an https upstream, instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

/** Applied where the options say nothing. */
export const defaults = GatewayLimits.defaults

export const make = Effect.fnUntraced(function* (options: GatewayLlmProxyOptions) {
  const tools = options.tools ?? []
  const capabilities = {
    name: "gateway",
    inspectsBodies: true,
    servesHost: true,
    tools: tools.map(({ name }) => name)
  }
  const parsed = Upstream.address({ type: "host", url: options.url })
  if (Result.isFailure(parsed))
    return LlmProxy.of({ capabilities, acquire: () => Effect.fail(refused(parsed.failure)) })
  const address = parsed.success
  const carrier = yield* carrierOf(options)
  const pool = yield* ShardPool.make(configOf(options, address))

  const acquire = Effect.fn("LlmProxy.acquire")(function* (
    request: LlmRequest
  ): Effect.fn.Return<LlmEndpoint, LlmProxyError, Scope.Scope> {
    const { runId } = request
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.runId, runId)
    yield* usable(options, request)
    // A loop on this host needs no way into the sandbox.
    const carries = request.llm.caller === "host" ? HostDirectoryCarrier.make : yield* carrier
    const carried = yield* carries.acquire(request.directory)
    const run = yield* ServedRun.make({
      pool,
      request,
      tools,
      start: {
        runId,
        llm: request.llm,
        socketPath: path.join(carried.directory, socketName),
        auditParent:
          request.directory ??
          (yield* HostDisk.temporaryDirectory("the run's audit cannot be made", "cogni-sandbox-audit-")),
        opened: opened(request, address, carries.name),
        canaries: request.canaries
      }
    })
    const proxy = `gateway (${carries.name})`
    const trafficOf = Effect.map((traffic: RunTraffic) => toTraffic(request, address, traffic, proxy))
    const finish = yield* Effect.cached(trafficOf(run.finish))
    const ready = yield* Deferred.make<void, LlmProxyError>()
    yield* Effect.forkScoped(Deferred.into(Effect.andThen(run.listening, carried.open), ready))
    yield* Effect.addFinalizer(() => Effect.ignore(finish))
    return {
      mounts: carried.mounts,
      hostSocketPath: carried.hostSocketPath,
      ready: Deferred.await(ready),
      failure: Effect.raceFirst(carried.failure, run.failure),
      traffic: trafficOf(run.traffic),
      finish
    }
  })

  return LlmProxy.of({ capabilities, acquire })
})

export const layer = (options: GatewayLlmProxyOptions): Layer.Layer<LlmProxy, never, ContainerRuntime> =>
  Layer.effect(LlmProxy, make(options))

/** Each takes some 50 MB, and no more of them than processors ever work at one time. Two keep one run from the others. */
const shardsDefault = () => Math.min(defaults.shardsMax, Math.max(2, os.availableParallelism()))

/** Found out with the first run, and then the same for all. */
const carrierOf = Effect.fnUntraced(function* ({ carrier = "auto", image }: GatewayLlmProxyOptions) {
  const runtime = yield* ContainerRuntime
  const inContainer = yield* ContainerCarrier.make({ image, runtime })
  const isShared = carrier === "auto" ? runtime.sharesHost : Effect.succeed(carrier === "directory")
  return Effect.map(isShared, (shared) => (shared ? HostDirectoryCarrier.make : inContainer))
})

const configOf = (options: GatewayLlmProxyOptions, address: Upstream.Address): ShardConfig => {
  const limits = Record.map(defaults, (value: number, name) => options[name] ?? value)
  return {
    ...limits,
    shardsMax: options.shardsMax ?? shardsDefault(),
    address,
    key: KeyInjection.handedOver(options.key),
    keyHeader: options.keyHeader ?? "authorization",
    certificateAuthorities: options.certificateAuthorities,
    prices: options.prices,
    auditBodies: options.auditBodies ?? "digest",
    outputTokensPerCallMax: options.outputTokensPerCallMax,
    connectionsPerSecondMax: options.connectionsPerSecondMax ?? limits.requestsPerSecondMax,
    connectionsTotalMax: options.connectionsTotalMax ?? DescriptorLimit.connectionsMax()
  }
}

/** All that can be wrong with what was configured, before anything is started. */
const usable = ({ key, keyHeader }: GatewayLlmProxyOptions, { llm, runId }: LlmRequest) =>
  Effect.fromResult(
    KeyInjection.inject({ upstreamKey: key, identity: llm.identity, runId, client: [], keyHeader })
  ).pipe(Effect.mapError(refused))

const refused = ({ message, remedy }: Upstream.UpstreamRefused | KeyInjection.UnusableHeader) =>
  new ProxyFailed({ detail: message, remedy })

const opened = (
  { canaries, llm, runId, tools }: LlmRequest,
  address: Upstream.Address,
  carrier: string
): AuditEntry => ({
  type: "run.opened",
  runId,
  proxy: "gateway",
  carrier,
  upstream: address.display,
  models: Object.keys({ [llm.model]: llm.model, ...llm.models }),
  identity: llm.identity,
  ...(llm.budget === undefined ? {} : { budget: llm.budget }),
  tools,
  canaries: canaries.policy
})

const toTraffic = (
  { directory, tools }: LlmRequest,
  address: Upstream.Address,
  { auditHead, calls, callsTotal, exhausted, toolCallsTotal, usage }: RunTraffic,
  proxy: string
): LlmTraffic => ({
  proxy,
  upstream: address.display,
  calls,
  callsTotal,
  unreadableRows: 0,
  injectedHeaders: [...KeyInjection.injectedHeaderNames, "x-litellm-call-id"],
  ...(directory === undefined ? {} : { auditPath: path.join(directory, AuditChain.relativePath) }),
  auditHead,
  usage,
  ...(exhausted === undefined ? {} : { exhausted }),
  ...(tools.length === 0 ? {} : { toolCallsTotal })
})
