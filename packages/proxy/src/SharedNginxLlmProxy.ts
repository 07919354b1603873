/**
 * Model egress for many runs: one nginx, in one container.
 *
 *     sandboxes ── a socket each ──► nginx (no network, no capability, read-only) ── relays, in a thread ──► upstream
 *
 * Runs come and go without a restart or a new configuration: a program in nginx holds a table of them. A run's own
 * socket identifies it. No socket is used for two runs. The key is in the container's memory alone, as with
 * `NginxLlmProxy`, and a call never passes through the event loop of this process. The engine must share this host's
 * files. nginx cannot inspect bodies; use `GatewayLlmProxy` for that.
 */
import { Cause, Clock, Deferred, Duration, Effect, Exit, Layer, Schedule, Scope, Semaphore } from "effect"
import * as fs from "node:fs/promises"
import { randomBytes } from "node:crypto"
import * as path from "node:path"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmEndpoint, LlmProxy, type LlmProxyError, type LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import { named } from "@cogni/sandbox-core/Remedy"
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import type * as EgressProxy from "./EgressProxy.ts"
import * as HostDirectoryCarrier from "./internal/carrier/HostDirectoryCarrier.ts"
import * as HostDisk from "./internal/HostDisk.ts"
import * as LimitCheck from "./internal/LimitCheck.ts"
import * as AccessLog from "./internal/nginx/AccessLog.ts"
import * as AuditDirectory from "./internal/nginx/AuditDirectory.ts"
import * as NginxConfig from "./internal/nginx/NginxConfig.ts"
import * as NginxLimits from "./internal/nginx/NginxLimits.ts"
import * as NginxOptions from "./internal/nginx/NginxOptions.ts"
import type * as RelayThread from "./internal/nginx/RelayThread.ts"
import * as RunToken from "./internal/nginx/RunToken.ts"
import * as SharedNginx from "./internal/nginx/SharedNginx.ts"
import * as UpstreamOptions from "./internal/UpstreamOptions.ts"
import * as KeyInjection from "./KeyInjection.ts"
import type * as Upstream from "./Upstream.ts"
import type * as UpstreamProfile from "./UpstreamProfile.ts"

export interface SharedNginxLlmProxyOptions {
  /** Proxy image, built from `images/proxy`. */
  readonly image: string
  readonly upstream: Upstream.Upstream
  readonly key: KeyInjection.UpstreamKey
  /** Kind of the upstream. nginx refuses the same profiles as `NginxLlmProxy`. */
  readonly profile?: UpstreamProfile.Name | UpstreamProfile.Choice | undefined
  /** Header from which the upstream reads the key (default: the profile's). */
  readonly keyHeader?: UpstreamProfile.KeyHeader | undefined
  /** Refused: nginx cannot write the pseudonym of an account into a body. */
  readonly identitySecret?: KeyInjection.UpstreamKey | undefined
  /**
   * `socket` gives each run a socket of its own. With `token`, all runs share one, and each gets a token in place of the
   * API key: `runId.expiry.HMAC`. A run that reads another run's token can call as that run. Connections are not
   * counted for each run with `token`, so one run may take those of all others. Default `socket`.
   */
  readonly identity?: "socket" | "token" | undefined
  /** Size of a request's body (default 32 MiB). */
  readonly requestBytesMax?: number | undefined
  /** Concurrent requests of one run (default 64, at most 1750). */
  readonly concurrentRequestsMax?: number | undefined
  /** Requests per second of one run, in whole numbers (default 50). */
  readonly requestsPerSecondMax?: number | undefined
  /** Sockets of one container, each for one run (default 1000, at most 3500). The run after the last one gets a new container. */
  readonly socketsMax?: number | undefined
  /**
   * Existing directory of this process for the files of the proxy, on the file system of the runs' directories.
   * Default: the directory for temporary files.
   */
  readonly directory?: string | undefined
  /** HTTP proxy between this host and the upstream. Refused if the upstream is not reached without it. */
  readonly egressProxy?: EgressProxy.EgressProxy | undefined
  /** PEM certificates to trust for an https upstream, instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
  /** Seconds from container start to an answer on its socket (default 60). */
  readonly readySecondsMax?: number | undefined
  /**
   * A run ends when its access log reaches this size (default and most 224 MiB, below the file cap). For tests. The
   * log is looked at every second while it grows, and every five seconds while it does not and is less than half full.
   * So it can exceed this size by what is logged in that time.
   */
  readonly auditBytesMax?: number | undefined
}

