/** Collects the beginning of an agent's output, and counts all of it. */
import type { Channel, Output, OutputChunk } from "../RunResult.ts"

/** One growing buffer. Separate chunks, which can be a single byte, would cost a hundred bytes of overhead each. */
interface Kept {
  buffer: Uint8Array<ArrayBuffer>
  keptBytes: number
  bytes: number
}

const initialBytes = 4096

const keep = (kept: Kept, piece: Uint8Array) => {
  const needed = kept.keptBytes + piece.byteLength
  if (needed > kept.buffer.byteLength) {
    const grown = new Uint8Array(Math.max(needed, 2 * kept.buffer.byteLength, initialBytes))
    grown.set(kept.buffer.subarray(0, kept.keptBytes))
    kept.buffer = grown
  }
  kept.buffer.set(piece, kept.keptBytes)
  kept.keptBytes = needed
}

const decode = (kept: Kept): Channel => ({
  text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(kept.buffer.subarray(0, kept.keptBytes)),
  bytes: kept.bytes,
  truncated: kept.bytes > kept.keptBytes
})

export interface OutputCollector {
  /** Adds a chunk, and returns the number of all bytes so far. */
  readonly add: (chunk: OutputChunk) => number
  readonly output: () => Output
}

export const make = (retainedBytesMax: number): OutputCollector => {
  const channels: Record<OutputChunk["channel"], Kept> = {
    stdout: { buffer: new Uint8Array(0), keptBytes: 0, bytes: 0 },
    stderr: { buffer: new Uint8Array(0), keptBytes: 0, bytes: 0 }
  }
  return {
    add: ({ bytes, channel }) => {
      const kept = channels[channel]
      kept.bytes += bytes.byteLength
      const room = retainedBytesMax - kept.keptBytes
      if (room > 0) keep(kept, bytes.byteLength > room ? bytes.subarray(0, room) : bytes)
      return channels.stdout.bytes + channels.stderr.bytes
    },
    output: () => ({ stdout: decode(channels.stdout), stderr: decode(channels.stderr) })
  }
}
