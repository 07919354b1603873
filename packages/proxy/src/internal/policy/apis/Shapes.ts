/**
 * Schemas that the model APIs share.
 *
 * A struct passes exactly the fields that it names; all others are removed. `Free` values pass unchanged: arguments,
 * results and JSON Schemas, which concern only the agent and its model.
 */
import * as Schema from "effect/Schema"
import { maybe } from "../../SchemaFields.ts"

/** Any JSON, unchanged. */
export const Free = Schema.Unknown

/** Any string. */
export const Text = Schema.String

export const Flag = Schema.Boolean

export const Amount = Schema.Finite

export const Count = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1e9 }))

/** Description of one of the agent's functions, and of the JSON that it wants as an answer. */
export const callable = { name: Text, description: maybe(Text), parameters: maybe(Free), strict: maybe(Flag) }
export const answerSchema = { name: Text, description: maybe(Text), schema: maybe(Free), strict: maybe(Flag) }

/**
 * A data: URI in base64, which a provider need not fetch. No part of it can be read as an address, not even by a
 * provider that searches the whole value for `https://`.
 */
export const dataUri =
  /^[Dd][Aa][Tt][Aa]:[A-Za-z0-9!#$&^_.+/;=-]{0,200};[Bb][Aa][Ss][Ee]64,[A-Za-z0-9+/=_-]*$/u

export const DataUri = Schema.String.check(Schema.isPattern(dataUri, { expected: "a data: URI in base64" }))

export const Base64 = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9+/=_\r\n-]*$/u, { expected: "base64" })
)

/** Media type. Proxies that translate between APIs put it into a URI. */
export const MediaType = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9!#$&^_.+/-]{1,100}$/u, { expected: "a media type" })
)

const CacheControl = Schema.Struct({
  type: Schema.Literal("ephemeral"),
  ttl: maybe(Schema.Literals(["5m", "1h"]))
})

export const cached = { cache_control: maybe(CacheControl) }

/** Probability of a token and of its alternatives. */
const likely = { token: maybe(Text), logprob: maybe(Amount), bytes: maybe(Schema.Array(Count)) }
export const Logprob = Schema.Struct({
  ...likely,
  top_logprobs: maybe(Schema.Array(Schema.Struct(likely)))
})

/** Settings of a model's reasoning. */
export const Effort = Schema.Struct({
  effort: maybe(Text),
  summary: maybe(Text),
  generate_summary: maybe(Text),
  max_tokens: maybe(Count),
  exclude: maybe(Flag),
  enabled: maybe(Flag)
})

export const Thinking = Schema.Struct({
  type: Schema.Literals(["enabled", "disabled", "adaptive"]),
  budget_tokens: maybe(Count),
  display: maybe(Text)
})
