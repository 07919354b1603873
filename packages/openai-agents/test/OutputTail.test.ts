import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as OutputTail from "../src/internal/OutputTail.ts"

const Small = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 20 }))

describe("OutputTail", () => {
  it("keeps the end of an output, and says how much is missing", () => {
    const tail = OutputTail.make(5)
    tail.push("abc")
    assert.strictEqual(tail.take(), "abc")
    assert.strictEqual(tail.take(), "")
    for (const text of ["abc", "def", "", "gh"]) tail.push(text)
    assert.strictEqual(tail.take(), "[...3 characters truncated from process output...]\ndefgh")
    tail.push("a long text")
    assert.strictEqual(tail.take(), "[...6 characters truncated from process output...]\n text")
  })

  it.prop(
    "loses nothing else, however an output is cut",
    [Schema.Array(Schema.String), Small],
    ([pieces, charactersMax]) => {
      const tail = OutputTail.make(charactersMax)
      for (const piece of pieces) tail.push(piece)
      const whole = pieces.join("")
      const missing = Math.max(0, whole.length - charactersMax)
      const notice = missing === 0 ? "" : `[...${missing} characters truncated from process output...]\n`
      assert.strictEqual(tail.take(), notice + whole.slice(missing))
    }
  )
})
