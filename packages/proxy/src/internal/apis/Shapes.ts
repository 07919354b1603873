/**
 * Pieces that the model APIs share.
 *
 * A struct passes exactly the fields it names; whatever else is in a request is left out. What is `Free` passes as it
 * is: arguments, results and JSON Schemas, which are between the agent and its model.
 */
import { Schema } from "effect"

/** Any JSON, unharmed. @category models */
export const Free = Schema.Unknown

/** Text, numbers and switches. @category models */
export const Text = Schema.String

/** @category models */
export const Flag = Schema.Boolean

/** @category models */
export const Amount = Schema.Finite

/** @category models */
export const Count = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1e9 }))

/** May be left out, or said to be nothing. @category combinators */
export const maybe = <S extends Schema.Top>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))

/** How the refusal of an address begins; the gateway tells the agent by it. @category constants */
export const remoteExpected = "a data: URI, for the sandbox's proxy has no model fetch anything"

/**
 * What a provider need not fetch. The scheme is compared as those do who read it: in any case, with nothing before it.
 *
 * @category models
 */
export const DataUri = Schema.String.check(Schema.isPattern(/^data:/iu, { expected: remoteExpected }))

/** @category models */
export const CacheControl = Schema.Struct({
  type: Schema.Literal("ephemeral"),
  ttl: maybe(Schema.Literals(["5m", "1h"]))
})

/** @category models */
export const cached = { cache_control: maybe(CacheControl) }

/** What a model may be asked to answer in. @category models */
export const Effort = Schema.Struct({
  effort: maybe(Text),
  summary: maybe(Text),
  generate_summary: maybe(Text),
  max_tokens: maybe(Count),
  exclude: maybe(Flag),
  enabled: maybe(Flag)
})

/** @category models */
export const Thinking = Schema.Struct({
  type: Schema.Literals(["enabled", "disabled", "adaptive"]),
  budget_tokens: maybe(Count),
  display: maybe(Text)
})

/** @category models */
export const Format = Schema.Struct({
  type: Schema.Literals(["text", "grammar"]),
  grammar: maybe(Schema.Struct({ syntax: Text, definition: Text })),
  syntax: maybe(Text),
  definition: maybe(Text)
})
