/**
 * Handles JSON as text: surveys it before parsing, parses it without losing precision, and repairs it after writing.
 */

/** Keeps the text of a number. Node supports this; the types of this compilation target do not yet. */
const Exact = JSON as unknown as {
  readonly parse: (
    text: string,
    reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown
  ) => unknown
  readonly rawJSON: (text: string) => unknown
}

export interface Survey {
  /** Depth of nested brackets outside strings, even if the text is not valid JSON. */
  readonly depth: number
  /** Whether there may be a number that JavaScript cannot represent. */
  readonly vastNumbers: boolean
  /** Maximum growth in bytes when its numbers are written again: `1e20` becomes 21 digits. */
  readonly growthBytes: number
  /** Maximum memory of the parsed values in bytes, without the characters of strings. */
  readonly structureBytes: number
}

/**
 * Memory of the parts of a parsed value. Measured with Node 24 and rounded up: `[]` takes up to 56 bytes and 8 for each
 * entry, an object with a single number as its key 208, and each further key of a large object 66.
 */
const memory = { array: 64, object: 136, field: 72, entry: 16, string: 24 } as const

export const survey = (bytes: Uint8Array): Survey => {
  let depth = 0
  let deepest = 0
  let vastNumbers = false
  let growthBytes = 0
  let structureBytes = 0
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]
    if (byte === 0x22) {
      at = stringEnd(bytes, at)
      structureBytes += memory.string
    } else if (byte === 0x7b || byte === 0x5b) {
      deepest = Math.max(deepest, ++depth)
      structureBytes += byte === 0x7b ? memory.object : memory.array
    } else if (byte === 0x2c) structureBytes += memory.entry
    else if (byte === 0x3a) structureBytes += memory.field
    else if (byte === 0x7d || byte === 0x5d) depth -= 1
    else if (isDigit(byte)) {
      const wholeEnd = digitsEnd(bytes, at)
      const fractionEnd = bytes[wholeEnd] === 0x2e ? digitsEnd(bytes, wholeEnd + 1) : wholeEnd
      const exponentEnd = exponentFrom(bytes, fractionEnd)
      // Integers that may be rounded, and exponents that may overflow.
      vastNumbers ||= !isSafe(bytes, at, wholeEnd) || exponentEnd - fractionEnd > exponentBytesSafe
      if (exponentEnd > fractionEnd) growthBytes += Math.max(0, numberBytesMax - (exponentEnd - at))
      at = exponentEnd - 1
    }
  }
  return { depth: deepest, vastNumbers, growthBytes, structureBytes }
}

/** Maximum length of a number that JavaScript writes, without its sign. Only one with an exponent can become longer. */
const numberBytesMax = 25

/** Length of `e99`. */
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

/** Returns the position of the quote that ends this string, or the length of the bytes if it is missing. */
const stringEnd = (bytes: Uint8Array, from: number): number => {
  for (let end = bytes.indexOf(0x22, from + 1); end !== -1; end = bytes.indexOf(0x22, end + 1)) {
    let escapes = 0
    while (bytes[end - 1 - escapes] === 0x5c) escapes += 1
    if (escapes % 2 === 0) return end
  }
  return bytes.length
}

/** A number is too large for JSON parsers: some read it as infinity, others fail. */
export class OutOfRange extends Error {}

/**
 * Parses JSON; throws if it is invalid.
 *
 * Rounding would change an ID of 20 digits in the input of a tool, so integers that JavaScript cannot represent keep
 * their text. This is slow, and only done if `vastNumbers` of the survey is true.
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

/** Returns whether a text may have escapes that `wellFormed` replaces, which holds the parsed values twice. */
export const mayBeMended = (text: string): boolean => /\\u(?:0000|d[89a-f])/iu.test(text)

/**
 * Replaces lone surrogates and NUL, which JSON writes as escapes, by U+FFFD. No text needs them, and both have made
 * ledgers lose the row of a call, because Postgres accepts neither.
 */
export const wellFormed = (text: string): string => {
  if (!/\\u(?:0000|d[89a-f])/u.test(text)) return text
  // Matches escaped backslashes too, so that none is mistaken for the beginning of an escape.
  const mended = text.replace(/\\\\|\\u(?:0000|d[89a-f][0-9a-f]{2})/gu, (met) =>
    met.length === 2 ? met : "\ufffd"
  )
  // Names that differed may be equal now: the last one wins.
  return mended === text ? text : JSON.stringify(read(mended, true))
}
