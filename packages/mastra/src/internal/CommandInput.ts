/** Standard input of a running command, written piece by piece. */
import { PassThrough } from "node:stream"

export interface CommandInput {
  readonly bytes: AsyncIterable<Uint8Array>
  /** Settles when there is room for more. Rejects if the command reads no more. */
  readonly write: (text: string) => Promise<void>
  readonly close: () => Promise<void>
}

export const make = (): CommandInput => {
  const pipe = new PassThrough()
  // Each write rejects with it. Without a listener, it would also end the program.
  pipe.on("error", () => undefined)
  const pieces: AsyncIterator<Uint8Array> = pipe[Symbol.asyncIterator]()
  const settled = (start: (done: (error?: Error | null) => void) => void) =>
    new Promise<void>((resolve, reject) => {
      start((error) => (error ? reject(error) : resolve()))
    })
  return {
    bytes: {
      [Symbol.asyncIterator]: () => ({
        next: () => pieces.next(),
        // Also while a read is pending, where the iterator of a stream would wait.
        return: () => {
          pipe.destroy(new Error("the command reads no more of its standard input"))
          return Promise.resolve({ done: true, value: undefined })
        }
      })
    },
    write: (text) => settled((done) => pipe.write(text, done)),
    close: async () => {
      if (!pipe.writableEnded) await settled((done) => pipe.end(() => done(pipe.errored)))
    }
  }
}
