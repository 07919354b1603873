/** The end of a text in pieces, compared with the end of the whole text. */
import { assert, describe, it } from "@effect/vitest"
import * as TextTail from "../src/TextTail.ts"
import { Schema } from "effect"

describe("TextTail", () => {
  it.prop("has the last characters of all pieces", [Schema.Array(Schema.String)], ([pieces]) => {
    const tail = TextTail.make(5)
    for (const [index, piece] of pieces.entries()) {
      tail.add(piece)
      assert.strictEqual(
        tail.text(),
        pieces
          .slice(0, index + 1)
          .join("")
          .slice(-5)
      )
    }
  })

  it("keeps a million pieces of one character, and of none", () => {
    const tail = TextTail.make(256 * 1024)
    for (let piece = 0; piece < 1_000_000; piece++) {
      tail.add("")
      tail.add("ab"[piece % 2]!)
    }
    assert.strictEqual(tail.text(), "ab".repeat(128 * 1024))
  })
})
