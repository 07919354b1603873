/** Standard output as a stream for one reader, with back-pressure. */
import { Readable } from "node:stream"

export interface OutputReader {
  readonly stream: Readable
  readonly push: (text: string) => void
  /** Settles when the reader has room for more. */
  readonly room: () => Promise<void>
  /** From now on, there is always room. */
  readonly release: () => void
  readonly end: () => void
}

/** `bytesMax` are kept for a reader that is behind. */
export const make = (bytesMax: number): OutputReader => {
  let resume: () => void = () => undefined
  let isFull = false
  let isReleased = false
  const stream = new Readable({
    highWaterMark: bytesMax,
    read: () => {
      isFull = false
      resume()
    }
  })
  stream.once("close", () => resume())
  return {
    stream,
    push: (text) => {
      if (!stream.destroyed && !stream.push(text)) isFull = true
    },
    room: async () => {
      if (!isFull || isReleased || stream.destroyed) return
      const { promise, resolve } = Promise.withResolvers<void>()
      resume = resolve
      await promise
    },
    release: () => {
      isReleased = true
      resume()
    },
    end: () => {
      if (!stream.destroyed) stream.push(null)
    }
  }
}
