/**
 * Limits what the main thread carries for one run: bytes per second in both directions together, and new connections
 * per second. Bytes over the limit stay in their stream; nothing is dropped or buffered here.
 */
import type { Duplex } from "node:stream"
import * as Allowance from "../policy/Allowance.ts"

export interface BytePacer {
  /** Counts a connection. Returns false if there are too many new ones. */
  readonly connected: () => boolean
  /** Counts the bytes read from a stream, and pauses it while the run is over its limit. */
  readonly pace: (stream: Duplex) => void
}

interface BytePacerOptions {
  readonly bytesPerSecondMax?: number | undefined
  readonly connectionsPerSecondMax?: number | undefined
  /** Burst of new connections. */
  readonly connectionsMax: number
}

const MiB = 1024 * 1024

const bytesPerSecondMax = 64 * MiB

const connectionsPerSecondMax = 200

/** Every piece counts as at least this many bytes, however small it is. */
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
      // A stream can be resumed by something else, such as free space on the other side.
      stream.on("resume", () => {
        if (held !== undefined) stream.pause()
      })
      stream.once("close", () => clearTimeout(held))
    }
  }
}
