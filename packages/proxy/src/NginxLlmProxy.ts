/**
 * The way out of one run: an nginx of its own, in a container of its own.
 *
 *     sandbox ── /llm-sock/llm.sock ──► nginx (no network, no capability, read-only) ── relay on the host ──► upstream
 *
 * The configuration, and the key in it, arrives on the container's standard input and lies in its memory only: in no
 * image, no environment, no argument, no file of the host and no record of the engine. The access log is a real file
 * in the run's own directory, so it is there however the run ends. nginx cannot look into bodies; whoever needs that
 * needs another proxy.
 */
import { Deferred, Duration, Effect, Fiber, Layer, Result, Schedule, type Scope, Stream } from "effect"
import * as path from "node:path"
import { type ContainerExit, ContainerRuntime, type Mount } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmEndpoint, LlmProxy, type LlmProxyError, type LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { User } from "@cogni/sandbox-core/Posture"
import type { LlmTraffic } from "@cogni/sandbox-core/RunResult"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import * as HostRelay from "./internal/nginx/HostRelay.ts"
import * as AuditDirectory from "./internal/nginx/AuditDirectory.ts"
import * as ProxyOutput from "./internal/nginx/ProxyOutput.ts"
import * as KeyInjection from "./KeyInjection.ts"
import * as NginxConfig from "./internal/nginx/NginxConfig.ts"
import * as Upstream from "./Upstream.ts"

export interface NginxLlmProxyOptions {
  /** The proxy image, as `images/proxy` builds it. */
  readonly image: string
  readonly upstream: Upstream.Upstream
  readonly key: KeyInjection.UpstreamKey
  /** Which header the upstream reads the key from: `x-api-key` for Anthropic's own API, else the usual one. */
  readonly keyHeader?: KeyInjection.KeyHeader | undefined
  readonly requestBytesMax?: number | undefined
  readonly concurrentRequestsMax?: number | undefined
  readonly requestsPerSecondMax?: number | undefined
  /** PEM certificates to trust for an https upstream, instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
  /** From the start of the container to an answer on its socket. Starts of many runs at once queue in the engine. */
  readonly readySecondsMax?: number | undefined
  /** A run whose access log or error log is this long ends; by default well below the cap on one file. For tests. */
  readonly auditBytesMax?: number | undefined
}

