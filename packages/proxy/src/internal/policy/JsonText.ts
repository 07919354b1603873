/**
 * JSON as text: what can be said of it before it is read, how it is read without harm, and what is mended after it is
 * written.
 */

/** A number in a text is written out again as it was. Node has it; the types of this target do not yet. */
const Exact = JSON as unknown as {
  readonly parse: (
    text: string,
    reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown
  ) => unknown
  readonly rawJSON: (text: string) => unknown
}

export interface Survey {
  /** How deep brackets are nested outside strings, whether or not it is JSON. */
  readonly depth: number
  /** There may be a number that JavaScript cannot hold. */
  readonly vastNumbers: boolean
  /** By how many bytes it may grow when its numbers are written again: `1e20` becomes 21 digits. */
  readonly growthBytes: number
}

export const survey = (bytes: Uint8Array): Survey => {
  let depth = 0
  let deepest = 0
  let vastNumbers = false
  let growthBytes = 0
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (byte === 0x22) at = stringEnd(bytes, at)
    else if (byte === 0x7b || byte === 0x5b) deepest = Math.max(deepest, ++depth)
    else if (byte === 0x7d || byte === 0x5d) depth -= 1
    else if (isDigit(byte)) {
      const wholeEnd = digitsEnd(bytes, at)
      const fractionEnd = bytes[wholeEnd] === 0x2e ? digitsEnd(bytes, wholeEnd + 1) : wholeEnd
      const exponentEnd = exponentFrom(bytes, fractionEnd)
      // Whole numbers that may be rounded, and exponents that may go beyond all bounds.
      vastNumbers ||= !isSafe(bytes, at, wholeEnd) || exponentEnd - fractionEnd > exponentBytesSafe
      if (exponentEnd > fractionEnd) growthBytes += Math.max(0, numberBytesMax - (exponentEnd - at))
      at = exponentEnd - 1
    }
  }
  return { depth: deepest, vastNumbers, growthBytes }
}

/** The longest that JavaScript writes a number, without its sign. Only one with an exponent can become longer. */
const numberBytesMax = 25

/** `e99` */
const exponentBytesSafe = 3

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39

const digitsEnd = (bytes: Uint8Array, from: number): number => {
  let end = from
  while (isDigit(bytes[end])) end += 1
  return end
}

const exponentFrom = (bytes: Uint8Array, at: number): number => {
  if (bytes[at] !== 0x65 && bytes[at] !== 0x45) return at
  const signed = bytes[at + 1] === 0x2b || bytes[at + 1] === 0x2d
  return digitsEnd(bytes, at + (signed ? 2 : 1))
}

const isSafe = (bytes: Uint8Array, from: number, to: number): boolean => {
  if (to - from <= 15) return true
  let value = 0
  for (let at = from; at < to; at++) value = value * 10 + (bytes[at]! - 0x30)
  return value <= Number.MAX_SAFE_INTEGER
}

/** The quote that ends the string that begins here; the end of the bytes where there is none. */
const stringEnd = (bytes: Uint8Array, from: number): number => {
  for (let end = bytes.indexOf(0x22, from + 1); end !== -1; end = bytes.indexOf(0x22, end + 1)) {
    let escapes = 0
    while (bytes[end - 1 - escapes] === 0x5c) escapes += 1
    if (escapes % 2 === 0) return end
  }
  return bytes.length
}

/** A number beyond what JSON's readers can hold: to some it is infinite, to others an error. */
export class OutOfRange extends Error {}

/**
 * The value of a text that is JSON; throws where it is none.
 *
 * An id of 20 digits in the input of a tool is another id when it is rounded, so whole numbers that JavaScript cannot
 * hold are kept as they were written. That takes long; it is done where the survey says that there may be one.
 */
export const read = (text: string, vastNumbers: boolean): unknown =>
  vastNumbers
    ? Exact.parse(text, (_, value, { source }) => {
        if (typeof value !== "number") return value
        if (!Number.isFinite(value)) throw new OutOfRange("a number is too large")
        return source !== undefined && !Number.isSafeInteger(value) && /^-?\d+$/u.test(source)
          ? Exact.rawJSON(source)
          : value
      })
    : JSON.parse(text)

/**
 * JSON writes half of a surrogate pair, and NUL, as escapes. No text has them for a reason, and both have made ledgers
 * lose the row of a call (Postgres takes neither): they go out as U+FFFD.
 */
export const wellFormed = (text: string): string => {
  if (!/\\u(?:0000|d[89a-f])/u.test(text)) return text
  // Escapes are met one after the other, so that an escaped backslash is never taken for the beginning of one.
  const mended = text.replace(/\\\\|\\u(?:0000|d[89a-f][0-9a-f]{2})/gu, (met) =>
    met.length === 2 ? met : "\ufffd"
  )
  // Names that differed may be the same now: the last one wins.
  return mended === text ? text : JSON.stringify(read(mended, true))
}
