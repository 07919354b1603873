/** Composes reconciliation: the rows of the configured upstream, or a price list where an upstream keeps none. */
import type { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as Reconciler from "@cogni/sandbox-ledger/Reconciler"
import { limitsFor } from "@cogni/sandbox-ledger/ReconciliationLimits"
import * as SpendRows from "@cogni/sandbox-ledger/SpendRows"
import * as LiteLlmSpendRows from "@cogni/sandbox-proxy/LiteLlmSpendRows"
import * as OpenRouterSpendRows from "@cogni/sandbox-proxy/OpenRouterSpendRows"
import * as PublicPrices from "@cogni/sandbox-proxy/PublicPrices"
import * as Upstream from "@cogni/sandbox-proxy/Upstream"
import { Effect, Layer, Result } from "effect"
import * as AccountSettings from "./AccountSettings.ts"
import { mapLayerError, type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"
import * as RunPlan from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"

export const layer = (settings: Settings["Service"]): Layer.Layer<Reconciler.Reconciler, Refusal, Ledger> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(settings.accountLimits), (accounts) =>
      Reconciler.layer({
        limits: {
          ...limitsFor(settings.rowsSeconds),
          isFree: AccountSettings.isFree(accounts, settings.prices)
        },
        priceOf: PublicPrices.priceOf(settings.prices)
      })
    )
  ).pipe(Layer.provide(rows(settings)))

/** Reads the configured upstream's rows, with the key that calls it. LiteLLM requires its master key for that. */
export const rows = (settings: Settings["Service"]): Layer.Layer<SpendRows.SpendRows, Refusal> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(RunPlan.upstreamAddress(settings, false)), ({ key, options, url }) =>
      rowsOf(nameOf(url, options), {
        url,
        egressProxy: options.egressProxy,
        key: settings.keyFile === undefined ? key : KeyFile.source(settings.keyFile, "COGNI_LLM_KEY_FILE")
      })
    )
  )

/** Rows of an upstream by the name of its profile. */
const rowsOf = (
  name: string,
  options: LiteLlmSpendRows.LiteLlmSpendRowsOptions
): Layer.Layer<SpendRows.SpendRows, Refusal> => {
  const rows: Layer.Layer<SpendRows.SpendRows, { readonly message: string }> =
    name === "litellm"
      ? LiteLlmSpendRows.layer(options)
      : name === "openrouter"
        ? OpenRouterSpendRows.layer(options)
        : SpendRows.layerNone(name)
  return rows.pipe(
    mapLayerError(({ message }) =>
      refusal("configuration", `the rows of the upstream cannot be read: ${message}`, "Correct COGNI_LLM_URL")
    )
  )
}

const nameOf = (url: string, options: Upstream.ProfileOptions): string =>
  Result.match(Upstream.resolve({ type: "host", url }, options), {
    onFailure: () => "unknown",
    onSuccess: ({ profile }) => profile.name
  })
