/**
 * The beginning and the end of a text that is too long for whoever reads it, and how much is missing between them.
 *
 * What a command wrote says most where it began and where it stopped. Pure; no character is cut in two, and a byte
 * sequence that is none becomes U+FFFD.
 */

export interface Excerpt {
  /** At most `bytesMax` bytes of UTF-8, with the marker in it where something is missing. */
  readonly text: string
  /** Of the text as UTF-8. 0 where it is whole. */
  readonly bytesMissing: number
}

/** Of what there is room for, how much goes to the beginning; the rest goes to the end, where errors are told. */
const headShare = 0.4

/** What stands where bytes are missing. */
export const marker = (bytesMissing: number): string => `\n[... ${bytesMissing} bytes left out ...]\n`

/** The text, or its beginning and its end. Where there is no room for a marker, only the beginning. */
export const excerpt = (given: string | Uint8Array, bytesMax: number): Excerpt => {
  const text = typeof given === "string" ? given : decoder.decode(given)
  // A character is one to three bytes for each of its units.
  if (text.length * 3 <= bytesMax) return { text, bytesMissing: 0 }
  const bytes = encoder.encode(text)
  const total = bytes.byteLength
  if (total <= bytesMax) return { text, bytesMissing: 0 }
  const room = bytesMax - marker(total).length
  if (room <= 0) {
    const end = startOfCharacter(bytes, Math.max(0, bytesMax))
    return { text: decoder.decode(bytes.subarray(0, end)), bytesMissing: total - end }
  }
  const headEnd = startOfCharacter(bytes, Math.floor(room * headShare))
  const tailStart = nextCharacter(bytes, total - (room - headEnd))
  const bytesMissing = tailStart - headEnd
  return {
    text: `${decoder.decode(bytes.subarray(0, headEnd))}${marker(bytesMissing)}${decoder.decode(bytes.subarray(tailStart))}`,
    bytesMissing
  }
}

const encoder = new TextEncoder()
const decoder = new TextDecoder("utf-8", { ignoreBOM: true })

/** Whether a byte of UTF-8 goes on with a character rather than begins one. */
const goesOn = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80

const startOfCharacter = (bytes: Uint8Array, at: number): number => {
  let start = at
  while (start > 0 && goesOn(bytes[start])) start -= 1
  return start
}

const nextCharacter = (bytes: Uint8Array, at: number): number => {
  let start = at
  while (start < bytes.byteLength && goesOn(bytes[start])) start += 1
  return start
}
