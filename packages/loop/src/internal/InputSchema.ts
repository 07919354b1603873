/** JSON Schema of a tool's arguments for a model, and messages about invalid arguments. */
import { Schema, SchemaAST } from "effect"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"

/** Longest message about invalid arguments. */
const problemCharsMax = 1000

/** Returns the JSON Schema of the arguments, which is always an object. */
export const jsonOf = (input: Schema.Top): Readonly<Record<string, unknown>> => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(input, { onExcessProperty: "error" })
  // A struct without fields becomes `not: null`. Some APIs refuse an object without `properties`.
  const { not: _, ...said } = schema
  return {
    type: "object",
    ...(isEmpty(SchemaAST.toEncoded(input.ast))
      ? { ...said, properties: {}, additionalProperties: false }
      : schema),
    ...(Object.keys(definitions).length === 0 ? {} : { $defs: definitions })
  }
}

export const describe = (error: Schema.SchemaError): string =>
  problemsOf(error).join("; ").slice(0, problemCharsMax)

const isEmpty = (ast: SchemaAST.AST): boolean =>
  SchemaAST.isObjects(ast) && ast.propertySignatures.length + ast.indexSignatures.length === 0
