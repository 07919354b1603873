/** Fields and parts that schemas here have in common. */
import * as Schema from "effect/Schema"

/** May be left out, or said to be nothing. */
export const maybe = <S extends Schema.Top>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))

/** One of several kinds, which its `type` tells apart. */
export const typed = <const Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  fields: Fields
) => Schema.Struct({ type: Schema.Literal(type), ...fields })

/** What can be said in a text, or in parts. */
export const textOr = <S extends Schema.Top>(part: S) => Schema.Union([Schema.String, Schema.Array(part)])
