/**
 * Pieces that the model APIs share.
 *
 * A struct passes exactly the fields it names; whatever else is in a request is left out. What is `Free` passes as it
 * is: arguments, results and JSON Schemas, which are between the agent and its model.
 */
import * as Schema from "effect/Schema"
import { maybe } from "../../SchemaFields.ts"

/** Any JSON, unharmed. */
export const Free = Schema.Unknown

/** Text, numbers and switches. */
export const Text = Schema.String

export const Flag = Schema.Boolean

export const Amount = Schema.Finite

export const Count = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1e9 }))

/** How a function of the agent's own is described, and the JSON that it wants for an answer. */
export const callable = { name: Text, description: maybe(Text), parameters: maybe(Free), strict: maybe(Flag) }
export const answerSchema = { name: Text, description: maybe(Text), schema: maybe(Free), strict: maybe(Flag) }

/**
 * What a provider need not fetch: all of it is here, and none of it can be read as an address. Who looks for `https://`
 * anywhere in it, as some do, finds nothing.
 */
export const dataUri =
  /^[Dd][Aa][Tt][Aa]:[A-Za-z0-9!#$&^_.+/;=-]{0,200};[Bb][Aa][Ss][Ee]64,[A-Za-z0-9+/=_-]*$/u

export const DataUri = Schema.String.check(Schema.isPattern(dataUri, { expected: "a data: URI in base64" }))

export const Base64 = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9+/=_\r\n-]*$/u, { expected: "base64" })
)

/** What is put into a URI by those who translate between APIs. */
export const MediaType = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9!#$&^_.+/-]{1,100}$/u, { expected: "a media type" })
)

export const CacheControl = Schema.Struct({
  type: Schema.Literal("ephemeral"),
  ttl: maybe(Schema.Literals(["5m", "1h"]))
})

export const cached = { cache_control: maybe(CacheControl) }

/** How likely a token was, and what else it could have been. */
const likely = { token: maybe(Text), logprob: maybe(Amount), bytes: maybe(Schema.Array(Count)) }
export const Logprob = Schema.Struct({
  ...likely,
  top_logprobs: maybe(Schema.Array(Schema.Struct(likely)))
})

/** What a model may be asked to answer in. */
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
