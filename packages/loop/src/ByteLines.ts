/** Lines from a stream of bytes, and lines written out. The length of a line in memory is bounded. */
import { type Effect, Stream } from "effect"

export interface ByteLines<E, E2> {
  readonly input: Stream.Stream<Uint8Array, E>
  /** Writes a whole line, including its line end. */
  readonly write: (line: string) => Effect.Effect<void, E2>
}

/**
 * Yields the lines that are not blank, without their line ends; the last line needs none. A line over `bytesMax` yields
 * `undefined` as soon as it exceeds the limit. Its bytes are not kept, and the rest of it is skipped.
 */
export const read = <E>(
  input: Stream.Stream<Uint8Array, E>,
  bytesMax: number
): Stream.Stream<string | undefined, E> =>
  Stream.suspend(() => {
    const split = splitter(bytesMax)
    return input.pipe(
      Stream.concat(Stream.succeed(newline)),
      Stream.map(split),
      Stream.flattenIterable,
      Stream.filter((line) => line?.trim() !== "")
    )
  })

const newline = new TextEncoder().encode("\n")

/** Splits chunks as {@link read} does, also blank lines, for bytes that no stream brings. */
export const splitter = (bytesMax: number): ((chunk: Uint8Array) => ReadonlyArray<string | undefined>) => {
  let pieces: Array<Uint8Array> = []
  let bytes = 0
  return (chunk) => {
    const lines: Array<string | undefined> = []
    for (let at = 0; at < chunk.byteLength;) {
      const found = chunk.indexOf(newline[0]!, at)
      const piece = chunk.subarray(at, found === -1 ? chunk.byteLength : found)
      const isOver = bytes > bytesMax
      bytes += piece.byteLength
      if (bytes <= bytesMax) pieces.push(piece)
      else if (!isOver) {
        pieces = []
        lines.push(undefined)
      }
      at += piece.byteLength + 1
      if (found === -1) continue
      if (bytes <= bytesMax) lines.push(decode(pieces))
      pieces = []
      bytes = 0
    }
    return lines
  }
}

const decode = (pieces: ReadonlyArray<Uint8Array>): string => {
  const decoder = new TextDecoder()
  return pieces.map((piece) => decoder.decode(piece, { stream: true })).join("") + decoder.decode()
}
