/** JSON that a thread must not parse while others wait for it. Numbers: `RequestBody.test.ts` of the proxy. */
import { assert, describe, it } from "@effect/vitest"
import * as JsonSurvey from "../src/JsonSurvey.ts"

const problemOf = (text: string) => JsonSurvey.problemOf(new TextEncoder().encode(text))

const nested = (levels: number, open = "[", close = "]") => `${open.repeat(levels)}${close.repeat(levels)}`

describe("JsonSurvey", () => {
  it("accepts a large text, and brackets inside strings", () => {
    assert.isUndefined(problemOf(JSON.stringify({ text: "x".repeat(12 * 1024 * 1024) })))
    assert.isUndefined(problemOf(JSON.stringify({ text: `\\"${nested(1000)}` })))
    assert.isUndefined(problemOf(nested(JsonSurvey.depthMax)))
    assert.isUndefined(problemOf("not JSON"))
  })

  it("refuses nesting beyond its limit, whether the text is JSON or not", () => {
    for (const text of [nested(65), nested(65, '{"a":', "}"), "[".repeat(100), `[${nested(200_000)}]`])
      assert.strictEqual(problemOf(text), "is nested more than 64 levels deep")
  })

  it("refuses a few megabytes that take hundreds of megabytes when they are parsed", () => {
    for (const part of ["[]", "{}", '""', '{"a":1}'])
      assert.strictEqual(problemOf(`[${`${part},`.repeat(2_000_000)}0]`), "has too many values", part)
  })
})
