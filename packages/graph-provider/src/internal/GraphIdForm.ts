/** Form of a graph ID, which is also that of a scope. Without imports: web pages use it. */

/** Source of the regular expression of a graph ID. */
export const source = "[a-z][a-z0-9-]{0,31}:[a-z][a-z0-9-]{0,31}"

/** Completes "Expected". */
export const expected = "provider:graph, such as sandbox:agent"
