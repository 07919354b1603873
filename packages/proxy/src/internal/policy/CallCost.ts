/** Cost of a call at the host's prices. Pure. */
import type { LlmUsage } from "@cogni/sandbox-core/RunFigures"
import type { ModelPrice, Prices } from "../../Prices.ts"

/** Properties of a call that determine its price. */
export interface Call {
  readonly model: string
  /** The call asks the provider to cache its input for one hour. */
  readonly cachesForHour?: boolean | undefined
}

const priceOf = (prices: Prices | undefined, model: string): ModelPrice | undefined =>
  prices !== undefined && Object.hasOwn(prices, model) ? prices[model] : undefined

/** Cost in US dollars; `undefined` if the model has no price, or the upstream did not report the tokens. */
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
  // An upstream that does not report the cache duration is assumed to have used the requested one.
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

/** Maximum cost of the tokens in US dollars, with all input at its highest price; `undefined` without a price. */
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
