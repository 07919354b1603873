/** What a model costs, where the upstream does not say it with every answer. */
import * as Schema from "effect/Schema"
import type { LlmUsage } from "@cogni/sandbox-core/RunResult"

const Price = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

/** US dollars for a million tokens. */
export const ModelPrice = Schema.Struct({
  input: Price,
  output: Price,
  /** As input where it is left out. */
  cacheRead: Schema.optionalKey(Price),
  cacheWrite: Schema.optionalKey(Price),
  /** For what is cached for an hour. Twice the input where it is left out, as Anthropic has it. */
  cacheWrite1h: Schema.optionalKey(Price)
})

export type ModelPrice = typeof ModelPrice.Type

/** By the name that the upstream knows. */
export const Prices = Schema.Record(Schema.String, ModelPrice)

export type Prices = typeof Prices.Type

/** A call as far as its price goes. */
export interface Call {
  readonly model: string
  /** It asks the provider to cache its input for an hour. */
  readonly cachesForHour?: boolean | undefined
}

const priceOf = (prices: Prices | undefined, model: string): ModelPrice | undefined =>
  prices !== undefined && Object.hasOwn(prices, model) ? prices[model] : undefined

/** Unknown where the model has no price, or the upstream did not tell the tokens. */
export const costOf = (
  prices: Prices | undefined,
  { cachesForHour, model }: Call,
  usage: LlmUsage
): number | undefined => {
  const price = priceOf(prices, model)
  const { inputTokens, outputTokens } = usage
  if (price === undefined || inputTokens === undefined || outputTokens === undefined) return undefined
  const read = Math.min(usage.cacheReadTokens ?? 0, inputTokens)
  const write = Math.min(usage.cacheWriteTokens ?? 0, inputTokens - read)
  // An upstream that does not say for how long has done what it was asked to.
  const writeHour = Math.min(usage.cacheWrite1hTokens ?? (cachesForHour === true ? write : 0), write)
  return (
    ((inputTokens - read - write) * price.input +
      read * (price.cacheRead ?? price.input) +
      (write - writeHour) * (price.cacheWrite ?? price.input) +
      writeHour * hourPriceOf(price) +
      outputTokens * price.output) /
    1e6
  )
}

const hourPriceOf = ({ cacheWrite1h, input }: ModelPrice): number => cacheWrite1h ?? 2 * input

/** The most that so many tokens can cost, with all input at its dearest. Unknown without a price. */
export const costMaxOf = (
  prices: Prices | undefined,
  { cachesForHour, model }: Call,
  { inputTokens, outputTokens }: { readonly inputTokens: number; readonly outputTokens: number }
): number | undefined => {
  const price = priceOf(prices, model)
  if (price === undefined) return undefined
  const hour = cachesForHour === true ? hourPriceOf(price) : 0
  const input = Math.max(price.input, price.cacheRead ?? 0, price.cacheWrite ?? 0, hour)
  return (inputTokens * input + outputTokens * price.output) / 1e6
}
