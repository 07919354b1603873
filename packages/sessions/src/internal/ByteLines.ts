/**
 * Bytes that come in and are lines, and lines that go out. A line without an end is not gathered for ever.
 */
import { Effect, Stream } from "effect"

export interface ByteLines<E, E2> {
  readonly input: Stream.Stream<Uint8Array, E>
  /** A whole line, with its end. */
  readonly write: (line: string) => Effect.Effect<void, E2>
}

/** Those that are not blank, without their ends. One of more than `bytesMax` fails with `tooLong`. */
export const read = <E, E2>(
  input: Stream.Stream<Uint8Array, E>,
  bytesMax: number,
  tooLong: E2
): Stream.Stream<string, E | E2> =>
  Stream.suspend(() => {
    const split = splitter(bytesMax)
    return input.pipe(
      Stream.mapEffect((chunk) => {
        const lines = split(chunk)
        return lines === undefined ? Effect.fail(tooLong) : Effect.succeed(lines)
      }),
      Stream.flattenIterable,
      Stream.filter((line) => line.trim() !== "")
    )
  })

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const newline = 0x0a

/** Takes pieces as they come, and gives the lines that they complete; `undefined` where one is too long. */
const splitter = (bytesMax: number) => {
  let pieces: Array<Uint8Array> = []
  let pending = 0
  return (chunk: Uint8Array): ReadonlyArray<string> | undefined => {
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
  }
}

const decode = (pieces: ReadonlyArray<Uint8Array>): string => {
  const decoder = new TextDecoder()
  return pieces.map((piece) => decoder.decode(piece, { stream: true })).join("") + decoder.decode()
}
