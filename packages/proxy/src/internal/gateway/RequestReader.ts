/** Reads the body of a request within limits: its size, the run's share of memory, and a minimum speed. */
import type { IncomingMessage } from "node:http"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { Held, RunShare } from "./RunShare.ts"

/** Limits for the bodies of one run. */
export interface Reading {
  readonly share: Pick<RunShare, "take" | "give">
  /** A body that arrives slower than `bytesPerSecondMin` for this many seconds is dropped. */
  readonly progressSecondsMax: number
  readonly bytesPerSecondMin: number
  /** Returns true if this side has paused reading. Missing progress is then not the client's fault. */
  readonly isPaused: () => boolean
  /** Called for each piece, to count the work of reading it. */
  readonly onPiece: () => void
}

/** Why a body was not read. `Stalled` means that it arrived too slowly. */
export type UnreadReason = "TooLarge" | "NoRoom" | "Stalled" | "Aborted"

export class BodyUnread extends Data.TaggedError("BodyUnread")<{ readonly reason: UnreadReason }> {}

const initialBytes = 16 * 1024

/** Reads a whole body into its own memory, so that it can be transferred to another thread. */
export const read = (
  request: IncomingMessage,
  bytesMax: number,
  reading: Reading,
  held: Held
): Effect.Effect<Uint8Array, BodyUnread> =>
  Effect.callback((resume) => {
    // One growing buffer, because a piece can be a single byte, and a separate buffer for it costs a hundred.
    let buffer = new Uint8Array(0)
    let bytes = 0
    let isOver = false
    const declared = Number(request.headers["content-length"] ?? 0)
    const end = () => {
      isOver = true
      request.off("data", onData)
      clearInterval(watch)
    }
    const refuse = (reason: UnreadReason) => {
      if (isOver) return
      end()
      request.pause()
      resume(Effect.fail(new BodyUnread({ reason })))
    }
    const watch = watchProgress(
      reading,
      () => bytes,
      () => refuse("Stalled")
    )
    const onData = (piece: Buffer) => {
      reading.onPiece()
      if (bytes + piece.byteLength > bytesMax) return refuse("TooLarge")
      if (!held.take(piece.byteLength)) return refuse("NoRoom")
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
    if (declared > bytesMax) return refuse("TooLarge")
    request.on("data", onData)
    request.once("end", () => {
      if (isOver) return
      end()
      resume(Effect.succeed(bytes === buffer.byteLength ? buffer : buffer.slice(0, bytes)))
    })
    // A `close` without an `end` means that the client disconnected.
    request.once("error", () => refuse("Aborted"))
    request.once("close", () => refuse("Aborted"))
    return Effect.sync(end)
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
