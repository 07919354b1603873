/** ID of a graph: its provider, and its name there. Web pages use this module too, so it imports only schemas. */
import { Schema } from "effect"

/** Source of the regular expression of a graph ID, and its description in errors. */
export const graphIdForm = {
  source: "[a-z][a-z0-9-]{0,31}:[a-z][a-z0-9-]{0,31}",
  expected: "provider:graph, such as sandbox:agent"
} as const

/** `provider:graph`, such as `sandbox:agent`. */
export const GraphId = Schema.String.check(
  Schema.isPattern(new RegExp(`^${graphIdForm.source}$`, "u"), { expected: graphIdForm.expected })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/GraphId"))

export type GraphId = typeof GraphId.Type

/** The namespace of graphs that run in a sandbox. */
export const sandboxNamespace = "sandbox"
