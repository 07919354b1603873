/**
 * Model egress for one run: its own nginx, in its own container.
 *
 *     sandbox ── /llm-sock/llm.sock ──► nginx (no network, no capability, read-only) ── relay on the host ──► upstream
 *
 * The configuration, which contains the key, arrives on the container's standard input and stays in its memory. It is
 * in no image, environment, argument, host file or engine record. The access log is a file in the run's own directory,
 * so it survives however the run ends. nginx cannot inspect bodies; use `GatewayLlmProxy` for that.
 */
import { Deferred, Duration, Effect, Layer, Result, Schedule, type Scope } from "effect"
import * as path from "node:path"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type Mount } from "@cogni/sandbox-core/ContainerMount"
import { type LlmEndpoint, LlmProxy, type LlmProxyError, type LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { User } from "@cogni/sandbox-core/Posture"
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import { named } from "@cogni/sandbox-core/Remedy"
import type { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as HostRelay from "./internal/nginx/HostRelay.ts"
import * as AccessLog from "./internal/nginx/AccessLog.ts"
import * as AuditDirectory from "./internal/nginx/AuditDirectory.ts"
import type * as EgressProxy from "./EgressProxy.ts"
import * as KeyInjection from "./KeyInjection.ts"
import * as LimitCheck from "./internal/LimitCheck.ts"
import * as NginxConfig from "./internal/nginx/NginxConfig.ts"
import * as NginxContainer from "./internal/nginx/NginxContainer.ts"
import * as NginxLimits from "./internal/nginx/NginxLimits.ts"
import * as NginxOptions from "./internal/nginx/NginxOptions.ts"
import * as UpstreamOptions from "./internal/UpstreamOptions.ts"
import type * as Upstream from "./Upstream.ts"
import type * as UpstreamProfile from "./UpstreamProfile.ts"

export interface NginxLlmProxyOptions {
  /** Proxy image, built from `images/proxy`. */
  readonly image: string
  readonly upstream: Upstream.Upstream
  readonly key: KeyInjection.UpstreamKey
  /**
   * Kind of the upstream. Only `litellm` gets the billing identity. nginx reads no bodies, so it refuses a profile that
   * opens embeddings or body fields, or that puts the model into the path. Default: as with the gateway.
   */
  readonly profile?: UpstreamProfile.Name | UpstreamProfile.Choice | undefined
  /** Header from which the upstream reads the key (default: the profile's). */
  readonly keyHeader?: UpstreamProfile.KeyHeader | undefined
  /** Refused: nginx cannot write the pseudonym of an account into a body. */
  readonly identitySecret?: KeyInjection.UpstreamKey | undefined
  /** Size of a request's body (default 32 MiB). */
  readonly requestBytesMax?: number | undefined
  /** Concurrent requests (default 64, at most 500). */
  readonly concurrentRequestsMax?: number | undefined
  /** Requests per second, in whole numbers (default 50). */
  readonly requestsPerSecondMax?: number | undefined
  /** HTTP proxy between this host and the upstream. Refused if the upstream is not reached without it. */
  readonly egressProxy?: EgressProxy.EgressProxy | undefined
  /** PEM certificates to trust for an https upstream, instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
  /** Seconds from container start to an answer on its socket (default 60). Concurrent starts queue in the engine. */
  readonly readySecondsMax?: number | undefined
  /**
   * A run ends when its access log or error log reaches this size (default and most 224 MiB, below the file cap). For
   * tests. A log is looked at every second while it grows, and every five seconds while it does not and is less than
   * half full. So it can exceed this size by what is logged in that time.
   */
  readonly auditBytesMax?: number | undefined
}

export const make = Effect.fnUntraced(function* (options: NginxLlmProxyOptions) {
  const runtime = yield* ContainerRuntime
  const owner = NginxOptions.proxyUser()
  const { address, profile } = yield* Effect.fromResult(
    NginxOptions.resolve(options, {
      url: named("NginxLlmProxy.upstream"),
      profile: named("NginxLlmProxy.profile"),
      egressProxy: named("NginxLlmProxy.egressProxy"),
      key: named("NginxLlmProxy.key")
    })
  )
  yield* Effect.fromResult(LimitCheck.check(named("NginxLlmProxy"), NginxLimits.ofOne, options))

  /** Validates the run before anything is started. */
  const headersFor = (request: LlmRequest) =>
    Effect.fromResult(
      Result.gen(function* () {
        const { identity } = yield* NginxOptions.served(request, named("NginxLlmProxy"))
        return yield* UpstreamOptions.headers(
          { profile, upstreamKey: options.key, identity, runId: request.runId, client: [] },
          named("NginxLlmProxy.key")
        )
      })
    )

  const acquire = Effect.fn("LlmProxy.acquire")(function* (
    request: LlmRequest
  ): Effect.fn.Return<LlmEndpoint, LlmProxyError, Scope.Scope> {
    const { runId, runtimeSecondsMax, traceparent } = request
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.runId, runId)
    const headers = yield* headersFor(request)
    const [volume, audit, relay] = yield* Effect.all(
      [
        runtime.acquireVolume({
          runId,
          role: "socket",
          owner,
          bytesMax: 64 * 1024,
          filesMax: 8,
          runtimeSecondsMax
        }),
        AuditDirectory.acquire(request.directory, owner),
        relayOf(options, request, address, owner)
      ],
      { concurrency: "unbounded" }
    )

    const nginx = yield* NginxContainer.make({
      runtime,
      subject: "the proxy",
      key: options.key,
      readySecondsMax: options.readySecondsMax
    })
    const ended = yield* Deferred.make<never, LlmProxyError>()
    const log = yield* AuditDirectory.follow(audit, options.auditBytesMax ?? NginxLimits.auditBytesMax)
    const serve = nginx.serve({
      runId,
      image: options.image,
      owner,
      upstream: options.upstream,
      mounts: [...ownMounts(volume, audit), ...(relay === undefined ? [] : [relayMount(relay)])],
      limits: { ...limits, runtimeSecondsMax },
      configuration: configurationOf(options, request, {
        address,
        profile,
        headers,
        via: relay === undefined ? "network" : "relay"
      })
    })
    // A proxy that might not log a call is ended before its failure is reported.
    const live = Effect.raceFirst(serve, log.failure).pipe(
      Effect.scoped,
      Effect.catchCause((cause) => Deferred.failCause(ended, cause))
    )
    yield* Effect.forkScoped(live)

    // nginx logs a call a moment after its end. Each forwarded call is one connection to the relay.
    const settledLog = Effect.gen(function* () {
      if (relay === undefined) yield* Effect.sleep(settleStep)
      const read = yield* Effect.repeat(log.read, {
        until: ({ passedOn }) => passedOn >= (relay?.accepted() ?? 0),
        schedule: Schedule.spaced(settleStep),
        times: settleStepsMax
      })
      return (yield* Deferred.isDone(ended)) ? AccessLog.withLost(read, relay?.accepted() ?? 0) : read
    })

    // Runs before the container is removed, when the sandbox and its connections are already gone.
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        if (relay !== undefined && relay.accepted() > 0) yield* Effect.ignore(settledLog)
        const failure = relay?.lastFailure()
        if (failure !== undefined)
          yield* Effect.logWarning(`the upstream ${address.display} failed: ${failure}`)
      })
    )

    const traffic = Effect.map(settledLog, (read): LlmTraffic => ({
      proxy: "nginx",
      upstream: address.display,
      calls: read.calls,
      callsTotal: read.callsTotal,
      unreadableRows: read.unreadableRows,
      injectedHeaders: [
        ...KeyInjection.injectedHeaderNames(profile),
        ...(traceparent === undefined ? [] : ["traceparent"])
      ],
      ...(request.directory === undefined ? {} : { auditPath: AuditDirectory.logPath(audit) })
    }))

    return {
      mounts: [
        { type: "volume", source: volume, target: path.dirname(NginxConfig.paths.listen), readOnly: true }
      ],
      ready: Effect.raceFirst(nginx.ready, Deferred.await(ended)),
      failure: Deferred.await(ended),
      traffic,
      finish: traffic
    }
  })

  return yield* UsageObserver.observed(
    LlmProxy.of({
      capabilities: {
        name: "nginx",
        upstream: profile.name,
        inspectsBodies: false,
        servesHost: false,
        tools: []
      },
      acquire
    })
  )
})

