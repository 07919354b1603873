/** How a rule speaks when it is broken: what to do first, then every place. */
import { assert } from "@effect/vitest"

/** Passes when there is no offender. */
export const none = (offenders: ReadonlyArray<string>, instead: string): void => {
  if (offenders.length > 0) assert.fail(`${instead}\n${offenders.map((one) => `  ${one}`).join("\n")}\n`)
}
