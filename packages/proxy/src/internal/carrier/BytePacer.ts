/**
 * Bounds what the main thread carries for one run: bytes per second in both directions together, and new connections
 * per second. What is over the bound waits where it is; nothing is dropped and nothing piles up here.
 */
import type { Duplex } from "node:stream"
import * as Allowance from "../policy/Allowance.ts"

export interface BytePacer {
  /** False when there are too many new connections. */
  readonly connected: () => boolean
  /** Count what is read from this stream, and stop reading it while the run is over its bound. */
  readonly pace: (stream: Duplex) => void
}

export interface BytePacerOptions {
  readonly bytesPerSecondMax?: number | undefined
  readonly connectionsPerSecondMax?: number | undefined
  /** New connections that may come at once. */
  readonly connectionsMax: number
}

const MiB = 1024 * 1024

const bytesPerSecondMax = 64 * MiB

const connectionsPerSecondMax = 200

/** A piece costs at least as much as this many bytes do, however small it is. */
const pieceBytesMin = 8 * 1024

export const make = (options: BytePacerOptions): BytePacer => {
  const bytes = Allowance.make(options.bytesPerSecondMax ?? bytesPerSecondMax)
  const perSecondMax = options.connectionsPerSecondMax ?? connectionsPerSecondMax
  const connections = Allowance.make(perSecondMax, Math.max(perSecondMax, options.connectionsMax))
  return {
    connected: () => connections.take(performance.now()),
    pace: (stream) => {
      let held: NodeJS.Timeout | undefined
      stream.on("data", (piece: Uint8Array) => {
        const now = performance.now()
        bytes.charge(now, Math.max(pieceBytesMin, piece.byteLength))
        const waitMillis = bytes.waitMillis(now)
        if (waitMillis === 0 || held !== undefined) return
        stream.pause()
        held = setTimeout(() => {
          held = undefined
          stream.resume()
        }, waitMillis)
      })
      // Whatever else resumes it, such as the other side having room again.
      stream.on("resume", () => {
        if (held !== undefined) stream.pause()
      })
      stream.once("close", () => clearTimeout(held))
    }
  }
}
