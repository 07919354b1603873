/**
 * The SDK's stream of messages over bytes that Effects read and write.
 *
 * Bounded on both sides. A message over its limit ends the connection. While too many requests wait for their answers,
 * because the client does not read them, no more input is read.
 */
import { type AnyMessage, ndJsonStream, type Stream as AcpStream } from "@agentclientprotocol/sdk"
import { Deferred, Effect, FiberSet, type Scope, Stream } from "effect"

/** Bytes of a client, and a way to answer it. */
export interface AcpBytes<E, E2> {
  readonly input: Stream.Stream<Uint8Array, E>
  /** Writes a whole line, including its line end. */
  readonly write: (line: string) => Effect.Effect<void, E2>
}

export interface Limits {
  /** Longest message of the client. */
  readonly messageBytesMax: number
  /** Requests that may wait for their answers before no more input is read. */
  readonly requestsPendingMax: number
}

export interface Transport<E, E2> {
  readonly stream: AcpStream
  /** Fails when the input or the output has failed. */
  readonly broken: Effect.Effect<never, E | E2>
}

export const make = Effect.fnUntraced(function* <E, E2>(
  { input, write }: AcpBytes<E, E2>,
  { messageBytesMax, requestsPendingMax }: Limits
): Effect.fn.Return<Transport<E, E2>, never, Scope.Scope> {
  const broken = yield* Deferred.make<never, E | E2>()
  const run = yield* FiberSet.makeRuntimePromise<never, void, E2>()
  const pending = makePending(requestsPendingMax)
  const bytes = yield* Stream.toReadableStreamEffect(
    input.pipe(
      Stream.tap(() => pending.hasRoom),
      Stream.tapError((error) => Deferred.fail(broken, error))
    ),
    { strategy: { highWaterMark: 0 } }
  )
  const decoder = new TextDecoder()
  const lines = new WritableStream<Uint8Array>({
    // The SDK writes one message at a time, as one piece.
    write: (line) =>
      run(write(decoder.decode(line)).pipe(Effect.tapCause((cause) => Deferred.failCause(broken, cause))))
  })
  const messages = ndJsonStream(lines, bytes, { maxMessageBytes: messageBytesMax })
  return {
    broken: Deferred.await(broken),
    stream: {
      readable: messages.readable.pipeThrough(
        new TransformStream<AnyMessage, AnyMessage>({
          transform: (message, controller) => {
            if (isAnswered(message)) pending.begin()
            controller.enqueue(message)
          }
        })
      ),
      writable: new WritableStream<AnyMessage>({
        write: async (message) => {
          const writer = messages.writable.getWriter()
          try {
            await writer.write(message)
          } finally {
            writer.releaseLock()
            if (!("method" in message)) pending.end()
          }
        }
      })
    }
  }
})

/** Whether the SDK answers a message: all but notifications and responses. */
const isAnswered = (message: object): boolean =>
  "method" in message ? "id" in message : !("id" in message || "result" in message || "error" in message)

const makePending = (max: number) => {
  let count = 0
  let waiting: Array<() => void> = []
  return {
    begin: () => void count++,
    end: () => {
      count = Math.max(0, count - 1)
      if (count >= max) return
      const ready = waiting
      waiting = []
      for (const resume of ready) resume()
    },
    hasRoom: Effect.callback<void>((resume) => {
      if (count < max) return resume(Effect.void)
      const ready = () => resume(Effect.void)
      waiting.push(ready)
      return Effect.sync(() => {
        waiting = waiting.filter((one) => one !== ready)
      })
    })
  }
}
