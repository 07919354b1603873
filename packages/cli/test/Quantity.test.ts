/** Sizes and durations: accepted forms, and refused ones. */
import { assert, describe, it } from "@effect/vitest"
import * as Quantity from "../src/Quantity.ts"
import { Result, Schema } from "effect"

const value = <A>(result: Result.Result<A, string>) => (Result.isSuccess(result) ? result.success : undefined)

describe("sizes", () => {
  it.each([
    ["512m", 512 * 2 ** 20],
    ["1g", 2 ** 30],
    ["1G", 2 ** 30],
    ["1.5GiB", 1.5 * 2 ** 30],
    ["64kb", 65_536],
    ["2t", 2 ** 41]
  ])("%s is %i bytes", (text, bytes) => assert.strictEqual(value(Quantity.parseBytes(text)), bytes))

  it.each([
    "",
    "1",
    "0m",
    "-1g",
    "1 g",
    "1gg",
    "g",
    "1e3m",
    "0x1m",
    "1.5",
    "1,5g",
    "0.0000001k",
    "99999999999999t",
    "∞g",
    "1g\n"
  ])("the size %j is refused", (text) => assert.isUndefined(value(Quantity.parseBytes(text))))
})

describe("durations", () => {
  it.each([
    ["90s", 90],
    ["2m", 120],
    ["1h", 3600],
    ["1h30m", 5400],
    ["1m5s", 65]
  ])("%s is %i seconds", (text, seconds) => assert.strictEqual(value(Quantity.parseSeconds(text)), seconds))

  it.each(["", "0s", "0m", "5", "-5s", "1.5m", "500ms", "2x", "5s2m", "1h 30m", "2m\n"])(
    "the duration %j is refused",
    (text) => assert.isUndefined(value(Quantity.parseSeconds(text)))
  )

  it("a grace period may be zero", () => {
    assert.strictEqual(value(Quantity.parseGrace("0s")), 0)
    assert.strictEqual(value(Quantity.parseGrace("5s")), 5)
    assert.isUndefined(value(Quantity.parseGrace("0")))
  })
})

describe("assignments", () => {
  it("a value may be empty, and may contain further equals signs", () => {
    assert.deepStrictEqual(value(Quantity.parseAssignment("A=")), ["A", ""])
    assert.deepStrictEqual(value(Quantity.parseAssignment("A=b=c d")), ["A", "b=c d"])
  })

  it.each(["A", "=b", ""])("%j is refused: no value is taken from this process's environment", (text) =>
    assert.isUndefined(value(Quantity.parseAssignment(text)))
  )
})

describe("quantities", () => {
  it("durations are formatted in a suitable unit", () => {
    assert.deepStrictEqual([0, 0.4, 812.4, 3400, 125_000, 3_660_000].map(Quantity.formatMillis), [
      "0 ms",
      "0 ms",
      "812 ms",
      "3.4 s",
      "2 m 5 s",
      "1 h 1 m"
    ])
  })

  it.prop("parsed values are whole numbers above zero", [Schema.String], ([text]) => {
    for (const parsed of [value(Quantity.parseBytes(text)), value(Quantity.parseSeconds(text))]) {
      assert.isTrue(parsed === undefined || (Number.isSafeInteger(parsed) && parsed > 0))
    }
  })
})
