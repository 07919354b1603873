/** The flag `--limit` of lists. */
import { Flag } from "effect/cli"

/** Flag `--limit`: how many entries a list has, at most. */
export const limit = (description: string, most: number, otherwise: number) =>
  Flag.Int("limit").pipe(
    Flag.withMetavar("N"),
    Flag.withDescription(`Maximum number of ${description} (default ${otherwise})`),
    Flag.filter(
      (typed) => typed >= 1 && typed <= most,
      () => `a whole number from 1 to ${most}`
    ),
    Flag.withDefault(otherwise)
  )