/** Connections that a run may have open for each concurrent request. */
const connectionsPerCall = 2

/** Time that a run's identity is valid in addition to its time limit. */
const expirySecondsMore = 300

/** The log may take 2 seconds to show the last call. */
const settleStep = Duration.millis(20)
const settleStepsMax = 100

const failure = "the run's socket cannot be connected to the shared nginx"

/** An nginx, with its leases and the number of the next one. */
interface Shared {
  readonly nginx: SharedNginx.SharedNginx
  readonly tokenSecret: Uint8Array
  placesTotal: number
  leasesTotal: number
}

/** The place of a run in an nginx. No other run ever gets it. */
interface Place {
  readonly shared: Shared
  /** Gives no further run a place in this nginx. */
  readonly forget: Effect.Effect<void>
  readonly number: number
}

/** Starts no container before the first run. */
export const make = Effect.fnUntraced(function* (options: SharedNginxLlmProxyOptions) {
  const runtime = yield* ContainerRuntime
  const { address, profile } = yield* Effect.fromResult(
    NginxOptions.resolve(options, {
      url: named("SharedNginxLlmProxy.upstream"),
      profile: named("SharedNginxLlmProxy.profile"),
      egressProxy: named("SharedNginxLlmProxy.egressProxy"),
      key: named("SharedNginxLlmProxy.key")
    })
  )
  yield* Effect.fromResult(LimitCheck.check(named("SharedNginxLlmProxy"), NginxLimits.ofMany, options))
  const isByToken = options.identity === "token"
  const injected = [...KeyInjection.injectedHeaderNames(profile)]
  const headersFor = headersOf(options, profile)
  const { lease } = yield* makeLeases({
    ...options,
    address,
    headerNames: headersFor.names,
    profile,
    runtime
  })

  const acquire = Effect.fn("LlmProxy.acquire")(function* (
    request: LlmRequest
  ): Effect.fn.Return<LlmEndpoint, LlmProxyError, Scope.Scope> {
    const { runId, traceparent } = request
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.runId, runId)
    const values = yield* headersFor.values(request)
    const place = yield* lease(request.runtimeSecondsMax)
    const run = yield* openRun({ isByToken, options, place, request, values })
    const traffic = Effect.map(run.settledLog, (read): LlmTraffic => ({
      proxy: "nginx-shared",
      upstream: address.display,
      calls: read.calls,
      callsTotal: read.callsTotal,
      unreadableRows: read.unreadableRows,
      injectedHeaders: [...injected, ...(traceparent === undefined ? [] : ["traceparent"])],
      ...(request.directory === undefined ? {} : { auditPath: AuditDirectory.logPath(run.audit) })
    }))
    return {
      mounts: run.carried.mounts,
      hostSocketPath: run.carried.hostSocketPath,
      ...(run.token === undefined ? {} : { token: run.token }),
      ready: run.ready,
      failure: run.failure,
      traffic,
      finish: traffic
    }
  })

  return yield* UsageObserver.observed(
    LlmProxy.of({
      capabilities: {
        name: "nginx-shared",
        upstream: profile.name,
        inspectsBodies: false,
        servesHost: !isByToken,
        tools: [],
        listensInMount: true
      },
      acquire
    })
  )
})

export const layer = (
  options: SharedNginxLlmProxyOptions
): Layer.Layer<LlmProxy, Misconfigured, ContainerRuntime | UsageObserver.UsageObserver> =>
  Layer.effect(LlmProxy, make(options))

