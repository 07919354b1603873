/**
 * Decodes the spec of a run, and that of an open sandbox, which has no command.
 */
import * as Schema from "effect/Schema"
import { supervisor } from "./SpecFields.ts"
import { SandboxSpec, type OpenSpecInput } from "./SandboxSpec.ts"

/** Decodes a spec. Fails with every problem of the input, not just the first. */
export const decode = Schema.decodeUnknownEffect(SandboxSpec, { errors: "all", onExcessProperty: "error" })

/** Decodes the spec of an open sandbox, whose program is {@link supervisor}. Fails as {@link decode} does. */
export const decodeOpen = (input: OpenSpecInput): ReturnType<typeof decode> =>
  decode({ ...input, argv: [supervisor] })
