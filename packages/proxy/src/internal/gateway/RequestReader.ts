/** The body of a request, within bounds: its own, the run's share of the memory, and a least speed. */
import type { IncomingMessage } from "node:http"
import type { RunShare } from "./RunShare.ts"

/** How bodies of one run are read. */
export interface Reading {
  readonly share: Pick<RunShare, "take" | "give">
  /** A body that makes less progress than this in so many seconds is dropped. */
  readonly progressSecondsMax: number
  readonly bytesPerSecondMin: number
  /** Whether this side has stopped reading: what does not come then is not the client's fault. */
  readonly isPaused: () => boolean
  /** A piece has come: the work of reading it is counted. */
  readonly onPiece: () => void
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
  /** It came too slowly. */
  | { readonly _tag: "Stalled" }
  | { readonly _tag: "Aborted" }

const initialBytes = 16 * 1024

/** Its own memory, whole: so that it can be handed to another thread. */
export const read = (request: IncomingMessage, bytesMax: number, reading: Reading): Promise<Read> =>
  new Promise((resolve) => {
    const { share } = reading
    // One growing buffer: a piece can be a single byte, and keeping it by itself costs a hundred.
    let buffer = new Uint8Array(0)
    let bytes = 0
    let done = false
    const declared = Number(request.headers["content-length"] ?? 0)
    const settle = (outcome: Read) => {
      if (done) return
      done = true
      request.off("data", onData)
      clearInterval(watch)
      if (outcome._tag !== "Body") {
        share.give(bytes)
        buffer = new Uint8Array(0)
        request.pause()
      }
      resolve(outcome)
    }
    const watch = watchProgress(
      reading,
      () => bytes,
      () => settle({ _tag: "Stalled" })
    )
    const onData = (piece: Buffer) => {
      reading.onPiece()
      if (bytes + piece.byteLength > bytesMax) return settle({ _tag: "TooLarge" })
      if (!share.take(piece.byteLength)) return settle({ _tag: "NoRoom" })
      const needed = bytes + piece.byteLength
      if (needed > buffer.byteLength) {
        const least = Math.min(declared || initialBytes, initialBytes)
        const grown = new Uint8Array(Math.min(bytesMax, Math.max(needed, 2 * buffer.byteLength, least)))
        grown.set(buffer.subarray(0, bytes))
        buffer = grown
      }
      buffer.set(piece, bytes)
      bytes = needed
    }
    if (declared > bytesMax) return settle({ _tag: "TooLarge" })
    request.on("data", onData)
    request.once("end", () => {
      const body = bytes === buffer.byteLength ? buffer : buffer.slice(0, bytes)
      buffer = new Uint8Array(0)
      let released = false
      settle({
        _tag: "Body",
        body,
        release: () => {
          if (released) return
          released = true
          share.give(bytes)
        }
      })
    })
    // A `close` without an `end` is a client that went away.
    request.once("error", () => settle({ _tag: "Aborted" }))
    request.once("close", () => settle({ _tag: "Aborted" }))
  })

const watchProgress = (
  { bytesPerSecondMin, isPaused, progressSecondsMax }: Reading,
  bytes: () => number,
  onStalled: () => void
): NodeJS.Timeout => {
  let seen = 0
  let paused = false
  return setInterval(() => {
    const came = bytes() - seen
    seen = bytes()
    const excused = paused || isPaused()
    paused = isPaused()
    if (!excused && came < bytesPerSecondMin * progressSecondsMax) onStalled()
  }, progressSecondsMax * 1000)
}
