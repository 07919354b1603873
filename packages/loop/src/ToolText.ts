/**
 * Text for a model out of bytes of any length: its beginning and its end, and between them what is not there.
 *
 * Nothing splits a code point, what comes out is never longer than was allowed, and the number in the marker is exact:
 * the bytes of the head, of the tail and those that are missing are all there were. Bytes that are no UTF-8 become
 * U+FFFD, which has three. Pure; a collector costs as much memory as it may give text, whatever comes.
 */
import * as ToolBytes from "./internal/ToolBytes.ts"

export interface ToolText {
  /** At most as many bytes, in UTF-8, as were allowed. */
  readonly text: string
  readonly truncated: boolean
  /** Of what came, not of `text`: all of them, and those that are not shown. */
  readonly bytes: number
  readonly missingBytes: number
}

/** Takes bytes as they come. */
export interface Collector {
  /** Answers how many bytes there have been. */
  readonly add: (bytes: Uint8Array) => number
  readonly text: () => ToolText
}

/** Less than this is raised to it: a marker and something on each side of it. */
export const textBytesMin = 256

/** What a model is told of what it is not shown. */
export const marker = (missingBytes: number): string =>
  `\n[… ${missingBytes.toLocaleString("en-US")} bytes not shown; write to a file and read parts of it …]\n`

export const collector = (textBytesMax: number): Collector => {
  const limit = limitOf(textBytesMax)
  const head = ToolBytes.beginning(limit)
  const tail = ToolBytes.ring(limit)
  let bytes = 0
  return {
    add: (chunk) => {
      bytes += chunk.byteLength
      tail.add(head.add(chunk))
      return bytes
    },
    text: () => assemble(head.bytes(), tail.bytes(), bytes, limit)
  }
}

/** Of bytes that are there already. */
export const truncate = (bytes: Uint8Array, textBytesMax: number): ToolText =>
  assemble(bytes, none, bytes.byteLength, limitOf(textBytesMax))

/**
 * The end alone, with nothing in place of what came before it: of a log, which says by itself what it has lost.
 * `cut` where the bytes are themselves the end of something, and may begin inside a code point.
 */
export const tail = (bytes: Uint8Array, textBytesMax: number, cut: boolean): ToolText => {
  const text = ToolBytes.suffix(bytes, Math.max(0, textBytesMax), cut)
  const missingBytes = bytes.byteLength - text.byteLength
  return { text: ToolBytes.decode(text), truncated: missingBytes > 0, bytes: bytes.byteLength, missingBytes }
}

/** A line for lists and messages: at most so many characters, and an ellipsis where there were more. */
export const short = (text: string, charactersMax: number): string => {
  // Enough of it, however its characters are encoded; a command may have hundreds of kilobytes.
  const characters = Array.from(text.slice(0, 2 * charactersMax + 2))
  return characters.length > charactersMax ? `${characters.slice(0, charactersMax - 1).join("")}…` : text
}

const none = new Uint8Array(0)

const limitOf = (textBytesMax: number) =>
  Number.isFinite(textBytesMax) ? Math.max(textBytesMin, Math.floor(textBytesMax)) : textBytesMin

/** `tail` is the end of what came after `head`; between the two may be more that nobody has kept. */
const assemble = (head: Uint8Array, tail: Uint8Array, bytes: number, limit: number): ToolText => {
  const dropped = bytes - head.byteLength - tail.byteLength
  if (dropped === 0 && head.byteLength + tail.byteLength <= limit) {
    const whole = ToolBytes.joined(head, tail)
    if (ToolBytes.textBytes(whole) <= limit) {
      return { text: ToolBytes.decode(whole), truncated: false, bytes, missingBytes: 0 }
    }
  }
  const room = limit - ToolBytes.lengthOf(marker(bytes))
  const first = ToolBytes.prefix(head, Math.floor(room / 2))
  const rest = dropped === 0 ? ToolBytes.joined(head.subarray(first.byteLength), tail) : tail
  const last = ToolBytes.suffix(rest, room - ToolBytes.textBytes(first), dropped > 0)
  const missingBytes = bytes - first.byteLength - last.byteLength
  return {
    text: `${ToolBytes.decode(first)}${marker(missingBytes)}${ToolBytes.decode(last)}`,
    truncated: true,
    bytes,
    missingBytes
  }
}
