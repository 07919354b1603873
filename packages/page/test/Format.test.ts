/** Tests figures for people. */
import { assert, describe, it } from "@effect/vitest"
import * as Format from "../src/Format.ts"

describe("Format", () => {
  it.each([
    [undefined, "–"],
    [0, "0 ms"],
    [999, "999 ms"],
    [1400, "1.4 s"],
    [59_999, "59 s"],
    [125_000, "2 min 05 s"],
    [3_600_000, "1 h 00 min"],
    [90_000_000, "1 d 01 h"],
    [Number.NaN, "–"],
    [-1, "–"]
  ])("writes %s milliseconds as %s", (millis, text) => {
    assert.strictEqual(Format.duration(millis), text)
  })

  it.each([
    [0, "0:00"],
    [65_999, "1:05"],
    [3_725_000, "1:02:05"]
  ])("writes a place %s milliseconds after the beginning as %s", (millis, text) => {
    assert.strictEqual(Format.timecode(millis), text)
  })

  it.each([
    [undefined, "–"],
    [0, "$0.00"],
    [0.000012, "$0.000012"],
    [0.0123, "$0.0123"],
    [0.5, "$0.50"],
    [12.345, "$12.35"],
    [Number.POSITIVE_INFINITY, "–"]
  ])("writes %s dollars as %s", (amount, text) => {
    assert.strictEqual(Format.usd(amount), text)
  })

  it("rounds no share to nothing or to all", () => {
    assert.deepStrictEqual(
      [
        Format.share(0, 10),
        Format.share(1, 1000),
        Format.share(5, 10),
        Format.share(999, 1000),
        Format.share(10, 10),
        Format.share(1, 0)
      ],
      ["0%", "<1%", "50%", ">99%", "100%", "–"]
    )
  })

  it("accepts any text as a time", () => {
    for (const text of [undefined, "", "yesterday", "<script>"]) {
      assert.strictEqual(Format.time(text), "–")
      assert.strictEqual(Format.ago(text, 0), "–")
      assert.isUndefined(Format.between(text, undefined, 0))
    }
    assert.strictEqual(Format.ago("1970-01-01T00:00:00.000Z", 125_000), "2m ago")
    assert.strictEqual(Format.between("1970-01-01T00:00:01.000Z", undefined, 3000), 2000)
  })
})
