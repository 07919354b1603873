/** Bytes that come in and are lines, and lines that go out. A line without an end is not gathered for ever. */
import { type Effect, Stream } from "effect"

export interface ByteLines<E, E2> {
  readonly input: Stream.Stream<Uint8Array, E>
  /** A whole line, with its end. */
  readonly write: (line: string) => Effect.Effect<void, E2>
}

/**
 * Those that are not blank, without their ends; the last needs none. One over `bytesMax` is `undefined`, as soon as it
 * is one: nothing of it is kept, and what is left of it is passed over.
 */
export const read = <E>(
  input: Stream.Stream<Uint8Array, E>,
  bytesMax: number
): Stream.Stream<string | undefined, E> =>
  Stream.suspend(() => {
    const split = makeSplitter(bytesMax)
    return input.pipe(
      Stream.concat(Stream.succeed(newline)),
      Stream.map(split),
      Stream.flattenIterable,
      Stream.filter((line) => line?.trim() !== "")
    )
  })

const newline = new TextEncoder().encode("\n")

const makeSplitter = (bytesMax: number) => {
  let pieces: Array<Uint8Array> = []
  let bytes = 0
  return (chunk: Uint8Array): ReadonlyArray<string | undefined> => {
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
