/** The arguments of a tool, as a model is told them, and what it hears of those that are none. */
import { Schema, SchemaAST } from "effect"
import { problemsOf } from "@cogni/sandbox-core/SandboxSpec"

/** What of a problem with arguments is told. */
const problemCharsMax = 1000

/** JSON Schema of an object. */
export const jsonOf = (input: Schema.Top): Readonly<Record<string, unknown>> => {
  const { definitions, schema } = Schema.toJsonSchemaDocument(input, { onExcessProperty: "error" })
  // Of a struct without fields it says `not: null`; some APIs refuse an object without properties.
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
