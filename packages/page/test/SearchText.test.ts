/** Tests that texts in an address stay what they are. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as RunFilter from "../src/RunFilter.ts"
import * as SearchText from "../src/SearchText.ts"

describe("SearchText", () => {
  it("reads IDs that look like other values as texts", () => {
    for (const session of [
      "1732612345.123400",
      "12345678901234567890",
      "true",
      "null",
      "[1]",
      '"a"',
      "1e3"
    ]) {
      const search = SearchText.parse(`?session=${encodeURIComponent(session)}`)
      assert.deepStrictEqual(RunFilter.parse(search), { session })
    }
  })

  it("reads the first of several values, and takes the question mark or not", () => {
    assert.deepStrictEqual(SearchText.parse("?a=1&a=2&b="), { a: "1", b: "" })
    assert.deepStrictEqual(SearchText.parse("a=%2B+x"), { a: "+ x" })
    assert.deepStrictEqual(SearchText.parse(""), {})
  })

  it.prop("reads what it writes", [Schema.Record(Schema.String, Schema.String)], ([search]) => {
    const whole = Object.fromEntries(
      Object.entries(search).map(([name, value]) => [name.toWellFormed(), value.toWellFormed()])
    )
    assert.deepStrictEqual(SearchText.parse(SearchText.stringify(whole)), whole)
  })

  it("writes nothing for what is absent", () => {
    assert.strictEqual(SearchText.stringify({}), "")
    assert.strictEqual(SearchText.stringify({ status: undefined, model: "a&b" }), "?model=a%26b")
  })
})
