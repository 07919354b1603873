/**
 * The changes of a run to its workspace, as far as a patch can represent them.
 *
 * Untrusted: it comes from inside a sandbox. Review it before you apply it.
 */
import { Schema } from "effect"

export const GraphPatch = Schema.Struct({
  /** Input of `git apply`. Empty if nothing changed, absent if there is a `problem`. */
  text: Schema.optionalKey(Schema.String),
  files: Schema.Int,
  /** Size of the patch. */
  bytes: Schema.Int,
  /** Why the patch is missing. */
  problem: Schema.optionalKey(Schema.String)
})

export type GraphPatch = typeof GraphPatch.Type
