/**
 * Bytes that are to become text: bounded buffers for them, and where they can be cut.
 *
 * A cut lies between two code points, or where bytes that are no UTF-8 begin or end; what a cut gives decodes by itself
 * to what it would be in the whole.
 */

/** What U+FFFD has in UTF-8. */
const replacementBytes = 3

const decoder = new TextDecoder("utf-8", { ignoreBOM: true })
const encoder = new TextEncoder()

export const decode = (bytes: Uint8Array): string => decoder.decode(bytes)

export const lengthOf = (text: string): number => encoder.encode(text).byteLength

export const joined = (one: Uint8Array, other: Uint8Array): Uint8Array => {
  if (other.byteLength === 0) return one
  if (one.byteLength === 0) return other
  const both = new Uint8Array(one.byteLength + other.byteLength)
  both.set(one)
  both.set(other, one.byteLength)
  return both
}

const isContinuation = (byte: number | undefined) => byte !== undefined && byte >= 0x80 && byte <= 0xbf

/** What may follow a leading byte: Unicode's table 3-7, well-formed UTF-8. */
const secondRange = (lead: number): readonly [low: number, high: number] =>
  lead === 0xe0
    ? [0xa0, 0xbf]
    : lead === 0xed
      ? [0x80, 0x9f]
      : lead === 0xf0
        ? [0x90, 0xbf]
        : lead === 0xf4
          ? [0x80, 0x8f]
          : [0x80, 0xbf]

const lengthOfLead = (lead: number): number =>
  lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0

/**
 * The next piece that decodes to one code point: `length` bytes, or, for `valid` false, as many as the decoder replaces
 * by one U+FFFD (the maximal subpart, as the Encoding Standard has it).
 */
const piece = (bytes: Uint8Array, at: number): { readonly length: number; readonly valid: boolean } => {
  const lead = bytes[at]!
  const length = lengthOfLead(lead)
  if (length === 1) return { length, valid: true }
  if (length === 0) return { length: 1, valid: false }
  const [low, high] = secondRange(lead)
  const second = bytes[at + 1]
  if (second === undefined || second < low || second > high) return { length: 1, valid: false }
  for (let index = 2; index < length; index++) {
    if (!isContinuation(bytes[at + index])) return { length: index, valid: false }
  }
  return { length, valid: true }
}

const costOf = ({ length, valid }: { readonly length: number; readonly valid: boolean }) =>
  valid ? length : replacementBytes

/** What bytes have as text, in UTF-8. */
export const textBytes = (bytes: Uint8Array): number => {
  let cost = 0
  for (let at = 0; at < bytes.byteLength;) {
    const next = piece(bytes, at)
    cost += costOf(next)
    at += next.length
  }
  return cost
}

/** As much of the beginning as has at most so many bytes as text. */
export const prefix = (bytes: Uint8Array, textBytesMax: number): Uint8Array => {
  let at = 0
  let cost = 0
  while (at < bytes.byteLength) {
    const next = piece(bytes, at)
    cost += costOf(next)
    if (cost > textBytesMax) break
    at += next.length
  }
  return bytes.subarray(0, at)
}

/**
 * As much of the end. What may be the rest of a code point whose beginning is not there is left out; `cut` says that
 * something came before these bytes.
 */
export const suffix = (bytes: Uint8Array, textBytesMax: number, cut: boolean): Uint8Array => {
  let cost = 0
  const from = Math.max(0, bytes.byteLength - textBytesMax)
  let at = from > 0 || cut ? synchronized(bytes, from) : 0
  for (let index = at; index < bytes.byteLength;) {
    const next = piece(bytes, index)
    cost += costOf(next)
    index += next.length
  }
  while (cost > textBytesMax && at < bytes.byteLength) {
    const next = piece(bytes, at)
    cost -= costOf(next)
    at += next.length
  }
  return bytes.subarray(at)
}

/**
 * At `from` or up to three bytes after it: where a code point begins. A fourth continuation in a row belongs to nothing
 * that came before.
 */
const synchronized = (bytes: Uint8Array, from: number): number => {
  let at = from
  while (at < from + 3 && isContinuation(bytes[at])) at++
  return at
}

/** How many bytes at the end may be the beginning of a code point that is still to come. */
export const unfinishedBytes = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.byteLength); back++) {
    const at = bytes.byteLength - back
    if (isContinuation(bytes[at])) continue
    const { length, valid } = piece(bytes, at)
    return !valid && length === back && lengthOfLead(bytes[at]!) > back ? back : 0
  }
  return 0
}

/** What a buffer has at least, once it has anything. */
const initialBytes = 1024

const grown = (buffer: Uint8Array, neededBytes: number, bytesMax: number): Uint8Array => {
  if (neededBytes <= buffer.byteLength) return buffer
  const larger = new Uint8Array(
    Math.min(bytesMax, Math.max(neededBytes, 2 * buffer.byteLength, initialBytes))
  )
  larger.set(buffer)
  return larger
}

export interface Beginning {
  /** Gives back what it has no room for. */
  readonly add: (chunk: Uint8Array) => Uint8Array
  readonly bytes: () => Uint8Array
}

/** The first bytes that come. */
export const beginning = (bytesMax: number): Beginning => {
  let buffer = new Uint8Array(0)
  let kept = 0
  return {
    add: (chunk) => {
      const taken = Math.min(bytesMax - kept, chunk.byteLength)
      if (taken <= 0) return chunk
      buffer = grown(buffer, kept + taken, bytesMax) as Uint8Array<ArrayBuffer>
      buffer.set(chunk.subarray(0, taken), kept)
      kept += taken
      return chunk.subarray(taken)
    },
    bytes: () => buffer.slice(0, kept)
  }
}

export interface Ring {
  readonly add: (chunk: Uint8Array) => void
  /** In the order they came. */
  readonly bytes: () => Uint8Array
  /** All that were added. */
  readonly total: () => number
}

/** The last bytes that came. */
export const ring = (bytesMax: number): Ring => {
  let buffer = new Uint8Array(0)
  let kept = 0
  /** Where the oldest byte is, once the buffer is full. */
  let oldest = 0
  let total = 0
  const write = (chunk: Uint8Array) => {
    const straight = Math.min(chunk.byteLength, bytesMax - oldest)
    buffer.set(chunk.subarray(0, straight), oldest)
    buffer.set(chunk.subarray(straight), 0)
    oldest = (oldest + chunk.byteLength) % bytesMax
  }
  return {
    add: (chunk) => {
      total += chunk.byteLength
      if (bytesMax <= 0 || chunk.byteLength === 0) return
      const room = bytesMax - kept
      const filling = chunk.subarray(0, room)
      buffer = grown(buffer, kept + filling.byteLength, bytesMax) as Uint8Array<ArrayBuffer>
      buffer.set(filling, kept)
      kept += filling.byteLength
      const over = chunk.subarray(room)
      if (over.byteLength > 0) write(over.subarray(Math.max(0, over.byteLength - bytesMax)))
    },
    bytes: () =>
      kept < bytesMax
        ? buffer.slice(0, kept)
        : joined(buffer.slice(oldest, kept), buffer.slice(0, oldest)).slice(),
    total: () => total
  }
}
