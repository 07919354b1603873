/** The cache in which Node keeps compiled code: `bin.ts` turns it on. */
import { Effect } from "effect"
import { flushCompileCache } from "node:module"

/**
 * Keeps what this process has compiled, for the next one. Node does so at the end of a process, so one that is killed
 * would leave nothing, and the next one would compile everything again.
 */
export const keep: Effect.Effect<void> = Effect.sync(flushCompileCache)
