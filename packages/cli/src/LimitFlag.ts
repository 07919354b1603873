/** The flag `--limit` of lists. */
import { Flag } from "effect/cli"
import * as NumberFlag from "./NumberFlag.ts"

/** Flag `--limit`: how many entries a list has, at most. */
export const limit = (description: string, most: number, otherwise: number) =>
  NumberFlag.within("limit", "N", 1, most, `Maximum number of ${description} (default ${otherwise})`).pipe(
    Flag.withDefault(otherwise)
  )
