/**
 * Demultiplexes an attach stream: frames with an eight-byte header (channel, length) and a payload.
 *
 * Pure and incremental: each piece is returned as it arrives, so a frame of any length needs no buffer.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"

const headerBytes = 8

interface Demultiplexer {
  /** Returns the output chunks in these bytes, in order. Throws on an invalid header. */
  readonly push: (bytes: Uint8Array) => ReadonlyArray<OutputChunk>
}

export const make = (): Demultiplexer => {
  const header = new Uint8Array(headerBytes)
  let headerFilled = 0
  let payloadLeft = 0
  let channel: OutputChunk["channel"] = "stdout"

  const readHeader = () => {
    if (header[0]! > 2 || header[1] !== 0 || header[2] !== 0 || header[3] !== 0) {
      throw new Error(`not a frame of an attach stream: ${Array.from(header).join(" ")}`)
    }
    channel = header[0] === 2 ? "stderr" : "stdout"
    payloadLeft = new DataView(header.buffer).getUint32(4)
    headerFilled = 0
  }

  return {
    push: (bytes) => {
      const chunks: Array<OutputChunk> = []
      let at = 0
      while (at < bytes.byteLength) {
        if (payloadLeft > 0) {
          const piece = bytes.subarray(at, at + payloadLeft)
          chunks.push({ channel, bytes: piece })
          at += piece.byteLength
          payloadLeft -= piece.byteLength
          continue
        }
        const taken = bytes.subarray(at, at + headerBytes - headerFilled)
        header.set(taken, headerFilled)
        headerFilled += taken.byteLength
        at += taken.byteLength
        if (headerFilled === headerBytes) readHeader()
      }
      return chunks
    }
  }
}
