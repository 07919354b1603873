import { expect, it } from "@effect/vitest"
import { ByteSize } from "effect"
import { formatBytes } from "@cogni/sandbox-core/RunFigures"

// Tests may use the module that the package must not use.
const expected = (bytes: number) => ByteSize.format(ByteSize.bytes(bytes), { precision: 1 })

it("formats every size near a unit or a rounding step as Effect does", () => {
  const sizes = new Set([0, 1, Number.MAX_SAFE_INTEGER])
  for (let unit = 0; unit <= 5; unit++)
    for (const tenths of [
      1, 5, 10, 15, 19, 20, 99, 100, 5000, 9999, 10_000, 10_230, 10_239, 10_239.5, 10_240
    ])
      for (let offset = -2; offset <= 2; offset++) {
        const size = Math.round((1024 ** unit * tenths) / 10) + offset
        if (size >= 0 && Number.isSafeInteger(size)) sizes.add(size)
      }
  const all = [...sizes]
  expect(all.map(formatBytes)).toEqual(all.map(expected))
})

it("formats sizes of every magnitude as Effect does", () => {
  // A fixed sequence, so that a failure repeats.
  let state = 1
  const next = () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647
  const sizes = Array.from({ length: 20_000 }, () => Math.floor(2 ** (next() * 53)))
  expect(sizes.map(formatBytes)).toEqual(sizes.map(expected))
})

it.each([-1, 1.5, Number.NaN, Number.MAX_SAFE_INTEGER + 1])("refuses %s as a size", (size) => {
  expect(() => formatBytes(size)).toThrow("whole number of bytes")
})
