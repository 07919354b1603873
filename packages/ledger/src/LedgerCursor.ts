/** The order of entries in pages, and the text that continues a page. For implementations of the port. */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { LedgerEntry } from "./LedgerEntry.ts"

/** The place of an entry in the order of pages. */
export type Place = readonly [
  at: string,
  runId: string,
  attempt: number,
  usageUnitId: string,
  revision: number
]

export const placeOf = ({ at, attempt, revision, runId: run, usageUnitId: unit }: LedgerEntry): Place => [
  at,
  run,
  attempt,
  unit,
  revision
]

/** Compares places by time first, and by key if calls began in the same millisecond. */
export const comparePlaces = (a: Place, b: Place): number => {
  for (const [index, left] of a.entries()) {
    const right = b[index]!
    if (left !== right) return left < right ? -1 : 1
  }
  return 0
}

const Cursor = Schema.StringFromBase64Url.pipe(
  Schema.decodeTo(
    Schema.fromJsonString(Schema.Tuple([Schema.String, Schema.String, Schema.Int, Schema.String, Schema.Int]))
  )
)

export const encodeCursor: (place: Place) => string = Schema.encodeSync(Cursor)

const decodePlace = Schema.decodeUnknownOption(Cursor)

/** Returns the place of a cursor, or `undefined` if the text is not a cursor. */
export const decodeCursor = (text: string): Place | undefined => Option.getOrUndefined(decodePlace(text))
