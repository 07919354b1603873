/**
 * Identity of one sandboxed run.
 *
 * A `RunId` names every resource a run owns (container, volume, directory, branch, span), so a leftover can
 * always be traced to its run. It is made on the host, never read from inside a sandbox.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

/**
 * 8 to 48 characters, lower-case letters, digits and inner hyphens: safe as a container name, a file name and a
 * git branch, and wide enough for a UUID that a workflow engine made.
 */
export const RunId = Schema.String.check(
  Schema.isPattern(/^[a-z0-9][a-z0-9-]{6,46}[a-z0-9]$/u, {
    expected: "8 to 48 lower-case letters, digits and inner hyphens, such as run-4f7k2m9q0x1z"
  })
).pipe(Schema.brand("@cogni/sandbox-core/RunId"))

export type RunId = typeof RunId.Type

const alphabet = "0123456789abcdefghijklmnopqrstuvwxyz"

/** Generates an ID: `run-` and twelve random characters (62 bits). */
export const generate: Effect.Effect<RunId> = Effect.sync(() => {
  const bytes = crypto.getRandomValues(new Uint8Array(12))
  return RunId.make(`run-${Array.from(bytes, (byte) => alphabet[byte % alphabet.length]).join("")}`)
})
