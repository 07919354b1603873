/** Lines of a file for a model: where they begin and end, as many as fit, and where to go on. */
import * as Excerpt from "../Excerpt.ts"

export interface Asked {
  /** From 1. */
  readonly offset: number
  readonly limit: number
  readonly outputBytesMax: number
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Whether it is no UTF-8, or holds what no text does. */
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

/** Where the line ends that begins at `at`: after its line break, or where the file does. */
const endOfLine = (bytes: Uint8Array, at: number): number => {
  const end = bytes.indexOf(newline, at)
  return end === -1 ? bytes.byteLength : end + 1
}

/** What is wanted, as places in the file; a list of all lines could have as many entries as the file has bytes. */
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
    // One line that is too much by itself is given without its middle: otherwise nothing could be read after it.
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
