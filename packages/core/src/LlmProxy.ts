/**
 * The port through which a sandbox reaches a model without a key.
 *
 * The sandbox gets only a socket. The socket identifies the run, so there is no token to forge or replay. The host adds
 * the key to each request (`KeyInjection` in `@cogni/sandbox-proxy`) and forgets it when the scope closes.
 */
import { Clock, Context, Effect, Layer, type Redacted, Ref, type Scope } from "effect"
import type { Canary } from "./Canary.ts"
import type { Mount } from "./ContainerMount.ts"
import { type PackagePattern, registries } from "./PackagePattern.ts"
import type { RunId } from "./RunId.ts"
import type { LlmTraffic, LlmUsage } from "./RunFigures.ts"
import {
  type AccountBusy,
  type HostFailed,
  type ImageNotFound,
  type InsufficientCredits,
  type Misconfigured,
  ProxyFailed,
  type ContainerFailed,
  type RuntimeUnavailable,
  type StoreUnavailable
} from "./SandboxReason.ts"
import type { CanaryPolicy, LlmAccess } from "./SpecFields.ts"
import type { ToolRule } from "./ToolAccess.ts"
import { socketTarget } from "./internal/SocketPlace.ts"
import type { LlmProxyCapabilities, LlmObservation } from "./LlmObservation.ts"

/** `HostFailed` and `Misconfigured` are faults of the host's operator, which no retry corrects. */
export type LlmProxyError =
  | ProxyFailed
  | HostFailed
  | Misconfigured
  | StoreUnavailable
  | InsufficientCredits
  | AccountBusy
  | RuntimeUnavailable
  | ImageNotFound
  | ContainerFailed

export interface LlmRequest {
  readonly runId: RunId
  /** Absent: the sandbox has no model. It may still have packages. */
  readonly llm?: LlmAccess | undefined
  readonly runtimeSecondsMax: number
  /** A host directory of this run only, for the audit. Absent if nothing is stored. */
  readonly directory?: string | undefined
  /**
   * Mount of an empty host directory that the sandbox already has, for its socket. The proxy does not remove the
   * directory. Only for a proxy that `listensInMount`. Absent: the proxy makes one.
   */
  readonly socketMount?: Mount | undefined
  /** Names of the host tools that the agent may call. The proxy can serve all of them. */
  readonly tools: ReadonlyArray<string>
  /** Rules for these tools: see `ToolAccess.decide`. Absent: all of them are open. */
  readonly toolRules?: ReadonlyArray<ToolRule> | undefined
  /** Packages that the sandbox may install (default none). */
  readonly packages?: ReadonlyArray<PackagePattern> | undefined
  /** Secrets that must not leave the sandbox. `stop` refuses a request with one; `warn` only reports it. */
  readonly canaries: { readonly policy: CanaryPolicy; readonly planted: ReadonlyArray<Canary> }
  readonly observe: (observation: LlmObservation) => Effect.Effect<void>
  /**
   * Header `traceparent` of the run's span, which the proxy sends upstream with every call. So the upstream's spans join
   * the trace of the run. A header of that name from the agent is never passed on.
   */
  readonly traceparent?: string | undefined
  /** Limits of the account that pays, in addition to the budget of the run (default none). */
  readonly account?: LlmAccount | undefined
}

/** Returns the fields of a run that only a proxy that reads bodies can enforce. Any other proxy refuses the run. */
export const enforcedInBodies = ({
  canaries,
  llm
}: {
  readonly canaries: CanaryPolicy
  readonly llm: Pick<LlmAccess, "budget" | "models" | "unknownFields">
}): ReadonlyArray<string> => [
  ...(llm.budget === undefined ? [] : ["llm.budget"]),
  ...(Object.keys(llm.models).length === 0 ? [] : ["llm.models"]),
  ...(llm.unknownFields === "drop" ? [] : ["llm.unknownFields"]),
  ...(canaries === "off" ? [] : ["canaries"])
]

