/** The body of a request, within bounds: its own, the run's share of the memory, and a least speed. */
import type { IncomingMessage } from "node:http"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { Held, RunShare } from "./RunShare.ts"

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

/** Why a body was not read; `Stalled`: it came too slowly. */
export type UnreadReason = "TooLarge" | "NoRoom" | "Stalled" | "Aborted"

export class BodyUnread extends Data.TaggedError("BodyUnread")<{ readonly reason: UnreadReason }> {}

const initialBytes = 16 * 1024

/** The body in memory of its own, whole, so that it can be handed to another thread. */
export const read = (
  request: IncomingMessage,
  bytesMax: number,
  reading: Reading,
  held: Held
): Effect.Effect<Uint8Array, BodyUnread> =>
  Effect.callback((resume) => {
    // One growing buffer: a piece can be a single byte, and keeping it by itself costs a hundred.
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
    // A `close` without an `end` is a client that went away.
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
