/** Amounts: exact in pico-dollars, and without drift from and to numbers of dollars. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Money from "../src/Money.ts"
import * as MoneySums from "../src/MoneySums.ts"

const Usd = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: MoneySums.callUsdMax }))
const Picos = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1e15 }))

describe("Money", () => {
  it("reads a number of dollars as the decimal that it stands for", () => {
    for (const [usd, pico] of [
      [0, 0n],
      [1e-12, 1n],
      [4e-13, 0n],
      [5e-13, 1n],
      [3.075_000_000_000_000_2e-6, 3_075_000n],
      [0.1, 100_000_000_000n],
      [1, 1_000_000_000_000n],
      [999_999.123_456_789, 999_999_123_456_789_000n],
      [1e6, 10n ** 18n]
    ] as const)
      assert.strictEqual(Money.fromUsd(usd), pico, String(usd))
  })

  it("adds what floats cannot add", () => {
    const sum = MoneySums.add(Money.fromUsd(0.1), Money.fromUsd(0.2))
    assert.strictEqual(Money.format(sum), "0.3")
    assert.notStrictEqual(0.1 + 0.2, 0.3)
  })

  it("refuses amounts that are no amounts", () => {
    for (const usd of [-1, Number.NaN, Number.POSITIVE_INFINITY])
      assert.throws(() => Money.fromUsd(usd), RangeError)
  })

  it.prop(
    "converts pico-dollars to dollars and back without a change",
    [Picos],
    ([count]) => {
      const pico = Money.Pico.make(BigInt(count))
      assert.strictEqual(Money.fromUsd(Money.toUsd(pico)), pico)
    },
    { arbitrary: { runs: 1000, seed: "money-1" } }
  )

  it.prop(
    "rounds a number once: what was rounded stays as it is",
    [Usd],
    ([usd]) => {
      const once = MoneySums.rounded(usd)
      assert.strictEqual(MoneySums.rounded(once), once)
      assert.isAtMost(Math.abs(once - usd), 0.5e-12 + usd * Number.EPSILON)
    },
    { arbitrary: { runs: 1000, seed: "money-2" } }
  )

  it("formats any amount, so that it can be read back", () => {
    for (const [pico, text] of [
      [0n, "0"],
      [1n, "0.000000000001"],
      [-1_500_000_000_000n, "-1.5"],
      [123_456_789n * 10n ** 12n, "123456789"]
    ] as const)
      assert.strictEqual(Money.format(Money.Pico.make(pico)), text)
  })
})
