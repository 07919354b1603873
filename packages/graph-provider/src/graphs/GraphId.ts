/** ID of a graph: its provider, and its name there. Web pages use this module too, so it imports only schemas and constants. */
import { Schema } from "effect"
import * as GraphIdForm from "../internal/GraphIdForm.ts"

/** `provider:graph`, such as `sandbox:agent`. */
export const GraphId = Schema.String.check(
  Schema.isPattern(new RegExp(`^${GraphIdForm.source}$`, "u"), { expected: GraphIdForm.expected })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/GraphId"))

export type GraphId = typeof GraphId.Type

/** The namespace of graphs that run in a sandbox. */
export const sandboxNamespace = "sandbox"