/** Limits of the account that pays, in addition to the run's own budget. */
export interface LlmAccount {
  /** True if the cost budget of the run is what was reserved for it, because the spec names none. */
  readonly reservesCost: boolean
  /** Memory of the account's `CallPace`, which all its runs in this process share. Absent: no limit. */
  readonly pace?: SharedArrayBuffer | undefined
}

/** A run before anything of it exists. */
interface LlmAdmission {
  readonly runId: RunId
  readonly llm: LlmAccess
  readonly runtimeSecondsMax: number
}

/**
 * Decides whether the account that pays for a run may start it. A proxy that has this also refuses, in `acquire`, a run
 * that was not admitted and may not start.
 */
export interface LlmAdmissions {
  /** Fails if the run could not start now. Reserves nothing. */
  readonly check: (admission: Omit<LlmAdmission, "runId">) => Effect.Effect<void, LlmProxyError>
  /** Reserves what the run may use. Closing the scope returns what it did not use. */
  readonly admit: (admission: LlmAdmission) => Effect.Effect<void, LlmProxyError, Scope.Scope>
}

/** One run's access to its model, and to packages. */
export interface LlmEndpoint {
  /** The socket inside the sandbox. A sandbox whose model the host calls only gets it for packages. */
  readonly mounts: ReadonlyArray<Mount>
  /** Path of its socket on this host, if it is on this host. */
  readonly hostSocketPath?: string | undefined
  /** Names the run, in place of an API key, if its socket does not. The sandbox gets it. Absent: any key will do. */
  readonly token?: Redacted.Redacted<string> | undefined
  /** Settles when the proxy answers a connection to the socket. */
  readonly ready: Effect.Effect<void, LlmProxyError>
  /** Never succeeds; fails when the proxy ends while the run still needs it. */
  readonly failure: Effect.Effect<never, LlmProxyError>
  /** The traffic so far. */
  readonly traffic: Effect.Effect<LlmTraffic, LlmProxyError>
  /** Stop all traffic and return the final figures. Idempotent. */
  readonly finish: Effect.Effect<LlmTraffic, LlmProxyError>
}

export class LlmProxy extends Context.Service<
  LlmProxy,
  {
    readonly capabilities: LlmProxyCapabilities
    /** Asked before anything of a run with a model is made. Absent: every run may start. */
    readonly admissions?: LlmAdmissions | undefined
    /**
     * Open the socket of a run. Returns as soon as its mounts are known, while the proxy starts until `ready`. Closing
     * the scope closes the socket and every stream on it.
     */
    readonly acquire: (request: LlmRequest) => Effect.Effect<LlmEndpoint, LlmProxyError, Scope.Scope>
  }
>()("@cogni/sandbox-core/LlmProxy") {}

/** Refuses every run that asks for a model. */
export const layerNoop: Layer.Layer<LlmProxy> = Layer.succeed(LlmProxy, {
  capabilities: { name: "none", inspectsBodies: false, servesHost: false, tools: [] },
  acquire: () =>
    Effect.fail(
      new ProxyFailed({
        detail: "no proxy is configured",
        remedy: "Provide a LlmProxy layer, or leave llm out of the spec"
      })
    )
})

export interface MemoryProxyOptions {
  /** Observations that the proxy reports for every run, once it is ready. */
  readonly observations?: ReadonlyArray<LlmObservation> | undefined
  /** Model calls of every run, in order: their usage adds up to the run's. Default: no call, and no usage. */
  readonly calls?: ReadonlyArray<MemoryCall> | undefined
  /** Decides which runs may start. Default: all. */
  readonly admissions?: LlmAdmissions | undefined
}

/** A model call that a proxy in memory reports. No model is asked. */
interface MemoryCall extends Partial<LlmUsage> {
  /** The model's name at the upstream. Default: the one that the run asks for. */
  readonly model?: string | undefined
  /** HTTP status of the answer (default 200). */
  readonly status?: number | undefined
  /** Seconds that the call took (default 0). */
  readonly seconds?: number | undefined
}

