/**
 * Bytes that come in and are lines, and lines that go out. A line without an end is not gathered for ever.
 */
import { Effect, Stream } from "effect"

export interface ByteLines<E, E2> {
  readonly input: Stream.Stream<Uint8Array, E>
  /** A whole line, with its end. */
  readonly write: (line: string) => Effect.Effect<void, E2>
}

/** Those that are not blank, without their ends; the last needs none. One over `bytesMax` fails with `tooLong`. */
export const read = <E, E2>(
  input: Stream.Stream<Uint8Array, E>,
  bytesMax: number,
  tooLong: E2
): Stream.Stream<string, E | E2> =>
  Stream.suspend(() => {
    const splitter = makeSplitter(bytesMax)
    return input.pipe(
      Stream.mapEffect((chunk) => {
        const lines = splitter.split(chunk)
        return lines === undefined ? Effect.fail(tooLong) : Effect.succeed(lines)
      }),
      Stream.flattenIterable,
      Stream.concat(Stream.sync(splitter.rest)),
      Stream.filter((line) => line.trim() !== "")
    )
  })

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const newline = 0x0a

const makeSplitter = (bytesMax: number) => {
  let pieces: Array<Uint8Array> = []
  let pending = 0
  return {
    /** The lines that this completes; `undefined` where one is too long. */
    split: (chunk: Uint8Array): ReadonlyArray<string> | undefined => {
      const lines: Array<string> = []
      let at = 0
      for (let end = chunk.indexOf(newline); end !== -1; end = chunk.indexOf(newline, at)) {
        if (pending + end - at > bytesMax) return undefined
        lines.push(decode([...pieces, chunk.subarray(at, end)]))
        pieces = []
        pending = 0
        at = end + 1
      }
      const rest = chunk.subarray(at)
      pending += rest.byteLength
      if (pending > bytesMax) return undefined
      if (rest.byteLength > 0) pieces.push(rest)
      return lines
    },
    /** What came after the last of them. */
    rest: (): string => decode(pieces)
  }
}

const decode = (pieces: ReadonlyArray<Uint8Array>): string => {
  const decoder = new TextDecoder()
  return pieces.map((piece) => decoder.decode(piece, { stream: true })).join("") + decoder.decode()
}
