/**
 * A transport of MCP over bytes that come in and lines that go out: a message is a line.
 *
 * What is no message is told to the log and left out, as the protocol's own transport does; a line without an end is
 * not gathered for ever.
 */
import { Deferred, Effect, FiberSet, type Scope, Semaphore, Stream } from "effect"
import type { McpLines, McpTransport } from "../McpTools.ts"

/** One message: the largest file that can be written, as JSON. */
export const lineBytesMax = 64 * 1024 * 1024

/** Takes pieces as they come, and gives the lines that they complete; `undefined` where one is too long. */
export const splitter = (bytesMax: number) => {
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

/** `pump` fails with `tooLong` of such a line. */
export const make = Effect.fnUntraced(function* <E, E2, E3>(
  { input, write }: McpLines<E, E2>,
  tooLong: E3
): Effect.fn.Return<
  { readonly transport: McpTransport; readonly pump: Effect.Effect<void, E | E2 | E3> },
  never,
  Scope.Scope
> {
  const run = yield* FiberSet.makeRuntimePromise<never, void, never>()
  const lock = yield* Semaphore.make(1)
  const broken = yield* Deferred.make<never, E2>()
  const transport: McpTransport = {
    start: () => Promise.resolve(),
    send: (message) =>
      run(
        lock.withPermits(1)(
          write(`${JSON.stringify(message)}\n`).pipe(
            Effect.catchCause((cause) => Effect.asVoid(Deferred.failCause(broken, cause)))
          )
        )
      ),
    close: () => {
      transport.onclose?.()
      return Promise.resolve()
    }
  }
  const split = splitter(lineBytesMax)
  const pump = Stream.runForEach(input, (chunk) => {
    const lines = split(chunk)
    return lines === undefined
      ? Effect.fail(tooLong)
      : Effect.forEach(lines, take(transport), { discard: true })
  })
  return { transport, pump: Effect.raceFirst(pump, Deferred.await(broken)) }
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const newline = 0x0a

const decode = (pieces: ReadonlyArray<Uint8Array>): string => {
  const decoder = new TextDecoder()
  return pieces.map((piece) => decoder.decode(piece, { stream: true })).join("") + decoder.decode()
}

const take = (transport: McpTransport) => (line: string) => {
  if (line.trim() === "") return Effect.void
  const message = parse(line)
  return message === undefined
    ? Effect.logWarning("a line that is no MCP message was left out")
    : Effect.sync(() => transport.onmessage?.(message as never))
}

/** What kind of message it is, whoever receives it looks at. */
const parse = (line: string): object | undefined => {
  try {
    const parsed: unknown = JSON.parse(line)
    return typeof parsed === "object" && parsed !== null && "jsonrpc" in parsed && parsed.jsonrpc === "2.0"
      ? parsed
      : undefined
  } catch {
    return undefined
  }
}