/** Headers of each run, in one order. Those that a run lacks are empty, and nginx sends no empty header. */
const headersOf = (options: SharedNginxLlmProxyOptions, profile: UpstreamProfile.UpstreamProfile) => {
  const fixed = new Set([...KeyInjection.injectedHeaderNames(profile), ...Object.keys(profile.headers)])
  const names = [...fixed, "accept-encoding", "content-type", "traceparent"]
  const values = Effect.fnUntraced(function* (request: LlmRequest) {
    const { runId, traceparent } = request
    const { identity } = yield* Effect.fromResult(NginxOptions.served(request, named("SharedNginxLlmProxy")))
    const headers = new Map(
      yield* Effect.fromResult(
        UpstreamOptions.headers(
          { profile, upstreamKey: options.key, identity, runId, client: [] },
          named("SharedNginxLlmProxy.key")
        )
      )
    )
    if (traceparent !== undefined) headers.set("traceparent", traceparent)
    return names.map((name) => headers.get(name) ?? "")
  })
  return { names, values }
}

/** Assigns runs to containers, and starts a container when all are full. */
const makeLeases = Effect.fnUntraced(function* (
  options: SharedNginxLlmProxyOptions & {
    readonly runtime: ContainerRuntime["Service"]
    readonly address: Upstream.Address
    readonly profile: UpstreamProfile.UpstreamProfile
    readonly headerNames: ReadonlyArray<string>
  }
) {
  const scope = yield* Effect.scope
  const turns = yield* Semaphore.make(1)
  const {
    requestsPerSecondMax = NginxConfig.defaults.requestsPerSecondMax,
    socketsMax = NginxLimits.defaults.socketsMax
  } = options
  let current: Shared | undefined

  const start = Effect.gen(function* () {
    if (!(yield* options.runtime.sharesHost))
      return yield* new Misconfigured({
        option: named("SharedNginxLlmProxy"),
        detail: "needs an engine that shares the files of this host, and this engine does not",
        remedy: `Use ${named("GatewayLlmProxy")}`
      })
    const tokenSecret = yield* Effect.sync(() => randomBytes(RunToken.secretBytes))
    const nginx = yield* SharedNginx.make({
      ...options,
      owner: NginxOptions.proxyUser(),
      parent: options.directory,
      certificateAuthorities: options.certificateAuthorities,
      readySecondsMax: options.readySecondsMax,
      // Each request that nginx forwards is a connection, and a run may have a burst of four seconds' worth.
      relayConnectionsPerSecondMax: 5 * requestsPerSecondMax,
      slotsMax: socketsMax,
      connectionsPerRunMax:
        connectionsPerCall * (options.concurrentRequestsMax ?? NginxConfig.defaults.concurrentRequestsMax),
      tokenSecret
    }).pipe(Scope.provide(scope))
    return { nginx, tokenSecret, placesTotal: 0, leasesTotal: 0 } satisfies Shared
  })

  /** An nginx that gets no more runs ends with its last one. */
  const retire = (shared: Shared) =>
    shared !== current && shared.leasesTotal === 0 ? shared.nginx.retire : Effect.void

  const take = (runtimeSecondsMax: number) =>
    Effect.gen(function* () {
      const endMillis = (yield* Clock.currentTimeMillis) + (runtimeSecondsMax + expirySecondsMore) * 1000
      const last = current
      if (
        last === undefined ||
        last.nginx.hasEnded() ||
        last.placesTotal >= socketsMax ||
        endMillis > last.nginx.deadlineMillis
      ) {
        current = undefined
        if (last !== undefined) yield* retire(last)
        current = yield* start
      }
      current!.leasesTotal += 1
      const shared = current!
      const forget = Effect.sync(() => {
        if (shared === current) current = undefined
      })
      return { shared, number: shared.placesTotal++, forget } satisfies Place
    })

  const lease = (runtimeSecondsMax: number) =>
    Effect.acquireRelease(turns.withPermit(take(runtimeSecondsMax)), ({ shared }) =>
      Effect.suspend(() => {
        shared.leasesTotal -= 1
        if (shared === current && shared.nginx.hasEnded()) current = undefined
        return retire(shared)
      })
    )
  return { lease }
})

const link = async (existing: string, name: string) => {
  await OwnFiles.link(existing, name).catch((cause: NodeJS.ErrnoException) => {
    throw cause.code === "EXDEV"
      ? new TypeError(`it is on another file system than ${path.dirname(existing)}`)
      : cause
  })
}

