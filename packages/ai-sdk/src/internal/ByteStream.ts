/** Streams of bytes, as the web and the AI SDK have them. */
import { Buffer } from "node:buffer"

/** A stream of these bytes. */
export const of = (bytes: Uint8Array): ReadableStream<Uint8Array> =>
  new ReadableStream<Uint8Array>({
    start: (controller) => {
      if (bytes.byteLength > 0) controller.enqueue(bytes)
      controller.close()
    }
  })

/**
 * Reads a stream to its end. Cancels it when the signal aborts. Also cancels it beyond `bytesMax`, and then returns
 * more bytes than that, so that the file operation that has the limit refuses them.
 */
export const whole = async (
  stream: ReadableStream<Uint8Array>,
  bytesMax: number,
  signal?: AbortSignal
): Promise<Uint8Array> => {
  const reader = stream.getReader()
  const cancel = () => void reader.cancel(signal?.reason).catch(() => undefined)
  signal?.addEventListener("abort", cancel, { once: true })
  try {
    signal?.throwIfAborted()
    const pieces: Array<Uint8Array> = []
    let bytes = 0
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      pieces.push(next.value)
      bytes += next.value.byteLength
      if (bytes > bytesMax) break
    }
    signal?.throwIfAborted()
    return Buffer.concat(pieces)
  } finally {
    signal?.removeEventListener("abort", cancel)
    // Does nothing if it has ended.
    cancel()
  }
}

/** A readable stream that is fed from outside. */
export interface Channel {
  readonly stream: ReadableStream<Uint8Array>
  /** Adds bytes, and waits until there is room for more. Drops them if the reader has cancelled. */
  readonly push: (bytes: Uint8Array) => Promise<void>
  readonly close: () => void
  readonly fail: (error: unknown) => void
}

/** `bytesMax` are kept for a reader that is behind. */
export const channel = (bytesMax: number): Channel => {
  let controller!: ReadableStreamDefaultController<Uint8Array>
  let isOver = false
  let resume: () => void = () => undefined
  const stream = new ReadableStream<Uint8Array>(
    {
      start: (given) => {
        controller = given
      },
      pull: () => resume(),
      cancel: () => {
        isOver = true
        resume()
      }
    },
    { highWaterMark: bytesMax, size: (bytes) => bytes?.byteLength ?? 0 }
  )
  return {
    stream,
    push: async (bytes) => {
      if (isOver || bytes.byteLength === 0) return
      controller.enqueue(bytes)
      if ((controller.desiredSize ?? 0) > 0) return
      const { promise, resolve } = Promise.withResolvers<void>()
      resume = resolve
      await promise
    },
    close: () => {
      if (!isOver) controller.close()
      isOver = true
    },
    fail: (error) => {
      if (!isOver) controller.error(error)
      isOver = true
    }
  }
}

/** A writable stream, whose bytes an iterable yields. */
export const pipe = (): {
  readonly writable: WritableStream<Uint8Array>
  readonly readable: AsyncIterable<Uint8Array>
} => {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>()
  const reader = readable.getReader()
  return {
    writable,
    readable: {
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          const { done, value } = await reader.read()
          return done ? { done, value: undefined } : { done, value }
        },
        // Also while a read is pending, where a generator would wait. Writing then rejects with this error.
        return: async () => {
          // Rejects if the writer has aborted. The iterable has thrown that error already.
          await reader
            .cancel(new Error("the process no longer reads its standard input"))
            .catch(() => undefined)
          return { done: true, value: undefined }
        }
      })
    }
  }
}
