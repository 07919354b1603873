/**
 * The beginning of what an agent wrote, and the count of all of it.
 */
import type { OutputChunk } from "../ContainerRuntime.ts"
import type { Channel, Output } from "../RunResult.ts"

interface Kept {
  readonly pieces: Array<Uint8Array>
  keptBytes: number
  bytes: number
}

const decode = (kept: Kept): Channel => {
  const joined = new Uint8Array(kept.keptBytes)
  let at = 0
  for (const piece of kept.pieces) {
    joined.set(piece, at)
    at += piece.byteLength
  }
  return {
    text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(joined),
    bytes: kept.bytes,
    truncated: kept.bytes > kept.keptBytes
  }
}

export interface OutputCollector {
  /** Takes a chunk in, and answers how many bytes there have been in all. */
  readonly add: (chunk: OutputChunk) => number
  readonly output: () => Output
}

export const make = (retainedBytesMax: number): OutputCollector => {
  const channels: Record<OutputChunk["channel"], Kept> = {
    stdout: { pieces: [], keptBytes: 0, bytes: 0 },
    stderr: { pieces: [], keptBytes: 0, bytes: 0 }
  }
  return {
    add: ({ bytes, channel }) => {
      const kept = channels[channel]
      kept.bytes += bytes.byteLength
      const room = retainedBytesMax - kept.keptBytes
      if (room > 0) {
        const piece = bytes.byteLength > room ? bytes.slice(0, room) : bytes
        kept.pieces.push(piece)
        kept.keptBytes += piece.byteLength
      }
      return channels.stdout.bytes + channels.stderr.bytes
    },
    output: () => ({ stdout: decode(channels.stdout), stderr: decode(channels.stderr) })
  }
}