export const layer = (
  options: NginxLlmProxyOptions
): Layer.Layer<LlmProxy, Misconfigured, ContainerRuntime | UsageObserver.UsageObserver> =>
  Layer.effect(LlmProxy, make(options))

const MiB = 1024 * 1024

/** The log may take 2 seconds to show the last call. */
const settleStep = Duration.millis(20)
const settleStepsMax = 100

/**
 * nginx needs a few MiB, because it does not buffer bodies of up to 32 MiB. `workspaceBytesMax` is the kernel's cap on
 * one file; nginx dies when it reaches it.
 */
const limits = {
  memoryBytesMax: 64 * MiB,
  processesMax: 32,
  cpusMax: 1,
  temporaryBytesMax: 8 * MiB,
  workspaceBytesMax: NginxLimits.fileBytesMax,
  filesOpenMax: 4096
} as const

const configurationOf = (
  { concurrentRequestsMax, requestBytesMax, requestsPerSecondMax }: NginxLlmProxyOptions,
  { runtimeSecondsMax, traceparent }: LlmRequest,
  {
    address,
    headers,
    profile,
    via
  }: Upstream.ResolvedUpstream & Pick<NginxConfig.NginxConfig, "headers" | "via">
): string =>
  NginxConfig.render({
    address,
    profile,
    via,
    headers: [...headers, ...(traceparent === undefined ? [] : [["traceparent", traceparent] as const])],
    runtimeSecondsMax,
    requestBytesMax,
    concurrentRequestsMax,
    requestsPerSecondMax
  })

/** Relay to an upstream that the host reaches. An upstream in a container needs no relay. */
const relayOf = (
  options: NginxLlmProxyOptions,
  request: LlmRequest,
  address: Upstream.Address,
  owner: User
) =>
  options.upstream.type === "container"
    ? Effect.succeed(undefined)
    : HostRelay.acquire({
        address,
        owner,
        parent: request.directory,
        // Each request that nginx forwards is a connection, and nginx allows a burst of four seconds' worth.
        connectionsPerSecondMax:
          5 * (options.requestsPerSecondMax ?? NginxConfig.defaults.requestsPerSecondMax),
        certificateAuthorities: options.certificateAuthorities
      })

const ownMounts = (volume: string, audit: string): ReadonlyArray<Mount> => [
  { type: "volume", source: volume, target: path.dirname(NginxConfig.paths.listen), readOnly: false },
  { type: "directory", source: audit, target: path.dirname(NginxConfig.paths.accessLog), readOnly: false }
]

const relayMount = (relay: HostRelay.HostRelay): Mount => ({
  type: "directory",
  source: relay.directory,
  target: path.dirname(NginxConfig.paths.relay),
  readOnly: true
})
