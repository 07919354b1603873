/**
 * Cost of a call from its tokens and a price list, for an upstream that keeps no rows: the host's own prices first,
 * then a public list with a date.
 *
 * The list is loaded only when it is needed. Prices change, so a cost from it is an estimate, and says so. A model that
 * is not in the list, and a call beyond the tokens for which a price holds, have no price: unknown is not 0.
 */
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import type { PriceOf } from "@cogni/sandbox-ledger/SpendRows"
import * as Effect from "effect/Effect"
import * as Struct from "effect/Struct"
import * as CallCost from "./internal/policy/CallCost.ts"
import type { ModelPrice, Prices } from "./Prices.ts"

/** Returns the function that reconciliation uses. `own` are the host's prices by model. */
export const priceOf =
  (own: Prices | undefined): PriceOf =>
  (entry) =>
    Effect.suspend(() => {
      const costUsd = costOf(own, entry)
      return costUsd === undefined
        ? Effect.map(Effect.promise(load), (list) => listed(list, entry))
        : Effect.succeed({ costUsd, source: "this host" })
    })

const costOf = (prices: Prices | undefined, entry: LedgerEntry): number | undefined =>
  CallCost.costOf(
    prices,
    { model: entry.model },
    Struct.pick(entry, [
      "inputTokens",
      "outputTokens",
      "cacheReadTokens",
      "cacheWriteTokens",
      "cacheWrite1hTokens"
    ])
  )

interface Listed extends ModelPrice {
  /** Input tokens above which the price is another one. */
  readonly inputTokensMax: number | undefined
}

interface PriceList {
  readonly source: string
  readonly profiles: Readonly<Record<string, ReadonlyMap<string, Listed>>>
}

let loaded: Promise<PriceList> | undefined

const load = (): Promise<PriceList> =>
  (loaded ??= import("./internal/spend/PriceList.ts").then(({ date, lines, version }) => ({
    source: `the public list of LiteLLM ${version}, read on ${date}`,
    profiles: Object.fromEntries(Object.entries(lines).map(([profile, some]) => [profile, parse(some)]))
  })))

const parse = (lines: ReadonlyArray<string>): ReadonlyMap<string, Listed> =>
  new Map(
    lines.map((line): readonly [string, Listed] => {
      const [model = "", ...figures] = line.split(" ")
      const [input = 0, output = 0, cacheRead, cacheWrite, cacheWrite1h, inputTokensMax] = figures.map(
        (figure) => (figure === "-" ? undefined : Number(figure))
      )
      return [
        model,
        {
          input,
          output,
          ...(cacheRead === undefined ? {} : { cacheRead }),
          ...(cacheWrite === undefined ? {} : { cacheWrite }),
          ...(cacheWrite1h === undefined ? {} : { cacheWrite1h }),
          inputTokensMax
        }
      ]
    })
  )

const listed = ({ profiles, source }: PriceList, entry: LedgerEntry) => {
  const price = Object.hasOwn(profiles, entry.upstream)
    ? profiles[entry.upstream]?.get(entry.model)
    : undefined
  if (price === undefined || (entry.inputTokens ?? 0) > (price.inputTokensMax ?? Number.POSITIVE_INFINITY))
    return undefined
  const costUsd = costOf({ [entry.model]: price }, entry)
  return costUsd === undefined ? undefined : { costUsd, source }
}
