/**
 * A proxy whose runs are in the ledger: around any other `LlmProxy`, so that every way to run an agent is covered.
 *
 *     acquire ─► the ledger opens the run ─► the proxy's socket … finish ─► its audit ─► the ledger settles the run
 *
 * A run that the ledger cannot open does not start. A run that it cannot settle stays open in it, and is settled from
 * its audit by the next recovery: every 10 minutes, and when the next process starts.
 */
import type { CallsOf } from "@cogni/sandbox-core/AuditedCall"
import {
  type LlmEndpoint,
  LlmProxy,
  type LlmProxyCapabilities,
  type LlmProxyError,
  type LlmRequest
} from "@cogni/sandbox-core/LlmProxy"
import type { LlmAccess } from "@cogni/sandbox-core/SandboxSpec"
import { ProxyFailed, StoreUnavailable } from "@cogni/sandbox-core/SandboxError"
import { Clock, Effect, Layer, Schedule, type Scope } from "effect"
import { Ledger } from "./Ledger.ts"
import * as LedgerRecovery from "./LedgerRecovery.ts"
import { keyOf, type LedgerRun } from "./LedgerRun.ts"

/** Time between two recoveries of a process, in seconds. */
export const recoverySeconds = 600

/** Seconds after its runtime limit after which a run whose process cannot be checked counts as over. */
const expiryGraceSeconds = 3600

export interface LedgerLlmProxyOptions {
  /** Name of the upstream, for the entries. Default: the one that the proxy knows, or the name of the proxy. */
  readonly upstream?: string | undefined
  /** Name of this machine, the same in every boot. */
  readonly host: string
  /** `ResourceLabels.formatOwner` of this process. */
  readonly owner: string
  /** Returns whether the process of a run is dead, or cannot be checked and the run has expired. */
  readonly isOrphaned: (run: LedgerRun) => boolean
  /** Reads the audits of runs: `AuditCalls.reader` of `@cogni/sandbox-proxy`. */
  readonly callsOf: CallsOf
}

/** Wraps a proxy. Closing the scope ends the recoveries. */
export const make = Effect.fnUntraced(function* (
  proxy: LlmProxy["Service"],
  options: LedgerLlmProxyOptions
): Effect.fn.Return<LlmProxy["Service"], never, Ledger | Scope.Scope> {
  const ledger = yield* Ledger
  const provided = Effect.provideService(Ledger, ledger)
  /** Runs of this process that have ended and could not be settled. */
  const unsettled = new Map<string, LedgerRecovery.EndedRun>()
  const recover = LedgerRecovery.recover({
    host: options.host,
    callsOf: options.callsOf,
    isOver: options.isOrphaned,
    ended: () => [...unsettled.values()]
  }).pipe(
    Effect.tap((settled) => Effect.sync(() => settled.forEach((run) => unsettled.delete(keyOf(run))))),
    Effect.catch((error) =>
      Effect.logWarning(`some runs are not settled in the ledger yet. ${error.message}`)
    ),
    Effect.repeat(Schedule.spaced(`${recoverySeconds} seconds`))
  )
  yield* Effect.forkScoped(provided(recover))

  /** Never fails: a run that cannot be settled now stays open. */
  const settle = (run: LedgerRun, traffic?: LedgerRecovery.ReportedTraffic) =>
    provided(LedgerRecovery.settle(run, options.callsOf, traffic)).pipe(
      Effect.asVoid,
      Effect.catch((error) =>
        Effect.andThen(
          Effect.sync(() => unsettled.set(keyOf(run), { run, traffic })),
          Effect.logWarning(
            `the cost of run ${run.runId} is kept ${run.directory === undefined ? "in memory" : "in its audit"} and settled later. ${error.message}`
          )
        )
      )
    )

  const acquire = Effect.fn("LedgerLlmProxy.acquire")(function* (
    request: LlmRequest
  ): Effect.fn.Return<LlmEndpoint, LlmProxyError, Scope.Scope> {
    const { llm } = request
    if (llm === undefined) return yield* proxy.acquire(request)
    const run = runOf({ ...request, llm }, options, {
      nowMillis: yield* Clock.currentTimeMillis,
      capabilities: proxy.capabilities
    })
    let settled = false
    let acquired = false
    const settleOnce = (traffic?: LedgerRecovery.ReportedTraffic) =>
      Effect.suspend(() => {
        if (settled) return Effect.void
        settled = true
        return settle(run, traffic)
      })
    yield* Effect.acquireRelease(
      // The ledger may have opened the run although its answer was lost. The next recovery settles it.
      Effect.tapError(opened(ledger, run), ({ _tag }) =>
        Effect.sync(() => {
          if (_tag === "StoreUnavailable") unsettled.set(keyOf(run), { run, traffic: noCalls })
        })
      ),
      () => settleOnce(acquired ? undefined : noCalls)
    )
    const endpoint = yield* proxy.acquire(request)
    acquired = true
    const finish = yield* Effect.cached(
      Effect.tap(endpoint.finish, (traffic) => Effect.uninterruptible(settleOnce(traffic)))
    )
    // Only the proxy knows the calls of a run without an audit, and only until it is closed.
    if (run.directory === undefined) yield* Effect.addFinalizer(() => Effect.ignore(finish))
    return { ...endpoint, finish }
  })

  return LlmProxy.of({ capabilities: proxy.capabilities, acquire })
})

