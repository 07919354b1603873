/** The beginning of what an agent wrote, and the count of all of it. */
import type { Channel, Output, OutputChunk } from "../RunResult.ts"

/** One growing buffer: a chunk kept by itself costs a hundred bytes of bookkeeping, and can be a single byte. */
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
  /** Takes a chunk in, and answers how many bytes there have been in all. */
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
