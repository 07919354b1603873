/** Schema parts that several modules use. */
import * as Schema from "effect/Schema"

/** Field that may be absent or `null`. */
export const maybe = <S extends Schema.Top>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))

/** Member of a union that is distinguished by its `type`. */
export const typed = <const Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  fields: Fields
) => Schema.Struct({ type: Schema.Literal(type), ...fields })

/** Content as a text, or as an array of parts. */
export const textOr = <S extends Schema.Top>(part: S) => Schema.Union([Schema.String, Schema.Array(part)])
