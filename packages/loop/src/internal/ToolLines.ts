/** Selects the lines of a file for a model: as many as fit, and the offset to continue at. */
import * as Excerpt from "../Excerpt.ts"

export interface Asked {
  /** From 1. */
  readonly offset: number
  readonly limit: number
  readonly outputBytesMax: number
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Whether the content is not UTF-8, or contains NUL. */
const isBinary = (bytes: Uint8Array): boolean => {
  if (bytes.includes(0)) return true
  try {
    decoder.decode(bytes)
    return false
  } catch {
    return true
  }
}

const newline = 0x0a

/** Returns the end of the line that starts at `at`: after its line break, or at the end of the file. */
const endOfLine = (bytes: Uint8Array, at: number): number => {
  const end = bytes.indexOf(newline, at)
  return end === -1 ? bytes.byteLength : end + 1
}

/** Locates the requested lines without a list of all lines, which could have an entry for each byte. */
const place = (bytes: Uint8Array, { limit, offset, outputBytesMax }: Asked) => {
  let lines = 0
  let shown = 0
  let start = bytes.byteLength
  let end = bytes.byteLength
  for (let at = 0; at < bytes.byteLength; lines++) {
    const next = endOfLine(bytes, at)
    if (lines === offset - 1) {
      start = at
      end = at
    }
    // A single line over the limit is returned without its middle; otherwise nothing after it could be read.
    const fits = next - start <= outputBytesMax || shown === 0
    if (lines === offset - 1 + shown && shown < limit && fits) {
      end = next
      shown++
    }
    at = next
  }
  return { lines, shown, start, end }
}

export const read = (bytes: Uint8Array, asked: Asked) => {
  const binary = isBinary(bytes)
  const { end, lines, shown, start } = binary ? { end: 0, lines: 0, shown: 0, start: 0 } : place(bytes, asked)
  const { bytesMissing, text } = Excerpt.excerpt(bytes.subarray(start, end), asked.outputBytesMax)
  const next = asked.offset + shown
  return {
    text,
    binary,
    bytes: bytes.byteLength,
    lines,
    first_line: shown === 0 ? 0 : asked.offset,
    lines_shown: shown,
    truncated: bytesMissing > 0,
    ...(shown > 0 && next <= lines ? { next_offset: next } : {})
  }
}
