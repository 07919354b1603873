/**
 * The port through which a sandbox reaches a model, without ever holding a key.
 *
 * The sandbox is given a socket and nothing else: who it is follows from which socket it speaks through, so there is
 * nothing to forge or to replay. The key meets the request on the host's side (`KeyInjection` in
 * `@cogni/sandbox-proxy`) and is forgotten when the scope closes.
 */
import { Context, Effect, Layer, Ref, type Scope } from "effect"
import type { Canary } from "./Canary.ts"
import type { Mount } from "./ContainerRuntime.ts"
import type { RunId } from "./RunId.ts"
import type { Evidence, Exhaustion, LlmTraffic } from "./RunResult.ts"
import {
  type ImageNotFound,
  ProxyFailed,
  type ContainerFailed,
  type RuntimeUnavailable
} from "./SandboxError.ts"
import type { CanaryPolicy, LlmAccess } from "./SandboxSpec.ts"

export type LlmProxyError = ProxyFailed | RuntimeUnavailable | ImageNotFound | ContainerFailed

/** Where the bridge inside the sandbox looks for the proxy. */
export const socketPath = "/llm-sock/llm.sock"

/** Where the agent looks for the model. */
export const baseUrl = "http://localhost:8080"

/** What a proxy can and cannot do, so that a caller never assumes more. */
export interface LlmProxyCapabilities {
  readonly name: string
  /** Reads and rebuilds request bodies, so that it can hold a run to its models and budgets, and see canaries. */
  readonly inspectsBodies: boolean
  /** Its sockets lie on this host, so that a loop of the host's can speak through one as an agent does. */
  readonly servesHost: boolean
  /** Names of the tools it could serve. */
  readonly tools: ReadonlyArray<string>
}

/** What a proxy tells of a run while it goes on. */
export type LlmObservation =
  | { readonly _tag: "ExfiltrationSuspected"; readonly evidence: Evidence }
  /** Once, for the first budget that does not come back by waiting. */
  | { readonly _tag: "BudgetExhausted"; readonly exhaustion: Exhaustion }

export interface LlmRequest {
  readonly runId: RunId
  readonly llm: LlmAccess
  readonly runtimeSecondsMax: number
  /** A directory of the host, of this run only, for the audit. Absent where nothing is kept. */
  readonly directory?: string | undefined
  /** What the agent may call besides its model; all of them among the proxy's. */
  readonly tools: ReadonlyArray<string>
  /** What must not go out. `stop` refuses the request that carries one; either way it is observed. */
  readonly canaries: { readonly policy: CanaryPolicy; readonly planted: ReadonlyArray<Canary> }
  readonly observe: (observation: LlmObservation) => Effect.Effect<void>
}

/** What one run is handed. */
export interface LlmEndpoint {
  readonly mounts: ReadonlyArray<Mount>
  /** Where its socket lies on this host, if it does. */
  readonly hostSocketPath?: string | undefined
  /** Settles when a connection to the socket is answered. */
  readonly ready: Effect.Effect<void, LlmProxyError>
  /** Never succeeds; fails when the proxy ends while the run still needs it. */
  readonly failure: Effect.Effect<never, LlmProxyError>
  /** What has gone through so far. */
  readonly traffic: Effect.Effect<LlmTraffic, LlmProxyError>
  /** Let nothing more through, and say what has: the last word. Asked again, it says the same. */
  readonly finish: Effect.Effect<LlmTraffic, LlmProxyError>
}

export class LlmProxy extends Context.Service<
  LlmProxy,
  {
    readonly capabilities: LlmProxyCapabilities
    /**
     * Open a run's own way out. Returns as soon as its mounts are known, and goes on starting until `ready`; closing
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
  /** What it tells of every run, once the run is ready. */
  readonly observations?: ReadonlyArray<LlmObservation> | undefined
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
        () => new ProxyFailed({ detail: "the socket is closed", remedy: "Ask while the run lives" })
      )
    )
    const traffic = Effect.as(stillOpen, {
      proxy: "memory",
      upstream: "memory",
      calls: [],
      callsTotal: 0,
      unreadableRows: 0,
      injectedHeaders: []
    })
    return {
      mounts: [
        { type: "volume", source: `memory-${request.runId}-socket`, target: "/llm-sock", readOnly: true }
      ],
      hostSocketPath: `/memory/${request.runId}/llm.sock`,
      ready: Effect.andThen(
        stillOpen,
        Effect.forEach(options.observations ?? [], request.observe, { discard: true })
      ),
      failure: Effect.never,
      traffic,
      finish: traffic
    } satisfies LlmEndpoint
  })
  return LlmProxy.of({
    capabilities: { name: "memory", inspectsBodies: true, servesHost: true, tools: [] },
    acquire
  })
})

/** A socket that leads nowhere: for programs in memory. */
export const layerMemory = (options?: MemoryProxyOptions): Layer.Layer<LlmProxy> =>
  Layer.effect(LlmProxy, makeMemory(options))
