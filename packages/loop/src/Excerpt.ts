/**
 * The beginning and the end of a text that is too long for its reader, and how much is missing between them.
 *
 * Output says most where it began and where it stopped. No character is cut in two, a byte sequence that is not UTF-8
 * becomes U+FFFD, and what comes out is never longer than allowed. Pure; memory is bounded however much comes.
 */

export interface Excerpt {
  /** At most `bytesMax` bytes of UTF-8, with the marker in it where something is missing. */
  readonly text: string
  /** Of the text as UTF-8. 0 where it is whole. */
  readonly bytesMissing: number
}

/** Takes bytes as they come. */
export interface Collector {
  readonly add: (bytes: Uint8Array) => void
  readonly excerpt: () => Excerpt
}

/** Of what there is room for, how much goes to the beginning; the rest goes to the end, where errors are told. */
const headShare = 0.4

/** What stands where bytes are missing. */
export const marker = (bytesMissing: number): string => `\n[... ${bytesMissing} bytes left out ...]\n`

/** The text, or its beginning and its end. Where there is no room for a marker, only the beginning. */
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

/** Between the two may be bytes that were not kept; then each of them is as long as may be shown. */
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

/** A line for lists and messages: at most so many characters, and an ellipsis where there were more. */
export const short = (text: string, charactersMax: number): string => {
  // Enough of it, however its characters are encoded; a command may have hundreds of kilobytes.
  const characters = Array.from(text.slice(0, 2 * charactersMax + 2))
  return characters.length > charactersMax ? `${characters.slice(0, charactersMax - 1).join("")}…` : text
}

const encoder = new TextEncoder()
const decoder = new TextDecoder("utf-8", { ignoreBOM: true })

/** Bytes in pieces as UTF-8 that is whole: a character comes when its last byte has. Without a piece, what is left. */
export const wellFormed = (): ((piece?: Uint8Array) => Uint8Array) => {
  const pieces = new TextDecoder("utf-8", { ignoreBOM: true })
  return (piece) =>
    encoder.encode(piece === undefined ? pieces.decode() : pieces.decode(piece, { stream: true }))
}

export const decode = (bytes: Uint8Array): string => decoder.decode(bytes)

export const bytesOf = (text: string): number => encoder.encode(text).byteLength

/** Whether a byte of UTF-8 goes on with a character rather than begins one. */
const goesOn = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

const lengthOf = (lead: number): number => (lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4)

/** As much of the beginning of UTF-8, which may itself end inside a character, as fits. */
const prefix = (bytes: Uint8Array, bytesMax: number): Uint8Array => {
  const end = Math.min(bytesMax, bytes.byteLength)
  let lead = end - 1
  while (lead > 0 && goesOn(bytes[lead])) lead -= 1
  const isWhole = end === 0 || lead + lengthOf(bytes[lead] ?? 0) <= end
  return bytes.subarray(0, isWhole ? end : lead)
}

/** As much of the end of UTF-8, which may itself begin inside a character, as fits. */
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
  /** All that were added. */
  readonly total: () => number
}

/** The last bytes of all that come, in at most twice their memory. */
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
        // Where it can grow no more, what is kept moves to its beginning.
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
