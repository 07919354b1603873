/**
 * What a model costs, where the upstream does not say it with every answer.
 */
import * as Schema from "effect/Schema"
import type { LlmUsage } from "@cogni/sandbox-core/RunResult"

const Price = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

/** US dollars for a million tokens. @category models */
export const ModelPrice = Schema.Struct({
  input: Price,
  output: Price,
  /** As input where it is left out. */
  cacheRead: Schema.optionalKey(Price),
  cacheWrite: Schema.optionalKey(Price)
})

/** @category models */
export type ModelPrice = typeof ModelPrice.Type

/** By the name that the upstream knows. @category models */
export const Prices = Schema.Record(Schema.String, ModelPrice)

/** @category models */
export type Prices = typeof Prices.Type

const priceOf = (prices: Prices | undefined, model: string): ModelPrice | undefined =>
  prices !== undefined && Object.hasOwn(prices, model) ? prices[model] : undefined

/** Unknown where the model has no price, or the upstream did not tell the tokens. @category converting */
export const costOf = (prices: Prices | undefined, model: string, usage: LlmUsage): number | undefined => {
  const price = priceOf(prices, model)
  const { inputTokens, outputTokens } = usage
  if (price === undefined || inputTokens === undefined || outputTokens === undefined) return undefined
  const read = Math.min(usage.cacheReadTokens ?? 0, inputTokens)
  const write = Math.min(usage.cacheWriteTokens ?? 0, inputTokens - read)
  return (
    ((inputTokens - read - write) * price.input +
      read * (price.cacheRead ?? price.input) +
      write * (price.cacheWrite ?? price.input) +
      outputTokens * price.output) /
    1e6
  )
}

/** The most that so many tokens can cost, with all input at its dearest. Unknown without a price. @category converting */
export const costMaxOf = (
  prices: Prices | undefined,
  model: string,
  { inputTokens, outputTokens }: { readonly inputTokens: number; readonly outputTokens: number }
): number | undefined => {
  const price = priceOf(prices, model)
  if (price === undefined) return undefined
  const input = Math.max(price.input, price.cacheRead ?? 0, price.cacheWrite ?? 0)
  return (inputTokens * input + outputTokens * price.output) / 1e6
}
