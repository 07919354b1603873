/**
 * A proxy whose runs are in the ledger: around any other `LlmProxy`, so that every way to run an agent is covered.
 *
 *     acquire ─► the ledger opens the run ─► the proxy's socket … finish ─► its audit ─► the ledger settles the run
 *
 * A run that the ledger cannot open does not start. A run that it cannot settle stays open in it, and is settled from
 * its audit by the next recovery: every 10 minutes, and when the next process starts.
 *
 * With limits of accounts, a run is admitted first: what it may spend is reserved before anything of it is made, and
 * returned after the ledger has settled it.
 */
import type { CallsOf } from "@cogni/sandbox-core/AuditedCall"
import {
  type LlmAdmissions,
  type LlmEndpoint,
  LlmProxy,
  type LlmProxyError,
  type LlmRequest
} from "@cogni/sandbox-core/LlmProxy"
import { type LlmProxyCapabilities } from "@cogni/sandbox-core/LlmObservation"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import { named } from "@cogni/sandbox-core/Remedy"
import { Misconfigured, ProxyFailed, StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Clock, Effect, Layer, Option, Schedule, type Scope, Semaphore } from "effect"
import * as AccountAdmission from "./AccountAdmission.ts"
import type { AccountReservations } from "./AccountReservations.ts"
import { Ledger } from "./Ledger.ts"
import * as LedgerRecovery from "./LedgerRecovery.ts"
import { keyOf, type LedgerRun, type RunKey } from "./LedgerRun.ts"

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

/** Seconds from the end of a recovery because an account had too little left to the next such one. */
const refusedRecoverySeconds = 10

/** How long a run that is refused waits for a recovery, in seconds. */
const refusedWaitSeconds = 10

/** Runs that such a recovery settles at most. The regular one settles the others. */
const refusedRunsMax = 100

/** Wraps a proxy. `accounts` admits its runs (default: all may start). Closing the scope ends the recoveries. */
export const make = Effect.fnUntraced(function* (
  proxy: LlmProxy["Service"],
  options: LedgerLlmProxyOptions,
  accounts?: AccountAdmission.AccountAdmission
): Effect.fn.Return<LlmProxy["Service"], never, Ledger | Scope.Scope> {
  const ledger = yield* Ledger
  const provided = Effect.provideService(Ledger, ledger)
  /** Runs of this process that have ended and could not be settled. */
  const unsettled = new Map<string, LedgerRecovery.EndedRun>()
  const oneAtATime = (yield* Semaphore.make(1)).withPermits(1)
  /** Recoveries that have ended. */
  let recoveriesTotal = 0
  /** Settles the runs that are over: all of this host, or those of one account that is refused a run. */
  const recover = (billingAccountId?: string) => {
    const isOf = (run: LedgerRun) =>
      billingAccountId === undefined || run.billingAccountId === billingAccountId
    return LedgerRecovery.recover({
      host: options.host,
      callsOf: options.callsOf,
      isOver: (run) => isOf(run) && options.isOrphaned(run),
      ended: () => [...unsettled.values()].filter(({ run }) => isOf(run)),
      runsMax: billingAccountId === undefined ? undefined : refusedRunsMax
    }).pipe(
      Effect.tap((settled) => Effect.sync(() => settled.forEach((run) => unsettled.delete(keyOf(run))))),
      Effect.catch((error) =>
        Effect.as(Effect.logWarning(`some runs are not settled in the ledger yet. ${error.message}`), [])
      ),
      Effect.catchDefect((defect) =>
        Effect.as(
          Effect.logError(
            `some runs are not settled in the ledger yet, because of a fault: ${String(defect)}`
          ),
          []
        )
      ),
      Effect.ensuring(Effect.sync(() => (recoveriesTotal += 1))),
      provided
    )
  }
  yield* Effect.forkScoped(
    Effect.repeat(oneAtATime(recover()), Schedule.spaced(`${recoverySeconds} seconds`))
  )

  let recoveredMillis = Number.NEGATIVE_INFINITY
  /** Asks again after the runs of dead processes of this host are settled: they may hold what the account lacks. */
  const recovering = <A, R>(
    question: Effect.Effect<A, LlmProxyError, R>
  ): Effect.Effect<A, LlmProxyError, R> =>
    Effect.catchTag(question, ["AccountBusy", "InsufficientCredits"], (refusal) =>
      Effect.gen(function* () {
        // Without a time to try again, nothing that another run holds would help.
        if (refusal.retrySeconds === undefined) return yield* refusal
        const before = recoveriesTotal
        const helps = yield* oneAtATime(
          Effect.gen(function* () {
            // The one that it waited for.
            if (recoveriesTotal > before) return true
            const nowMillis = yield* Clock.currentTimeMillis
            if (nowMillis - recoveredMillis < refusedRecoverySeconds * 1000) return false
            const ended = Effect.map(Clock.currentTimeMillis, (millis) => (recoveredMillis = millis))
            return (yield* Effect.ensuring(recover(refusal.billingAccountId), ended)).length > 0
          })
        ).pipe(Effect.timeoutOption(`${refusedWaitSeconds} seconds`))
        return Option.getOrElse(helps, () => false) ? yield* question : yield* refusal
      })
    )
  /** Terms of the runs that were admitted and have not ended. */
  const admitted = new Map<string, AccountAdmission.AccountTerms>()
  const admit = Effect.fnUntraced(function* (
    run: RunKey,
    llm: LlmAccess
  ): Effect.fn.Return<AccountAdmission.AccountTerms, LlmProxyError, Scope.Scope> {
    if (accounts === undefined) return {}
    if (!proxy.capabilities.inspectsBodies) return yield* unread(proxy.capabilities)
    return yield* recovering(accounts.admit(run, llm))
  })

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
    const key = { runId: request.runId, attempt: llm.identity.attempt }
    // A run that was not admitted before, such as one without a sandbox, is admitted now.
    const terms = admitted.get(keyOf(key)) ?? (yield* admit(key, llm))
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
    const endpoint = yield* proxy.acquire(limited({ ...request, llm }, terms))
    acquired = true
    const finish = yield* Effect.cached(
      Effect.tap(endpoint.finish, (traffic) => Effect.uninterruptible(settleOnce(traffic)))
    )
    // Only the proxy knows the calls of a run without an audit, and only until it is closed.
    if (run.directory === undefined) yield* Effect.addFinalizer(() => Effect.ignore(finish))
    return { ...endpoint, finish }
  })

  const admissions: LlmAdmissions | undefined = accounts && {
    check: ({ llm }) =>
      proxy.capabilities.inspectsBodies ? recovering(accounts.check(llm)) : unread(proxy.capabilities),
    admit: Effect.fn("LedgerLlmProxy.admit")(function* ({ llm, runId }) {
      const key = { runId, attempt: llm.identity.attempt }
      const terms = yield* admit(key, llm)
      yield* Effect.acquireRelease(
        Effect.sync(() => admitted.set(keyOf(key), terms)),
        () => Effect.sync(() => admitted.delete(keyOf(key)))
      )
    })
  }
  return LlmProxy.of({
    capabilities: proxy.capabilities,
    ...(admissions === undefined ? {} : { admissions }),
    acquire
  })
})

