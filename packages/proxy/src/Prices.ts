/** Model prices, for an upstream that does not report the cost with every answer. */
import * as Schema from "effect/Schema"

const Price = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

/** Prices of a model, in US dollars per million tokens. */
export const ModelPrice = Schema.Struct({
  input: Price,
  output: Price,
  /** Default: the `input` price, also for `cacheWrite`. */
  cacheRead: Schema.optionalKey(Price),
  cacheWrite: Schema.optionalKey(Price),
  /** Tokens cached for one hour. Default: twice the `input` price, as Anthropic charges. */
  cacheWrite1h: Schema.optionalKey(Price)
})

export type ModelPrice = typeof ModelPrice.Type

/** Prices by upstream model name. */
export const Prices = Schema.Record(Schema.String, ModelPrice)

export type Prices = typeof Prices.Type
