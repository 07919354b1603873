/**
 * Model egress for many runs: one gateway in the host process, with a socket for each run. Separate threads (shards)
 * serve the sockets, which isolates runs from each other.
 *
 *     sandbox ── /llm-sock/llm.sock ──► gateway: route, body, budget, canaries, audit ── key, identity ──► upstream
 *
 * The socket identifies the run, so there is no token to forge. Upstream requests are rebuilt from allowlists, never
 * forwarded; the audit lists the dropped fields. Closing the run closes its socket and every stream on it. A carrier
 * brings the socket into the sandbox: a host directory if the engine can mount one, a gateway container otherwise.
 * The policy code is the same for both.
 */
import { waitSecondsDefault } from "@cogni/sandbox-core/Approval"
import { Approvals } from "@cogni/sandbox-core/Approvals"
import { Deferred, Effect, Layer, Record, Redacted, Result, type Scope, Struct } from "effect"
import { randomBytes } from "node:crypto"
import * as os from "node:os"
import * as path from "node:path"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmEndpoint, LlmProxy, type LlmProxyError, type LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import { named } from "@cogni/sandbox-core/Remedy"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmAccess, LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import { Misconfigured, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import type { AuditEntry } from "./AuditEntry.ts"
import * as AuditChain from "./internal/audit/AuditChain.ts"
import * as ContainerCarrier from "./internal/carrier/ContainerCarrier.ts"
import * as DescriptorLimit from "./internal/shards/DescriptorLimit.ts"
import * as HostDirectoryCarrier from "./internal/carrier/HostDirectoryCarrier.ts"
import * as KeyDesk from "./internal/shards/KeyDesk.ts"
import * as GatewayLimits from "./internal/shards/GatewayLimits.ts"
import * as HostDisk from "./internal/HostDisk.ts"
import * as LimitCheck from "./internal/LimitCheck.ts"
import * as MirrorConfig from "./internal/packages/MirrorConfig.ts"
import * as ServedRun from "./internal/shards/ServedRun.ts"
import type { RunStart, RunTraffic, ShardConfig } from "./internal/shards/ShardMessage.ts"
import * as ShardPool from "./internal/shards/ShardPool.ts"
import * as UpstreamOptions from "./internal/UpstreamOptions.ts"
import { socketName } from "./internal/carrier/SocketCarrier.ts"
import type * as EgressProxy from "./EgressProxy.ts"
import * as KeyInjection from "./KeyInjection.ts"
import * as OwnKey from "./internal/keys/OwnKey.ts"
import * as RunKeyLease from "./internal/keys/RunKeyLease.ts"
import type { PackageMirrorOptions } from "./PackageMirror.ts"
import type { Prices } from "./Prices.ts"
import type { RunKeys } from "./RunKeys.ts"
import type * as Upstream from "./Upstream.ts"
import * as UpstreamProfile from "./UpstreamProfile.ts"

export interface GatewayLlmProxyOptions {
  /** URL at which the host reaches the model API, with or without the profile's prefix (`/v1`). */
  readonly url: string
  /**
   * The key, an effect that returns the current one, or a signer of each call. Effects and signers run in the host's
   * main thread.
   */
  readonly key: KeyDesk.KeySource
  /** How long a key from an effect is used until it is asked for again, in seconds (default 60). */
  readonly keySecondsMax?: number | undefined
  /** How long an effect or a signer may take, in seconds (default 10). */
  readonly keyWaitSecondsMax?: number | undefined
  /**
   * Gives each run a key of its own, from LiteLLM. The gateway's key then never reaches the threads that serve runs.
   * With `fallback: "masterKey"`, a run whose key cannot be created uses the gateway's key. By default it is refused.
   */
  readonly runKeys?:
    | { readonly keys: RunKeys["Service"]; readonly fallback?: "none" | "masterKey" | undefined }
    | undefined
  /**
   * Kind of the upstream: its paths, its key header, and what it learns about who pays. Only `litellm` gets the billing
   * identity. Default: the profile of a known public API, otherwise `litellm`.
   */
  readonly profile?: UpstreamProfile.Name | UpstreamProfile.Choice | undefined
  /** Header from which the upstream reads the key (default: the profile's). */
  readonly keyHeader?: UpstreamProfile.KeyHeader | undefined
  /**
   * Secret of this deployment, at least 16 bytes. With it, an upstream other than LiteLLM gets a pseudonym of the
   * billing account: an HMAC, in the field that its API has for end users. Absent: it learns nothing about the account.
   */
  readonly identitySecret?: Redacted.Redacted<string> | undefined
  /** Carrier of the sockets. `auto` (default): a host directory if the engine can mount one, else a container. */
  readonly carrier?: "auto" | "directory" | "container" | undefined
  /** Gateway image, built from `images/gateway`. The container carrier requires it. */
  readonly image?: string | undefined
  /** Tools that the host offers to agents. A run gets those that its spec names. */
  readonly tools?: ReadonlyArray<Tool> | undefined
  /**
   * How long a call of a tool waits for an approval, in seconds (default 180, at most 3600). Then it is denied. Provide
   * `Approvals` of `@cogni/sandbox-core` to set who approves: without it, such calls are refused.
   */
  readonly approvalWaitSecondsMax?: number | undefined
  /** Registries from which sandboxes may install the packages that their specs name (default: none). */
  readonly packages?: PackageMirrorOptions | undefined
  /** Model prices, for an upstream that does not report the cost with every answer. */
  readonly prices?: Prices | undefined
  /** `full` also keeps requests and answers in the audit, without secrets of host and run (default `digest`). */
  readonly auditBodies?: "digest" | "full" | undefined
  readonly requestBytesMax?: number | undefined
  /** Maximum output tokens of one call, also set in a call that names no maximum. */
  readonly outputTokensPerCallMax?: number | undefined
  /** Concurrent calls of one run, unless its budget sets them. */
  readonly concurrentCallsMax?: number | undefined
  /** Requests per second of one run. Every request counts, including health checks and refused ones. */
  readonly requestsPerSecondMax?: number | undefined
  /** New connections per second of one run (default: `requestsPerSecondMax`). */
  readonly connectionsPerSecondMax?: number | undefined
  /** Open connections of one run. */
  readonly connectionsMax?: number | undefined
  /** Open connections of all runs (default: what the file descriptor limit allows). Half is divided among the runs. */
  readonly connectionsTotalMax?: number | undefined
  /** Bytes of memory for the requests of all runs together. Half is divided among the runs. */
  readonly heldBytesMax?: number | undefined
  /** Average share of one processor that the requests of one run may use (1: a whole processor). */
  readonly processorShareMax?: number | undefined
  /** A request body that arrives slower than `bodyBytesPerSecondMin` for this many seconds is dropped. */
  readonly bodyProgressSecondsMax?: number | undefined
  readonly bodyBytesPerSecondMin?: number | undefined
  /** Maximum number of shards (default: one per processor, at least 2 and at most 16). */
  readonly shardsMax?: number | undefined
  /** Heap size of one shard, in bytes. */
  readonly shardHeapBytesMax?: number | undefined
  /** A shard that sends no heartbeat for this many seconds is ended, and its runs fail. */
  readonly shardSilentSecondsMax?: number | undefined
  /** Bytes of one answer that are still read after its agent has gone, to learn its usage (default 8 MiB). */
  readonly drainBytesMax?: number | undefined
  /** How long one answer is still read after its agent has gone, in seconds (default 30). 0: its call ends at once. */
  readonly drainSecondsMax?: number | undefined
  /** How long the end of a run waits for such answers, in seconds (default 1, at most 20). */
  readonly endDrainSecondsMax?: number | undefined
  readonly auditBytesMax?: number | undefined
  readonly connectSecondsMax?: number | undefined
  readonly headerSecondsMax?: number | undefined
  readonly requestSecondsMax?: number | undefined
  /** HTTP proxy between this host and the upstream (default: none). */
  readonly egressProxy?: EgressProxy.EgressProxy | undefined
  /** PEM certificates to trust for an https upstream, instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

export const make = Effect.fnUntraced(function* (options: GatewayLlmProxyOptions) {
  const tools = options.tools ?? []
  const packages =
    options.packages === undefined
      ? undefined
      : yield* Effect.fromResult(MirrorConfig.resolve(options.packages, options.egressProxy))
  const names = {
    url: named("GatewayLlmProxy.url"),
    profile: named("GatewayLlmProxy.profile"),
    egressProxy: named("GatewayLlmProxy.egressProxy")
  }
  const resolved = yield* Effect.fromResult(
    UpstreamOptions.resolve({ type: "host", url: options.url }, options, names)
  )
  const { address, profile } = resolved
  const capabilities = {
    name: "gateway",
    upstream: profile.name,
    inspectsBodies: true,
    servesHost: true,
    tools: tools.map(({ name }) => name),
    packages: MirrorConfig.registriesOf(packages),
    // With `auto`, only an engine that shares the host's files has waiting sandboxes, and it gets directories.
    listensInMount: options.carrier !== "container"
  }
  yield* Effect.fromResult(LimitCheck.check(named("GatewayLlmProxy"), GatewayLimits.options, options))
  yield* Effect.fromResult(checkPseudonym(options, profile))
  yield* Effect.fromResult(checkRunKeys(options, profile))
  const proxyUrl = yield* Effect.fromResult(UpstreamOptions.egressProxy(options.egressProxy, address, names))
  if (Redacted.isRedacted(options.key))
    yield* Effect.fromResult(UpstreamOptions.checkKey(options.key, named("GatewayLlmProxy.key")))
  const payerOf = makePayer(options, profile)
  const carrier = yield* carrierOf(options)
  const approvals = {
    approvals: yield* Approvals,
    waitSecondsMax: options.approvalWaitSecondsMax ?? waitSecondsDefault
  }
  const desk = KeyDesk.make(options.key, {
    keySecondsMax: options.keySecondsMax ?? GatewayLimits.defaults.keySecondsMax,
    keyWaitSecondsMax: options.keyWaitSecondsMax ?? GatewayLimits.defaults.keyWaitSecondsMax
  })
  const { runKeys } = options
  // Made before the shards, so that closing the gateway deletes the keys after it has ended their last calls.
  const ownKeys =
    runKeys === undefined
      ? undefined
      : {
          leases: yield* RunKeyLease.make(runKeys.keys),
          fallback: runKeys.fallback ?? "none",
          desk,
          profile
        }
  const pool = yield* ShardPool.make(configOf(options, { ...resolved, desk, packages, proxyUrl }))

  const acquire = Effect.fn("LlmProxy.acquire")(function* (
    request: LlmRequest
  ): Effect.fn.Return<LlmEndpoint, LlmProxyError, Scope.Scope> {
    const { llm, packages = [], runId } = request
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.runId, runId)
    if (llm !== undefined) yield* usable(ownKeys === undefined ? desk : undefined, profile, { llm, runId })
    const own =
      llm === undefined || ownKeys === undefined ? undefined : yield* OwnKey.open(ownKeys, request, llm)
    // A loop on this host connects to the socket directly, so a directory is enough.
    const isHost = llm?.caller === "host"
    const carries = isHost ? HostDirectoryCarrier.make : yield* carrier
    // A sandbox that waited for its run has the directory of its socket already. No host-side loop may use that one.
    const carried = yield* carries.acquire(request.directory, isHost ? undefined : request.socketMount)
    // The sandbox of such a loop has a socket of its own, which does not lead to the model.
    const forPackages =
      isHost && packages.length > 0
        ? yield* (yield* carrier).acquire(undefined, request.socketMount)
        : undefined
    const run = yield* ServedRun.make({
      pool,
      request,
      tools,
      approvals,
      desk: own?.desk ?? desk,
      start: {
        runId,
        hasOwnKey: own !== undefined,
        ...(llm === undefined ? {} : { llm }),
        runtimeSecondsMax: request.runtimeSecondsMax,
        payer: llm === undefined ? { cacheScope: "" } : payerOf(llm.identity),
        ...(request.account === undefined ? {} : { account: request.account }),
        packages,
        socketPath: path.join(carried.directory, socketName),
        ...(forPackages === undefined
          ? {}
          : { packageSocketPath: path.join(forPackages.directory, socketName) }),
        auditParent:
          request.directory ??
          (yield* HostDisk.temporaryDirectory("the run's audit cannot be created", "cogni-sandbox-audit-")),
        opened: opened(request, address, carries.name),
        canaries: request.canaries,
        traceparent: request.traceparent
      }
    })
    const proxy = `gateway (${carries.name})`
    const trafficOf = Effect.map((traffic: RunTraffic) =>
      toTraffic(resolved, request, traffic, { proxy, isSigned: desk.kind === "signed" })
    )
    const finish = yield* Effect.cached(trafficOf(run.finish))
    const ready = yield* Deferred.make<void, LlmProxyError>()
    const opening = forPackages === undefined ? carried.open : Effect.andThen(carried.open, forPackages.open)
    const keyed = own === undefined ? Effect.void : Effect.flatMap(own.ready, run.keyed)
    yield* Effect.all([Effect.andThen(run.listening, opening), keyed], {
      concurrency: 2,
      discard: true
    }).pipe(Deferred.into(ready), Effect.forkScoped)
    yield* Effect.addFinalizer(() => Effect.ignore(finish))
    return {
      mounts: (forPackages ?? carried).mounts,
      hostSocketPath: carried.hostSocketPath,
      ready: Deferred.await(ready),
      failure: Effect.raceAllFirst([
        carried.failure,
        run.failure,
        ...(forPackages === undefined ? [] : [forPackages.failure])
      ]),
      traffic: trafficOf(run.traffic),
      finish
    }
  })

  return yield* UsageObserver.observed(LlmProxy.of({ capabilities, acquire }))
})

export const layer = (
  options: GatewayLlmProxyOptions
): Layer.Layer<LlmProxy, Misconfigured, ContainerRuntime | UsageObserver.UsageObserver> =>
  Layer.effect(LlmProxy, make(options))

type PackageGatewayOptions = Pick<
  GatewayLlmProxyOptions,
  "carrier" | "certificateAuthorities" | "egressProxy" | "image"
> & { readonly packages: PackageMirrorOptions }

/** A gateway without a model, which serves only packages. A spec with `llm` is refused. */
export const layerPackages = (
  options: PackageGatewayOptions
): Layer.Layer<LlmProxy, Misconfigured, ContainerRuntime> =>
  Layer.effect(
    LlmProxy,
    Effect.map(
      // An upstream that is never asked: no run of this gateway has a model.
      make({ ...options, url: "http://127.0.0.1:1", key: Redacted.make("none") }),
      ({ acquire, capabilities }) =>
        LlmProxy.of({
          capabilities: { ...capabilities, name: "package gateway", servesModel: false },
          acquire: (request) => (request.llm === undefined ? acquire(request) : Effect.fail(withoutModel))
        })
    )
  ).pipe(Layer.provide(UsageObserver.layerNone))

const withoutModel = new ProxyFailed({
  detail: "no model is configured",
  remedy: "Provide a gateway with an upstream, or leave llm out of the spec"
})

/** One shard per processor: each takes about 50 MB, and more cannot work at once. At least two, to isolate runs. */
const shardsDefault = () => Math.min(GatewayLimits.defaults.shardsMax, Math.max(2, os.availableParallelism()))

/** Chooses the carrier. The runtime finds out with the first run whether the engine shares the host's files. */
const carrierOf = Effect.fnUntraced(function* ({ carrier = "auto", image }: GatewayLlmProxyOptions) {
  const runtime = yield* ContainerRuntime
  const inContainer = yield* ContainerCarrier.make({ image, runtime })
  const isShared = carrier === "auto" ? runtime.sharesHost : Effect.succeed(carrier === "directory")
  return Effect.map(isShared, (shared) => (shared ? HostDirectoryCarrier.make : inContainer))
})

/** Checks that a secret for pseudonyms fits the profile. */
const checkPseudonym = (
  { identitySecret }: GatewayLlmProxyOptions,
  { endUserFields, name }: UpstreamProfile.UpstreamProfile
): Result.Result<void, Misconfigured> => {
  const refuse = (detail: string, remedy: string) =>
    Result.fail(new Misconfigured({ option: named("GatewayLlmProxy.profile"), detail, remedy }))
  if (identitySecret === undefined) return Result.succeed(undefined)
  if (name === "litellm")
    return refuse(
      "is litellm, which bills by the account itself and not by a pseudonym",
      "Leave the secret for pseudonyms out, or choose the profile of the upstream"
    )
  if (Object.keys(endUserFields).length === 0)
    return refuse(
      `is ${name}, whose API has no field for a pseudonym of the account`,
      "Leave the secret for pseudonyms out"
    )
  return KeyInjection.isPseudonymSecret(identitySecret)
    ? Result.succeed(undefined)
    : refuse(
        `comes with a secret for pseudonyms of less than ${KeyInjection.pseudonymSecretBytesMin} bytes`,
        "Use a random secret, such as the output of: openssl rand -hex 32"
      )
}

/** Checks that the upstream can issue keys. */
const checkRunKeys = (
  { key, runKeys }: GatewayLlmProxyOptions,
  { name }: UpstreamProfile.UpstreamProfile
): Result.Result<void, Misconfigured> => {
  if (runKeys === undefined) return Result.succeed(undefined)
  const refuse = (detail: string, remedy: string) =>
    Result.fail(new Misconfigured({ option: named("GatewayLlmProxy.runKeys"), detail, remedy }))
  if (name !== "litellm")
    return refuse(`is set, and the upstream's profile is ${name}`, "Leave it out: only LiteLLM issues keys")
  return Redacted.isRedacted(key) || Effect.isEffect(key)
    ? Result.succeed(undefined)
    : refuse("is set, and the key is a signer", "Leave it out, or give a key")
}

/** Returns what the upstream learns about who pays. Only LiteLLM gets the account itself. */
const makePayer = (
  { identitySecret }: GatewayLlmProxyOptions,
  { name }: UpstreamProfile.UpstreamProfile
): ((identity: LlmIdentity) => RunStart["payer"]) => {
  // Without a secret of the deployment, cache keys are bound by one of this gateway.
  const cacheSecret = identitySecret ?? Redacted.make(randomBytes(32).toString("hex"))
  return ({ billingAccountId }) =>
    name === "litellm"
      ? { endUser: billingAccountId, cacheScope: billingAccountId }
      : {
          ...(identitySecret === undefined
            ? {}
            : { endUser: KeyInjection.pseudonym(identitySecret, "end-user", billingAccountId) }),
          cacheScope: KeyInjection.pseudonym(cacheSecret, "cache", billingAccountId)
        }
}

interface Resolved extends Upstream.ResolvedUpstream {
  readonly desk: KeyDesk.KeyDesk
  readonly packages: MirrorConfig.MirrorConfig | undefined
  readonly proxyUrl: string | undefined
}

const configOf = (
  options: GatewayLlmProxyOptions,
  { address, desk, packages, profile, proxyUrl }: Resolved
): ShardConfig => {
  const limits = Record.map(GatewayLimits.defaults, (value: number, name) => options[name] ?? value)
  return {
    ...limits,
    shardsMax: options.shardsMax ?? shardsDefault(),
    address,
    proxyUrl,
    keyKind: desk.kind,
    // With keys of runs, no thread gets the gateway's own key in advance.
    key:
      desk.fixed === undefined || options.runKeys !== undefined
        ? undefined
        : KeyInjection.handedOver(desk.fixed),
    profile,
    certificateAuthorities: options.certificateAuthorities,
    prices: options.prices,
    ...(packages === undefined ? {} : { packages }),
    auditBodies: options.auditBodies ?? "digest",
    outputTokensPerCallMax: options.outputTokensPerCallMax,
    connectionsPerSecondMax: options.connectionsPerSecondMax ?? limits.requestsPerSecondMax,
    connectionsTotalMax: options.connectionsTotalMax ?? DescriptorLimit.connectionsMax()
  }
}

/** Validates the run, and gets its first key unless it has its own, before anything is started. */
const usable = Effect.fnUntraced(function* (
  desk: KeyDesk.KeyDesk | undefined,
  profile: UpstreamProfile.UpstreamProfile,
  { llm, runId }: { readonly llm: LlmAccess; readonly runId: RunId }
) {
  const models = [llm.model, ...Object.values(llm.models)]
  const unusable = UpstreamProfile.namesModel(profile)
    ? models.find((model) => !UpstreamProfile.isPathModel(model))
    : undefined
  if (unusable !== undefined)
    return yield* new Misconfigured({
      option: named("GatewayLlmProxy.profile"),
      detail: `puts the model into the path, and ${JSON.stringify(unusable)} cannot be part of one`,
      remedy: "Name the deployment, with letters, digits and . _ - only"
    })
  const option = named("GatewayLlmProxy.key")
  const current = desk === undefined ? Effect.succeed(undefined) : desk.current
  const upstreamKey = yield* Effect.mapError(current, ({ detail, isRetryable, remedy }) =>
    isRetryable
      ? new ProxyFailed({ detail: `the upstream's key is not available: ${detail}`, remedy })
      : new Misconfigured({ option, detail: `is not available: ${detail}`, remedy })
  )
  const { identity } = llm
  yield* Effect.fromResult(
    UpstreamOptions.headers({ profile, upstreamKey, identity, runId, client: [] }, option)
  )
})

const opened = (
  { canaries, llm, packages = [], runId, toolRules, tools }: LlmRequest,
  address: Upstream.Address,
  carrier: string
): AuditEntry => ({
  type: "run.opened",
  runId,
  proxy: "gateway",
  carrier,
  upstream: llm === undefined ? "none" : address.display,
  models: llm === undefined ? [] : Object.keys({ [llm.model]: llm.model, ...llm.models }),
  ...(llm === undefined ? {} : { identity: llm.identity }),
  ...(llm?.budget === undefined ? {} : { budget: llm.budget }),
  tools,
  ...(toolRules === undefined ? {} : { toolRules }),
  ...(packages.length === 0 ? {} : { packages }),
  canaries: canaries.policy
})

const toTraffic = (
  { address, profile }: Upstream.ResolvedUpstream,
  { directory, llm, packages = [], tools, traceparent }: LlmRequest,
  { exhausted, packagesTotal = 0, subagentsExhausted, toolCallsTotal, ...traffic }: RunTraffic,
  { isSigned, proxy }: { readonly proxy: string; readonly isSigned: boolean }
): LlmTraffic => ({
  proxy,
  upstream: llm === undefined ? "none" : address.display,
  ...Struct.pick(traffic, ["auditHead", "calls", "callsTotal", "usage"]),
  unreadableRows: 0,
  injectedHeaders:
    llm === undefined
      ? []
      : [
          ...KeyInjection.injectedHeaderNames(profile, isSigned),
          ...(profile.callIdHeader === undefined ? [] : [profile.callIdHeader]),
          ...(traceparent === undefined ? [] : ["traceparent"])
        ],
  ...(directory === undefined ? {} : { auditPath: path.join(directory, AuditChain.relativePath) }),
  ...(exhausted === undefined ? {} : { exhausted }),
  ...(subagentsExhausted === undefined ? {} : { subagentsExhausted }),
  ...(tools.length === 0 ? {} : { toolCallsTotal }),
  ...(packages.length === 0 ? {} : { packagesTotal })
})
