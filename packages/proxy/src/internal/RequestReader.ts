/**
 * The body of a request, within bounds: its own, and what all requests of a gateway may hold together.
 */
import type { IncomingMessage } from "node:http"

/** What the requests of a gateway hold in memory, all together. */
export interface Holding {
  /** False where it would be too much. */
  readonly take: (bytes: number) => boolean
  readonly give: (bytes: number) => void
  readonly held: () => number
}

export const makeHolding = (bytesMax: number): Holding => {
  let held = 0
  return {
    take: (bytes) => {
      if (held + bytes > bytesMax) return false
      held += bytes
      return true
    },
    give: (bytes) => {
      held -= bytes
    },
    held: () => held
  }
}

export type Read =
  | {
      readonly _tag: "Body"
      readonly body: Uint8Array
      /** Let go of what is held of it. Once. */
      readonly release: () => void
    }
  | { readonly _tag: "TooLarge" }
  | { readonly _tag: "NoRoom" }
  | { readonly _tag: "Aborted" }

const initialBytes = 16 * 1024

/** Its own memory, whole: so that it can be handed to another thread. */
export const read = (request: IncomingMessage, bytesMax: number, holding: Holding): Promise<Read> =>
  new Promise((resolve) => {
    // One growing buffer: a piece can be a single byte, and keeping it by itself costs a hundred.
    let buffer = new Uint8Array(0)
    let bytes = 0
    let done = false
    const settle = (outcome: Read) => {
      if (done) return
      done = true
      request.off("data", onData)
      if (outcome._tag !== "Body") {
        holding.give(bytes)
        buffer = new Uint8Array(0)
        request.pause()
      }
      resolve(outcome)
    }
    const onData = (piece: Buffer) => {
      if (bytes + piece.byteLength > bytesMax) return settle({ _tag: "TooLarge" })
      if (!holding.take(piece.byteLength)) return settle({ _tag: "NoRoom" })
      const needed = bytes + piece.byteLength
      if (needed > buffer.byteLength) {
        const grown = new Uint8Array(
          Math.min(bytesMax, Math.max(needed, 2 * buffer.byteLength, initialBytes))
        )
        grown.set(buffer.subarray(0, bytes))
        buffer = grown
      }
      buffer.set(piece, bytes)
      bytes = needed
    }
    const declared = Number(request.headers["content-length"] ?? 0)
    if (declared > bytesMax) return settle({ _tag: "TooLarge" })
    request.on("data", onData)
    request.once("end", () => {
      const body = buffer.slice(0, bytes)
      buffer = new Uint8Array(0)
      let released = false
      settle({
        _tag: "Body",
        body,
        release: () => {
          if (released) return
          released = true
          holding.give(bytes)
        }
      })
    })
    // A `close` without an `end` is a client that went away.
    request.once("error", () => settle({ _tag: "Aborted" }))
    request.once("close", () => settle({ _tag: "Aborted" }))
  })
