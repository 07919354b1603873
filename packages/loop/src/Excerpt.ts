/**
 * Shortens text that is too long for its reader to its beginning and its end, and states how much is missing.
 *
 * The beginning and the end of output are the most informative. Characters are never cut, invalid UTF-8 becomes U+FFFD,
 * and the result never exceeds its limit. Pure; memory is bounded, whatever the input.
 */

export interface Excerpt {
  /** At most `bytesMax` bytes of UTF-8, with a marker where text is missing. */
  readonly text: string
  /** Missing bytes of UTF-8; 0 if the text is complete. */
  readonly bytesMissing: number
}

/** Builds an excerpt of bytes that arrive in pieces. */
export interface Collector {
  readonly add: (bytes: Uint8Array) => void
  readonly excerpt: () => Excerpt
}

/** Share of the room for the beginning. The end gets more, because errors are usually there. */
const headShare = 0.4

/** Returns the text that replaces missing bytes. */
export const marker = (bytesMissing: number): string => `\n[... ${bytesMissing} bytes left out ...]\n`

/** Returns the text, or its beginning and end. If there is no room for a marker, only the beginning. */
export const excerpt = (given: string | Uint8Array, bytesMax: number): Excerpt => {
  const collected = collector(bytesMax)
  collected.add(typeof given === "string" ? encoder.encode(given) : given)
  return collected.excerpt()
}

export const collector = (limit: number): Collector => {
  const bytesMax = Math.max(0, Math.floor(limit) || 0)
  const whole = wellFormed()
  const head = lastBytes(bytesMax)
  const tail = lastBytes(bytesMax)
  const add = (text: Uint8Array) => {
    const room = bytesMax - head.total()
    head.add(text.subarray(0, room))
    tail.add(text.subarray(room))
  }
  return {
    add: (bytes) => add(whole(bytes)),
    excerpt: () => {
      add(whole())
      if (tail.total() === 0) return { text: decoder.decode(head.bytes()), bytesMissing: 0 }
      return ends(head.bytes(), tail.bytes(), head.total() + tail.total(), bytesMax)
    }
  }
}

/** Bytes between head and tail may be lost; head and tail then have `bytesMax` bytes each. */
const ends = (head: Uint8Array, tail: Uint8Array, total: number, bytesMax: number): Excerpt => {
  const room = bytesMax - marker(total).length
  if (room <= 0) {
    const only = prefix(head, bytesMax)
    return { text: decoder.decode(only), bytesMissing: total - only.byteLength }
  }
  const first = prefix(head, Math.floor(room * headShare))
  const last = suffix(joined(head, tail), room - first.byteLength)
  const bytesMissing = total - first.byteLength - last.byteLength
  return { text: `${decoder.decode(first)}${marker(bytesMissing)}${decoder.decode(last)}`, bytesMissing }
}

/** Shortens text to at most `charactersMax` characters, the last of which is then an ellipsis. */
export const short = (text: string, charactersMax: number): string => {
  // A character has at most two code units, and a command may have hundreds of kilobytes.
  const characters = Array.from(text.slice(0, 2 * charactersMax + 2))
  return characters.length > charactersMax ? `${characters.slice(0, charactersMax - 1).join("")}…` : text
}

const encoder = new TextEncoder()
const decoder = new TextDecoder("utf-8", { ignoreBOM: true })

/** Decodes pieces into well-formed UTF-8. A character is held back until it is complete; without a piece, flushes. */
export const wellFormed = (): ((piece?: Uint8Array) => Uint8Array) => {
  const pieces = new TextDecoder("utf-8", { ignoreBOM: true })
  return (piece) =>
    encoder.encode(piece === undefined ? pieces.decode() : pieces.decode(piece, { stream: true }))
}

export const decode = (bytes: Uint8Array): string => decoder.decode(bytes)

export const bytesOf = (text: string): number => encoder.encode(text).byteLength

/** Whether a byte is a continuation byte of UTF-8. */
const goesOn = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

const lengthOf = (lead: number): number => (lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4)

/** Returns the longest prefix of whole characters that fits. The input may end inside a character. */
const prefix = (bytes: Uint8Array, bytesMax: number): Uint8Array => {
  const end = Math.min(bytesMax, bytes.byteLength)
  let lead = end - 1
  while (lead > 0 && goesOn(bytes[lead])) lead -= 1
  const isWhole = end === 0 || lead + lengthOf(bytes[lead] ?? 0) <= end
  return bytes.subarray(0, isWhole ? end : lead)
}

/** Returns the longest suffix of whole characters that fits. The input may start inside a character. */
export const suffix = (bytes: Uint8Array, bytesMax: number): Uint8Array => {
  let start = Math.max(0, bytes.byteLength - bytesMax)
  while (goesOn(bytes[start])) start += 1
  return bytes.subarray(start)
}

const joined = (one: Uint8Array, other: Uint8Array): Uint8Array => {
  const both = new Uint8Array(one.byteLength + other.byteLength)
  both.set(one)
  both.set(other, one.byteLength)
  return both
}

export interface LastBytes {
  readonly add: (bytes: Uint8Array) => void
  readonly bytes: () => Uint8Array
  /** Number of all added bytes. */
  readonly total: () => number
}

/** Keeps the last `bytesMax` bytes of its input, in at most twice that memory. */
export const lastBytes = (bytesMax: number): LastBytes => {
  let buffer = new Uint8Array(0)
  let length = 0
  let total = 0
  const kept = () => buffer.subarray(Math.max(0, length - bytesMax), length)
  return {
    add: (bytes) => {
      total += bytes.byteLength
      const last = bytes.subarray(Math.max(0, bytes.byteLength - bytesMax))
      if (length + last.byteLength > buffer.byteLength) {
        const before = kept()
        const size = Math.min(2 * bytesMax, Math.max(1024, 2 * (before.byteLength + last.byteLength)))
        // A buffer of maximum size is reused: the kept bytes move to its beginning.
        buffer = size > buffer.byteLength ? new Uint8Array(size) : buffer
        buffer.set(before)
        length = before.byteLength
      }
      buffer.set(last, length)
      length += last.byteLength
    },
    bytes: () => kept().slice(),
    total: () => total
  }
}
