/** Enters the model calls of a host into a ledger, and settles those of processes that have died. */
import type { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { Misconfigured, StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type { UsageObserver } from "@cogni/sandbox-core/UsageObserver"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as LedgerLlmProxy from "@cogni/sandbox-ledger/LedgerLlmProxy"
import * as AuditCalls from "@cogni/sandbox-proxy/AuditCalls"
import type { Prices } from "@cogni/sandbox-proxy/Prices"
import { Effect, Layer } from "effect"

/** Refuses a ledger that would stay empty. */
export const withoutModel = new Misconfigured({
  option: "ledger",
  detail: "would stay empty, because no model call can be made",
  remedy: "Set upstream without inMemory, or leave ledger out"
})

/** Refuses a model whose costs nothing would keep, without a word of the program about that. */
export const withoutLedger = new Misconfigured({
  option: "ledger",
  detail: "is missing, so no ledger would have the cost of model calls",
  remedy:
    'Set ledger, such as SqlLedger.layerAt("./ledger.db"), or set it to "none" if your program bills no account'
})

/** Puts all runs of a proxy into a ledger. Fails if the ledger cannot be opened. */
export const entered = <E, R>(
  proxy: Layer.Layer<LlmProxy, E, R>,
  ledger: Layer.Layer<Ledger, { readonly message: string }>,
  prices?: Prices
): Layer.Layer<LlmProxy, E | StoreUnavailable, Exclude<R, UsageObserver>> =>
  LedgerLlmProxy.layer(proxy, {
    host: HostOwner.machineName(),
    owner: ResourceLabels.formatOwner(HostOwner.self()),
    isOrphaned: ({ expiresAt, owner }) => HostOwner.isOrphaned(owner, expiresAt, new Date()),
    callsOf: AuditCalls.reader({ prices })
  }).pipe(Layer.provide(ledger.pipe(Layer.catch(({ message }) => unavailable(message)))))

const unavailable = (message: string): Layer.Layer<Ledger, StoreUnavailable> =>
  Layer.effect(
    Ledger,
    Effect.fail(
      new StoreUnavailable({
        detail: `has no ledger: ${message}`,
        remedy: 'Correct the option ledger, or set it to "none"'
      })
    )
  )
