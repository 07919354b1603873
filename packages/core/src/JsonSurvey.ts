/**
 * Surveys JSON before it is parsed: its nesting, its numbers, and the memory that it takes.
 *
 * A parser cannot be interrupted, and a few megabytes of small arrays take it a second and hundreds of megabytes. So
 * untrusted JSON is surveyed first, in one pass over its bytes that allocates nothing. Pure.
 */

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

/** Nesting of JSON in a thread that others wait for. Code that recurses over it must not exhaust the stack. */
export const depthMax = 64

/** Memory of JSON in a thread that others wait for, in bytes. It takes a tenth of a second to parse. */
const structureBytesMax = 64 * 1024 * 1024

/**
 * Returns why a text must not be parsed in a thread that others wait for, such as `is nested more than 64 levels deep`;
 * `undefined` if it can be.
 */
export const problemOf = (bytes: Uint8Array): string | undefined => {
  const { depth, structureBytes } = survey(bytes)
  return depth > depthMax
    ? `is nested more than ${depthMax} levels deep`
    : structureBytes > structureBytesMax
      ? "has too many values"
      : undefined
}
