/**
 * A transport of MCP over bytes that come in and lines that go out: a message is a line.
 *
 * What is no message is told to the log and left out, as the protocol's own transport does.
 */
import { Deferred, Effect, FiberSet, type Scope, Semaphore, Stream } from "effect"
import type { McpTransport } from "../McpTools.ts"
import * as ByteLines from "../ByteLines.ts"

/** One message: the largest file that can be written, as JSON. */
export const lineBytesMax = 64 * 1024 * 1024

/** `pump` fails with `tooLong` of such a line. */
export const make = Effect.fnUntraced(function* <E, E2, E3>(
  { input, write }: ByteLines.ByteLines<E, E2>,
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
  const pump = Stream.runForEach(ByteLines.read(input, lineBytesMax), (line) =>
    line === undefined ? Effect.fail(tooLong) : take(transport)(line)
  )
  return { transport, pump: Effect.raceFirst(pump, Deferred.await(broken)) }
})

const take = (transport: McpTransport) => (line: string) => {
  const message = parse(line)
  return message === undefined
    ? Effect.logWarning("a line that is no MCP message was left out")
    : // Whoever receives it walks down into it, and there may be no bottom.
      Effect.try(() => transport.onmessage?.(message as never)).pipe(
        Effect.catch(({ cause }) =>
          Effect.logWarning(`an MCP message that cannot be read was left out: ${String(cause).slice(0, 200)}`)
        )
      )
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
