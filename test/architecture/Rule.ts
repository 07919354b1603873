/** Reports a broken rule: first what to do, then every place. */
import { assert } from "@effect/vitest"

/** Passes if there are no offenders. */
export const none = (offenders: ReadonlyArray<string>, instead: string): void => {
  if (offenders.length > 0) assert.fail(`${instead}\n${offenders.map((one) => `  ${one}`).join("\n")}\n`)
}