/** Makes the traffic of a run from scripted calls, as a gateway reports it. */
const trafficOf = (
  { llm, runId }: Pick<LlmRequest, "llm" | "runId">,
  calls: ReadonlyArray<MemoryCall> | undefined,
  at: string
): LlmTraffic => {
  const traffic = { proxy: "memory", upstream: "memory", unreadableRows: 0, injectedHeaders: [] }
  if (calls === undefined || llm === undefined) return { ...traffic, calls: [], callsTotal: 0 }
  const sum = (name: "inputTokens" | "outputTokens" | "cacheReadTokens" | "cacheWriteTokens") =>
    calls.reduce((total, call) => total + (call[name] ?? 0), 0)
  const costs = calls.flatMap(({ costUsd }) => costUsd ?? [])
  return {
    ...traffic,
    calls: calls.map(({ model = llm.model, seconds = 0, status = 200, ...usage }, index) => ({
      at,
      requestId: `${runId}-${index + 1}`,
      callId: `${runId}-${index + 1}`,
      method: "POST",
      path: "/v1/chat/completions",
      status,
      requestBytes: 0,
      responseBytes: 0,
      durationMs: seconds * 1000,
      completed: true,
      outcome: "completed",
      model,
      usage: { inputTokens: 0, outputTokens: 0, ...usage }
    })),
    callsTotal: calls.length,
    usage: {
      calls: calls.length,
      inputTokens: sum("inputTokens"),
      outputTokens: sum("outputTokens"),
      cacheReadTokens: sum("cacheReadTokens"),
      cacheWriteTokens: sum("cacheWriteTokens"),
      ...(costs.length === 0 ? {} : { costUsd: costs.reduce((total, cost) => total + cost, 0) }),
      callsWithoutUsage: 0,
      callsWithoutCost: calls.length - costs.length
    }
  }
}

export const makeMemory = Effect.fnUntraced(function* (options: MemoryProxyOptions = {}) {
  const open = yield* Ref.make<ReadonlySet<RunId>>(new Set())
  const acquire = Effect.fn("LlmProxy.acquire")(function* (request: LlmRequest) {
    yield* Effect.acquireRelease(
      Ref.update(open, (all) => new Set(all).add(request.runId)),
      () => Ref.update(open, (all) => new Set([...all].filter((runId) => runId !== request.runId)))
    )
    const stillOpen = Ref.get(open).pipe(
      Effect.filterOrFail(
        (all) => all.has(request.runId),
        () => new ProxyFailed({ detail: "the socket is closed", remedy: "Ask before the run ends" })
      )
    )
    const at = new Date(yield* Clock.currentTimeMillis).toISOString()
    // Without a model, there is no budget to exhaust.
    const observed = (options.observations ?? []).filter(
      ({ _tag }) => request.llm !== undefined || (_tag !== "BudgetExhausted" && _tag !== "SubagentShareSpent")
    )
    const traffic = Effect.as(stillOpen, trafficOf(request, options.calls, at))
    return {
      mounts: [
        request.socketMount ?? {
          type: "volume",
          source: `memory-${request.runId}-socket`,
          target: socketTarget,
          readOnly: true
        }
      ],
      hostSocketPath: `${request.socketMount?.source ?? `/memory/${request.runId}`}/llm.sock`,
      ready: Effect.andThen(stillOpen, Effect.forEach(observed, request.observe, { discard: true })),
      failure: Effect.never,
      traffic,
      finish: traffic
    } satisfies LlmEndpoint
  })
  return LlmProxy.of({
    capabilities: {
      name: "memory",
      inspectsBodies: true,
      servesHost: true,
      tools: [],
      packages: registries,
      listensInMount: true
    },
    ...(options.admissions === undefined ? {} : { admissions: options.admissions }),
    acquire
  })
})

/** A proxy in memory whose socket connects to nothing. It reports the calls of its options: for programs in memory. */
export const layerMemory = (options?: MemoryProxyOptions): Layer.Layer<LlmProxy> =>
  Layer.effect(LlmProxy, makeMemory(options))
