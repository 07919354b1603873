import { assert, describe, it } from "@effect/vitest"
import * as LogStream from "../src/internal/engine/LogStream.ts"
import { Schema } from "effect"

const frame = (channel: number, bytes: Uint8Array) => {
  const framed = new Uint8Array(8 + bytes.byteLength)
  framed[0] = channel
  new DataView(framed.buffer).setUint32(4, bytes.byteLength)
  framed.set(bytes, 8)
  return framed
}

const Frames = Schema.Array(
  Schema.Struct({
    channel: Schema.Literals(["stdout", "stderr"]),
    bytes: Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))
  })
)
const Cuts = Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 13 })))

describe("LogStream", () => {
  it.prop(
    "delivers the bytes of each channel in order, however the frames are split",
    [Frames, Cuts],
    ([frames, cuts]) => {
      const wire = Buffer.concat(
        frames.map(({ bytes, channel }) => frame(channel === "stdout" ? 1 : 2, Uint8Array.from(bytes)))
      )
      const demultiplexer = LogStream.make()
      const got: Record<string, Array<number>> = { stdout: [], stderr: [] }
      for (let at = 0, turn = 0; at < wire.byteLength; turn++) {
        const length = cuts.length === 0 ? wire.byteLength : cuts[turn % cuts.length]!
        for (const chunk of demultiplexer.push(wire.subarray(at, at + length)))
          got[chunk.channel]!.push(...chunk.bytes)
        at += length
      }
      for (const channel of ["stdout", "stderr"] as const) {
        assert.deepStrictEqual(
          got[channel],
          frames.filter((one) => one.channel === channel).flatMap((one) => [...one.bytes])
        )
      }
    }
  )

  it("rejects an invalid frame", () => {
    assert.throws(() => LogStream.make().push(new TextEncoder().encode("HTTP/1.1 500")), /not a frame/u)
  })
})
