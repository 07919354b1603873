/** Enters the runs of this host into the ledger, and settles those whose process has died. */
import type { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import type { UsageObserver } from "@cogni/sandbox-core/UsageObserver"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import type { AccountLimits } from "@cogni/sandbox-ledger/AccountLimits"
import type { AccountReservations } from "@cogni/sandbox-ledger/AccountReservations"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as LedgerLlmProxy from "@cogni/sandbox-ledger/LedgerLlmProxy"
import * as LedgerRecovery from "@cogni/sandbox-ledger/LedgerRecovery"
import type { LedgerRun } from "@cogni/sandbox-ledger/LedgerRun"
import * as RunCost from "@cogni/sandbox-ledger/RunCost"
import * as AuditCalls from "@cogni/sandbox-proxy/AuditCalls"
import { Effect, type Layer } from "effect"
import * as AccountSettings from "./AccountSettings.ts"
import { refusal } from "./Failure.ts"
import { plural } from "./Quantity.ts"
import { Settings } from "./Settings.ts"

const isOrphaned = ({ expiresAt, owner }: LedgerRun): boolean =>
  HostOwner.isOrphaned(owner, expiresAt, new Date())

const optionsOf = ({
  prices
}: Pick<Settings["Service"], "prices">): LedgerLlmProxy.LedgerLlmProxyOptions => ({
  host: HostOwner.machineName(),
  owner: ResourceLabels.formatOwner(HostOwner.self()),
  isOrphaned,
  callsOf: AuditCalls.reader({ prices })
})

/** Puts all runs of a proxy into the ledger. `upstream` names one that is no model. */
export const entered = <E, R>(
  settings: Pick<Settings["Service"], "prices">,
  proxy: Layer.Layer<LlmProxy, E, R>,
  upstream?: string
): Layer.Layer<LlmProxy, E, Exclude<R, UsageObserver> | Ledger> =>
  LedgerLlmProxy.layer(proxy, {
    ...optionsOf(settings),
    ...(upstream === undefined ? {} : { upstream })
  })

/** Puts all runs of a proxy into the ledger, within the limits of their accounts, if there are limits. */
export const limited = <E, R>(
  settings: Pick<Settings["Service"], "prices">,
  limits: AccountLimits | undefined,
  proxy: Layer.Layer<LlmProxy, E, R>
): Layer.Layer<LlmProxy, E, Exclude<R, UsageObserver> | Ledger | AccountReservations> =>
  limits === undefined
    ? entered(settings, proxy)
    : LedgerLlmProxy.layerLimited(
        proxy,
        optionsOf(settings),
        AccountSettings.admission(limits, settings.prices)
      )

/** Settles the runs of this host that are over. Returns those that are left. */
const recovered = Effect.fnUntraced(function* (
  { prices }: Pick<Settings["Service"], "prices">,
  isOver: (run: LedgerRun) => boolean = isOrphaned
) {
  const host = HostOwner.machineName()
  yield* LedgerRecovery.recover({ host, isOver, callsOf: AuditCalls.reader({ prices }) })
  const ledger = yield* Ledger
  return (yield* ledger.openRuns(host)).filter(isOver)
})

/**
 * Settles the runs of dead processes, and those that have ended and whose audits will be deleted: their process may
 * live, and wait to settle them. Fails if the cost of a run is still only in its audit.
 */
export const settled = Effect.fnUntraced(function* (
  settings: Pick<Settings["Service"], "prices">,
  deleted: ReadonlyArray<string>
) {
  const ended = new Set(deleted)
  const left = yield* recovered(settings, (run) => ended.has(run.runId) || isOrphaned(run))
  if (left.length === 0) return
  return yield* refusal(
    "unavailable",
    `the cost of ${plural(left.length, "run")} is not in the ledger yet, so no record and no audit is deleted`,
    "Correct what the warnings name, then repeat the command"
  )
})

/**
 * Settles the runs of dead processes before their costs are shown or compared. A run that cannot be settled is reported
 * and returned.
 */
export const upToDate = Effect.gen(function* () {
  const left = yield* recovered(yield* Settings)
  if (left.length > 0)
    yield* Effect.logWarning(`the cost of ${plural(left.length, "run")} is not in the ledger yet`)
  return left
}).pipe(
  Effect.catch(({ message }) =>
    Effect.as(
      Effect.logWarning(`runs of dead processes were not settled. ${message}`),
      [] as ReadonlyArray<LedgerRun>
    )
  )
)

/** Returns the cost of a run for its report, or nothing if the ledger does not answer. */
export const costOf = (runId: string): Effect.Effect<RunCost.RunCost | undefined, never, Ledger> =>
  RunCost.find(runId).pipe(
    Effect.catch(({ message }) =>
      Effect.as(Effect.logWarning(`the cost of ${runId} is not shown. ${message}`), undefined)
    )
  )