export const make = Effect.fnUntraced(function* (options: NginxLlmProxyOptions) {
  const runtime = yield* ContainerRuntime
  const owner = proxyUser()
  const readySecondsMax = options.readySecondsMax ?? 60

  /** All that can be wrong with what was configured, before anything is started. */
  const prepare = ({ llm, runId }: LlmRequest) =>
    Effect.fromResult(
      Result.gen(function* () {
        const address = yield* Upstream.address(options.upstream)
        const { key: upstreamKey, keyHeader } = options
        const { identity } = llm
        const headers = yield* KeyInjection.inject({ upstreamKey, identity, runId, client: [], keyHeader })
        return { address, headers }
      })
    ).pipe(Effect.mapError(({ message, remedy }) => new ProxyFailed({ detail: message, remedy })))

  const acquire = Effect.fn("LlmProxy.acquire")(function* (
    request: LlmRequest
  ): Effect.fn.Return<LlmEndpoint, LlmProxyError, Scope.Scope> {
    const { runId, runtimeSecondsMax } = request
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.runId, runId)
    const { address, headers } = yield* prepare(request)
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

    const output = yield* ProxyOutput.make(options.key)
    const ended = yield* Deferred.make<never, LlmProxyError>()
    const log = yield* AuditDirectory.follow(audit, options.auditBytesMax ?? auditBytesMax)
    const serve = Effect.gen(function* () {
      const container = yield* runtime.acquire({
        runId,
        role: "proxy",
        image: options.image,
        argv: [],
        env: {},
        user: owner,
        mounts: [...ownMounts(volume, audit), ...(relay === undefined ? [] : [relayMount(relay)])],
        network:
          options.upstream.type === "container"
            ? { mode: "internal", networkName: options.upstream.networkName }
            : { mode: "none" },
        limits: { ...limits, runtimeSecondsMax },
        stdin: NginxConfig.render({
          address,
          via: relay === undefined ? "network" : "relay",
          headers,
          runtimeSecondsMax,
          requestBytesMax: options.requestBytesMax,
          concurrentRequestsMax: options.concurrentRequestsMax,
          requestsPerSecondMax: options.requestsPerSecondMax
        })
      })
      const reader = yield* Effect.forkChild(Stream.runForEach(container.output, output.add))
      yield* container.start
      yield* Fiber.join(reader)
      const exit = yield* container.exit.pipe(
        Effect.catchTag("ContainerFailed", ({ detail, remedy }) =>
          Effect.fail(new ProxyFailed({ detail: `the proxy ended under way: ${detail}`, remedy }))
        )
      )
      return yield* new ProxyFailed({ detail: endedDetail(exit, output.tail()), remedy: endedRemedy(exit) })
    })
    // A proxy that might not write a call down is ended before anybody is told.
    const live = Effect.raceFirst(serve, log.failure).pipe(
      Effect.catchTag("PostureMismatch", ({ message }) =>
        Effect.fail(new ProxyFailed({ detail: message, remedy: "Look at the engine's configuration" }))
      ),
      Effect.scoped,
      Effect.catchCause((cause) => Deferred.failCause(ended, cause))
    )
    yield* Effect.forkScoped(live)

    // nginx writes a call down a moment after its end. Each call that was passed on is one connection to the relay.
    const settledLog = Effect.gen(function* () {
      if (relay === undefined) yield* Effect.sleep(settleStep)
      return yield* Effect.repeat(log.read, {
        until: ({ passedOn }) => passedOn >= (relay?.accepted() ?? 0),
        schedule: Schedule.spaced(settleStep),
        times: settleStepsMax
      })
    })

    // Runs before the container is removed, when the sandbox and its connections are gone already.
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
      injectedHeaders: [...KeyInjection.injectedHeaderNames],
      ...(request.directory === undefined ? {} : { auditPath: AuditDirectory.logPath(audit) })
    }))

    return {
      mounts: [
        { type: "volume", source: volume, target: path.dirname(NginxConfig.paths.listen), readOnly: true }
      ],
      ready: Effect.raceFirst(output.ready, Deferred.await(ended)).pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(readySecondsMax),
          orElse: () =>
            Effect.fail(
              new ProxyFailed({
                detail: `the proxy did not answer on its socket within ${readySecondsMax} s${output.tail()}`,
                remedy: "Look at the engine's load, and at the proxy image (cogni-sandbox doctor)"
              })
            )
        })
      ),
      failure: Deferred.await(ended),
      traffic,
      finish: traffic
    }
  })

  return LlmProxy.of({
    capabilities: { name: "nginx", inspectsBodies: false, servesHost: false, tools: [] },
    acquire
  })
})

export const layer = (options: NginxLlmProxyOptions): Layer.Layer<LlmProxy, never, ContainerRuntime> =>
  Layer.effect(LlmProxy, make(options))

const MiB = 1024 * 1024

/** How long a log may take to show the last call: 2 seconds. */
const settleStep = Duration.millis(20)
const settleStepsMax = 100

/**
 * nginx needs a few MiB; 32 MiB of body pass through it without staying. `workspaceBytesMax` is the kernel's cap on
 * one file, at which nginx dies.
 */
const limits = {
  memoryBytesMax: 64 * MiB,
  processesMax: 32,
  cpusMax: 1,
  temporaryBytesMax: 8 * MiB,
  workspaceBytesMax: 256 * MiB,
  filesOpenMax: 4096
} as const

/** What is left of the cap holds all that is asked for until the proxy is gone. */
const auditBytesMax = limits.workspaceBytesMax - 32 * MiB

/** The proxy's own user in its image, where the host may choose; else the host process's, whose files it shares. */
const proxyUser = (): User => {
  const userId = process.getuid?.() ?? 0
  return userId === 0 ? { userId: 999, groupId: 999 } : { userId, groupId: process.getgid?.() ?? userId }
}

/** The way to an upstream at an address; one that is a container needs none. */
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
        // Each request that nginx passes on is a connection, and it lets four seconds' worth come at once.
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

const endedDetail = (exit: ContainerExit, tail: string): string =>
  `the proxy ended with exit code ${exit.exitCode}${exit.oomKilled ? ", killed for want of memory" : ""}${tail}`

const endedRemedy = (exit: ContainerExit): string =>
  exit.exitCode === 137 || exit.exitCode === 143
    ? "Something outside the run ended it; run again"
    : "Rebuild the proxy image (./dev images), and report this if it stays"