/** Puts the runs of a proxy into the ledger, which hears their usage. An observer is optional, and is called, too. */
export const layer = <E, R>(
  proxy: Layer.Layer<LlmProxy, E, R>,
  options: LedgerLlmProxyOptions
): Layer.Layer<LlmProxy, E, Exclude<R, UsageObserver.UsageObserver> | Ledger> =>
  Layer.effect(
    LlmProxy,
    Effect.flatMap(LlmProxy, (inner) => make(inner, options))
  ).pipe(Layer.provide(heard(proxy)))

/** Puts the runs of a proxy into the ledger, and limits what each account may use. */
export const layerLimited = <E, R>(
  proxy: Layer.Layer<LlmProxy, E, R>,
  options: LedgerLlmProxyOptions,
  accounts: Omit<AccountAdmission.AccountAdmissionOptions, "owner">
): Layer.Layer<LlmProxy, E, Exclude<R, UsageObserver.UsageObserver> | Ledger | AccountReservations> =>
  Layer.effect(
    LlmProxy,
    Effect.gen(function* () {
      const admission = yield* AccountAdmission.make({ ...accounts, owner: options.owner })
      return yield* make(yield* LlmProxy, options, admission)
    })
  ).pipe(Layer.provide(heard(proxy)))

/** The ledger hears the runs of a proxy. An observer that the program provides nevertheless hears them, too. */
const heard = <E, R>(proxy: Layer.Layer<LlmProxy, E, R>) =>
  Layer.provide(
    proxy,
    Layer.effect(
      UsageObserver.UsageObserver,
      Effect.map(
        Effect.serviceOption(UsageObserver.UsageObserver),
        Option.getOrElse(() => ({}))
      )
    )
  )

/** A proxy that reads no answers knows no costs, so a limit would mean nothing. */
const unread = ({ name }: LlmProxyCapabilities): Misconfigured =>
  new Misconfigured({
    option: named("AccountLimits"),
    detail: `are set, and the proxy ${name} does not read what calls cost`,
    remedy: "Use the gateway, or leave the limits out"
  })

/** The request of a run, within the terms of its account. */
const limited = (
  request: LlmRequest & { readonly llm: LlmAccess },
  { account, costUsdMax }: AccountAdmission.AccountTerms
): LlmRequest => {
  const { llm } = request
  return {
    ...request,
    ...(account === undefined ? {} : { account }),
    llm:
      costUsdMax === undefined
        ? llm
        : { ...llm, budget: { onExhausted: "refuse", ...llm.budget, costUsdMax } }
  }
}

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