/** Makes the log of a run, in the run's own directory, and gives nginx a link to it. */
const makeLog = async (audit: string, linked: string) => {
  const { groupId, userId } = NginxOptions.proxyUser()
  const file = await OwnFiles.openNewLog(AuditDirectory.logPath(audit))
  try {
    if (process.getuid?.() === 0) await file.chown(userId, groupId)
  } finally {
    await file.close()
  }
  await link(AuditDirectory.logPath(audit), linked)
}

/** State of a run in nginx and in the relay. */
interface RunState {
  isAdded: boolean
  relay: RelayThread.RunRelay | undefined
  /** Counts of a relay that is closed. */
  finalCounts: RelayThread.RelayCounts | undefined
}

const makeRemoval = (run: {
  readonly isByToken: boolean
  readonly place: Place
  readonly relayScope: Scope.Closeable
  readonly runId: RunId
  readonly socket: string
  readonly state: RunState
}) => {
  const { isByToken, place, relayScope, runId, socket, state } = run
  const { nginx } = place.shared
  const number = String(place.number)
  const paths = SharedNginx.paths(nginx.directory)
  const removeFiles = (...files: ReadonlyArray<string>) =>
    Effect.ignore(
      HostDisk.use(failure, async () => {
        for (const file of files) await fs.rm(file, { force: true })
      })
    )

  const refuse = Effect.suspend(() => (state.isAdded ? nginx.command("remove", number) : Effect.void)).pipe(
    // An nginx that has ended refuses every call.
    Effect.catch((error) =>
      nginx.hasEnded()
        ? Effect.void
        : Effect.andThen(
            Effect.logError(`the run ${runId} could not be removed from the shared nginx, which ends`, error),
            nginx.abort(error)
          )
    )
  )
  /** Counts of the relay of the run, also after its end. */
  const counts = Effect.suspend(() =>
    state.finalCounts === undefined && state.relay !== undefined
      ? state.relay.counts
      : Effect.succeed(state.finalCounts)
  )
  const cut = Effect.gen(function* () {
    state.finalCounts = yield* counts
    yield* Scope.close(relayScope, Exit.void)
  })
  const settled = Effect.repeat(
    Effect.suspend(() => (state.isAdded ? nginx.command("calls", number) : Effect.succeed(0))),
    {
      until: (calls) => calls === 0,
      schedule: Schedule.spaced(settleStep),
      times: settleStepsMax
    }
  )
  /**
   * Refuses further calls of the run, cuts those in progress, and waits until they are in the log. Each step is taken
   * whatever becomes of the others. Idempotent.
   */
  const remove = Effect.all([refuse, cut, removeFiles(socket)], {
    concurrency: "unbounded",
    discard: true
  }).pipe(
    Effect.andThen(Effect.ignore(settled)),
    Effect.ensuring(removeFiles(paths.log(place.number), ...(isByToken ? [] : [paths.socket(place.number)])))
  )
  return { counts, remove }
}

/** Replaces an error by its cause if files of nginx are gone. It still serves its runs, but can get no more. */
const orLostFiles = ({ forget, number, shared }: Place, isByToken: boolean) =>
  Effect.catch((error: LlmProxyError) =>
    Effect.flatMap(SharedNginx.lost(shared.nginx.directory, isByToken ? undefined : number), (lost) =>
      lost === undefined ? Effect.fail(error) : Effect.andThen(forget, Effect.fail(lost))
    )
  )