/** Puts the runs of a proxy into the ledger. */
export const layer = <E, R>(
  proxy: Layer.Layer<LlmProxy, E, R>,
  options: LedgerLlmProxyOptions
): Layer.Layer<LlmProxy, E, R | Ledger> =>
  Layer.effect(
    LlmProxy,
    Effect.flatMap(LlmProxy, (inner) => make(inner, options))
  ).pipe(Layer.provide(proxy))

/** Traffic of a run whose proxy did not start. */
const noCalls: LedgerRecovery.ReportedTraffic = { calls: [], callsTotal: 0, unreadableRows: 0 }

const runOf = (
  request: LlmRequest & { readonly llm: LlmAccess },
  options: LedgerLlmProxyOptions,
  { capabilities, nowMillis }: { readonly nowMillis: number; readonly capabilities: LlmProxyCapabilities }
): LedgerRun => {
  const { directory, llm, runId, runtimeSecondsMax } = request
  const { agentId, attempt, billingAccountId, graphId, userId, virtualKeyId } = llm.identity
  const expiresMillis = nowMillis + (runtimeSecondsMax + expiryGraceSeconds) * 1000
  return {
    runId,
    attempt,
    billingAccountId,
    ...(userId === undefined ? {} : { userId }),
    ...(graphId === undefined ? {} : { graphId }),
    ...(agentId === undefined ? {} : { agentId }),
    ...(virtualKeyId === undefined ? {} : { virtualKeyId }),
    upstream: options.upstream ?? capabilities.upstream ?? capabilities.name,
    model: llm.model,
    host: options.host,
    owner: options.owner,
    openedAt: new Date(nowMillis).toISOString(),
    expiresAt: new Date(expiresMillis).toISOString(),
    ...(directory !== undefined && capabilities.inspectsBodies ? { directory } : {})
  }
}

/** Opens a run in the ledger, or explains why it does not start. */
const opened = (ledger: Ledger["Service"], run: LedgerRun): Effect.Effect<void, LlmProxyError> =>
  Effect.mapError(ledger.open(run), (error): LlmProxyError => {
    if (error._tag === "LedgerUnavailable") {
      const { detail, remedy } = error
      return new StoreUnavailable({ detail: `cannot enter the run into the ledger: it ${detail}`, remedy })
    }
    return error._tag === "LedgerRunInUse"
      ? new ProxyFailed({
          detail: `run ${run.runId}, attempt ${run.attempt}, is in the ledger already`,
          remedy: "Let the runner choose the run ID, or count `attempt` up"
        })
      : new ProxyFailed({
          detail: `the ledger refused the run: ${error.problems.join("; ")}`,
          remedy: "Correct the identity of the run"
        })
  })
