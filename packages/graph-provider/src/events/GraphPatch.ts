/**
 * What a run has changed in its workspace, as far as it can be told.
 *
 * It comes from inside a sandbox: whoever applies it looks at it first.
 */
import { Schema } from "effect"

export const GraphPatch = Schema.Struct({
  /** For `git apply`; empty where nothing differs, absent where there is a `problem`. */
  text: Schema.optionalKey(Schema.String),
  files: Schema.Int,
  /** Of the patch. */
  bytes: Schema.Int,
  /** Why it is not told. */
  problem: Schema.optionalKey(Schema.String)
})

export type GraphPatch = typeof GraphPatch.Type
