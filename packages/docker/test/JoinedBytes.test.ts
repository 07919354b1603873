import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as JoinedBytes from "../src/internal/container/JoinedBytes.ts"

describe("JoinedBytes", () => {
  it.prop("joins any pieces in order", [Schema.Array(Schema.Uint8Array)], ([pieces]) => {
    // Each piece is part of a larger buffer, like the pieces of a stream.
    const parts = pieces.map((piece) => Uint8Array.from([0, ...piece, 0]).subarray(1, piece.length + 1))
    assert.deepStrictEqual(
      [...JoinedBytes.of(parts)],
      pieces.flatMap((piece) => [...piece])
    )
  })

  it("returns a plain array of its own", () => {
    const piece = Buffer.from("one")
    const joined = JoinedBytes.of([piece])
    piece.fill(0)
    assert.deepStrictEqual(joined, new TextEncoder().encode("one"))
  })
})