/** Registers a run, and removes it when the scope closes. Returns as soon as its mounts are known. */
const openRun = Effect.fnUntraced(function* ({
  isByToken,
  options,
  place,
  request,
  values
}: {
  readonly isByToken: boolean
  readonly options: SharedNginxLlmProxyOptions
  readonly place: Place
  readonly request: LlmRequest
  readonly values: ReadonlyArray<string>
}) {
  const { number, shared } = place
  const { nginx } = shared
  const { directory, runId, runtimeSecondsMax, socketMount } = request
  const paths = SharedNginx.paths(nginx.directory)
  const expirySeconds =
    Math.ceil((yield* Clock.currentTimeMillis) / 1000) + runtimeSecondsMax + expirySecondsMore
  const orLost = orLostFiles(place, isByToken)
  const own = directory ?? (yield* acquireOwn(paths.run(number)).pipe(orLost))
  const audit = yield* AuditDirectory.acquire(own)
  const log = yield* AuditDirectory.follow(audit, options.auditBytesMax ?? NginxLimits.auditBytesMax)
  const carried = yield* HostDirectoryCarrier.make.acquire(own, socketMount)
  const socket = path.join(carried.directory, path.basename(NginxConfig.paths.listen))
  const relayScope = yield* Scope.make()
  const state: RunState = { isAdded: false, relay: undefined, finalCounts: undefined }

  const opening = Effect.gen(function* () {
    yield* nginx.ready
    const thread = yield* nginx.relay
    yield* HostDisk.use(failure, () => makeLog(audit, paths.log(number)))
    if (thread !== undefined)
      state.relay = yield* Scope.provide(thread.acquire(nginx.relayPath(number)), relayScope)
    state.isAdded = true
    yield* nginx.command(
      "add",
      ...[number, isByToken ? "-" : number, runId, expirySeconds].map(String),
      String(options.requestsPerSecondMax ?? NginxConfig.defaults.requestsPerSecondMax),
      String(options.concurrentRequestsMax ?? NginxConfig.defaults.concurrentRequestsMax),
      ...values.map((value) => (value === "" ? "-" : Buffer.from(value).toString("base64")))
    )
    yield* HostDisk.use(failure, () => link(isByToken ? paths.tokenSocket : paths.socket(number), socket))
  }).pipe(orLost)
  const opened = yield* Deferred.make<void, LlmProxyError>()
  const ended = yield* Deferred.make<never, LlmProxyError>()

  const { counts, remove } = makeRemoval({ isByToken, place, relayScope, runId, socket, state })
  // nginx logs a call a moment after its end. Each forwarded call is one connection to the relay.
  const settledLog = Effect.gen(function* () {
    const { accepted } = (yield* counts) ?? { accepted: 0 }
    if (state.relay === undefined && (yield* Deferred.isDone(opened))) yield* Effect.sleep(settleStep)
    const read = yield* Effect.repeat(log.read, {
      until: ({ passedOn }) => passedOn >= accepted,
      schedule: Schedule.spaced(settleStep),
      times: settleStepsMax
    })
    return (yield* Deferred.isDone(ended)) ? AccessLog.withLost(read, accepted) : read
  })
  // Added before `opening` begins, which the scope ends first.
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      // Nothing is waited for before the run's calls are refused.
      yield* remove
      const { lastFailure } = (yield* counts) ?? {}
      if (lastFailure !== undefined) yield* Effect.logWarning(`the upstream failed: ${lastFailure}`)
      if (yield* Deferred.isDone(opened)) yield* Effect.ignore(settledLog)
    })
  )
  yield* opening.pipe(
    Effect.onExit((exit) => Deferred.done(opened, exit)),
    Effect.ignore,
    Effect.forkScoped
  )
  // A run whose call might not be logged is removed before its failure is reported.
  yield* Effect.raceFirst(
    nginx.failure,
    Effect.tapError(log.failure, () => remove)
  ).pipe(
    Effect.catchCause((cause) =>
      Cause.hasInterruptsOnly(cause) ? Effect.void : Deferred.failCause(ended, cause)
    ),
    Effect.forkScoped
  )
  return {
    audit,
    carried,
    settledLog,
    token: isByToken ? RunToken.sign(shared.tokenSecret, runId, expirySeconds) : undefined,
    ready: Effect.raceFirst(Deferred.await(opened), Deferred.await(ended)),
    failure: Deferred.await(ended)
  }
})

/** Makes a directory for a run that has none. */
const acquireOwn = (directory: string) =>
  Effect.acquireRelease(
    HostDisk.use(failure, async () => {
      await fs.mkdir(directory, { mode: 0o700 })
      return directory
    }),
    HostDisk.remove
  )
