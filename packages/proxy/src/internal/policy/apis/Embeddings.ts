/** Schema of the fields that may pass in a request to `POST /v1/embeddings`. */
import * as Schema from "effect/Schema"
import { maybe, textOr } from "../../SchemaFields.ts"
import { Count, Text } from "./Shapes.ts"

/** Text as the IDs of its tokens. */
const Tokens = Schema.Array(Count)

export const Body = Schema.Struct({
  model: maybe(Text),
  input: Schema.Union([textOr(Text), Tokens, Schema.Array(Tokens)]),
  encoding_format: maybe(Schema.Literals(["float", "base64"])),
  dimensions: maybe(Count)
})
