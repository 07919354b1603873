/** Body fields that a host opens for its upstream, in the form that `bodyFields` of a profile expects. */
import { Schema } from "effect"
import type { FieldSchema } from "./UpstreamProfile.ts"

/** JSON Schema of a body field, from a schema. Objects pass only the fields that the schema names. */
export const fromSchema = (schema: Schema.Top): FieldSchema => {
  const { definitions, schema: own } = Schema.toJsonSchemaDocument(schema, { onExcessProperty: "error" })
  return Object.keys(definitions).length === 0 ? own : { ...own, $defs: definitions }
}
