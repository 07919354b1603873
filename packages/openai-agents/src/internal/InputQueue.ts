/** Standard input of a command that is written in pieces, and stays open until the command ends. */
import { SandboxExecTransportError } from "@openai/agents-core/sandbox"

export interface InputQueue {
  readonly readable: AsyncIterable<Uint8Array>
  /** Throws if the command does not read, or has closed its input. */
  readonly write: (bytes: Uint8Array) => void
}

/** Holds at most `bytesMax` that the command has not read. */
export const make = (bytesMax: number): InputQueue => {
  const pieces: Array<Uint8Array> = []
  let unread = 0
  let isOver = false
  let wake: () => void = () => undefined
  return {
    write: (bytes) => {
      if (isOver)
        throw new SandboxExecTransportError("The command does not read its standard input any more.")
      if (unread + bytes.byteLength > bytesMax) {
        throw new SandboxExecTransportError(
          `The command has not read ${unread} bytes of its standard input yet, and at most ${bytesMax} can wait. Write less, or write it to a file.`
        )
      }
      pieces.push(bytes)
      unread += bytes.byteLength
      wake()
    },
    readable: {
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          for (;;) {
            const value = pieces.shift()
            if (value !== undefined) {
              unread -= value.byteLength
              return { done: false, value }
            }
            if (isOver) return { done: true, value: undefined }
            const { promise, resolve } = Promise.withResolvers<void>()
            wake = resolve
            await promise
          }
        },
        return: async () => {
          isOver = true
          wake()
          return { done: true, value: undefined }
        }
      })
    }
  }
}
