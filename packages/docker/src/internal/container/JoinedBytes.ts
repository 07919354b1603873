/**
 * Joins pieces of bytes.
 *
 * `Bytes.concat` of Effect does the same, but may change in a minor version of Effect. This package accepts all later
 * minor versions, so it does not use it.
 */

/** Returns a new array, never a `Buffer`: callers get it, and a `Buffer` compares and slices differently. */
export const of = (pieces: ReadonlyArray<Uint8Array>): Uint8Array<ArrayBuffer> => {
  const joined = new Uint8Array(pieces.reduce((bytes, piece) => bytes + piece.byteLength, 0))
  let at = 0
  for (const piece of pieces) {
    joined.set(piece, at)
    at += piece.byteLength
  }
  return joined
}
