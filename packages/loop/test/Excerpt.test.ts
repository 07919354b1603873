/** Excerpts of text of any length: whole characters, an exact limit, and an exact count of the missing bytes. */
import * as Excerpt from "@cogni/sandbox-loop/Excerpt"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const encode = (text: string) => new TextEncoder().encode(text)
const bytesOf = (text: string) => encode(text).byteLength

const cut = (bytes: Uint8Array, size: number) =>
  Array.from({ length: Math.ceil(bytes.byteLength / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size)
  )

const collected = (pieces: ReadonlyArray<Uint8Array>, bytesMax: number) => {
  const collector = Excerpt.collector(bytesMax)
  for (const piece of pieces) collector.add(piece)
  return collector.excerpt()
}

/** Returns the text before and after the marker. */
const sidesOf = ({ bytesMissing, text }: Excerpt.Excerpt) => {
  const marker = Excerpt.marker(bytesMissing)
  const at = text.lastIndexOf(marker)
  return at === -1 ? [text, ""] : [text.slice(0, at), text.slice(at + marker.length)]
}

/** Repeated characters of one, two, three and four bytes. */
const Text = Schema.Struct({
  unit: Schema.Literals(["a", "ü", "☃", "🦀", "a🦀ü☃\n", "ab\u{10ffff}\u0800\u07ff"]),
  times: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 700 })),
  lead: Schema.Literals(["", "x", "xy", "xyz"])
})
const Limit = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1500 }))
const PieceBytes = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 900 }))

describe("an excerpt", () => {
  it("returns text that fits unchanged, to the byte", () => {
    assert.deepStrictEqual(Excerpt.excerpt("héllo", 6), { text: "héllo", bytesMissing: 0 })
    assert.notStrictEqual(Excerpt.excerpt("héllo", 5).bytesMissing, 0)
    assert.deepStrictEqual(Excerpt.excerpt("", 0), { text: "", bytesMissing: 0 })
    const odd = "\uFEFFa\u0000\u001b[31m\r\n"
    assert.strictEqual(Excerpt.excerpt(encode(odd), 1000).text, odd)
  })

  it("keeps the beginning and the end, and states how much is missing", () => {
    const { bytesMissing, text } = Excerpt.excerpt(`BEGIN${"x".repeat(10_000)}END`, 200)
    assert.isTrue(text.startsWith("BEGIN"))
    assert.isTrue(text.endsWith("END"))
    assert.include(text, Excerpt.marker(bytesMissing))
    assert.isAtMost(bytesOf(text), 200)
  })

  it("has only the beginning if there is no room for a marker", () => {
    assert.deepStrictEqual(Excerpt.excerpt("abcdefghij", 4), { text: "abcd", bytesMissing: 6 })
    assert.deepStrictEqual(Excerpt.excerpt("éé", 3), { text: "é", bytesMissing: 2 })
    for (const bytesMax of [0, -1, Number.NaN]) {
      assert.deepStrictEqual(Excerpt.excerpt("abc", bytesMax), { text: "", bytesMissing: 3 })
    }
  })

  it.prop(
    "stays within its limit, cuts no character of UTF-8, and counts the missing bytes",
    [Text, Limit, PieceBytes],
    ([{ lead, times, unit }, bytesMax, size]) => {
      const whole = lead + unit.repeat(times)
      const given = collected(cut(encode(whole), size), bytesMax)
      assert.deepStrictEqual(given, Excerpt.excerpt(whole, bytesMax))
      assert.isAtMost(bytesOf(given.text), bytesMax)
      assert.notInclude(given.text, "\uFFFD")
      assert.strictEqual(given.bytesMissing > 0, bytesOf(whole) > bytesMax)
      const [head = "", tail = ""] = sidesOf(given)
      assert.isTrue(whole.startsWith(head))
      assert.isTrue(whole.endsWith(tail))
      assert.strictEqual(bytesOf(head) + bytesOf(tail) + given.bytesMissing, bytesOf(whole))
      // Uses all room, except for a character at each cut and the digits of the number.
      if (given.bytesMissing > 0) assert.isAtLeast(bytesOf(given.text), bytesMax - 12)
    },
    { arbitrary: { runs: 500, seed: "excerpt-text" } }
  )

  it.prop(
    "stays within its limit for any bytes, and decodes them like the whole",
    [Schema.Array(Schema.Uint8Array), Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 })), Limit],
    ([pieces, times, bytesMax]) => {
      const all = Array.from({ length: times }, () => pieces).flat()
      const given = collected(all, bytesMax)
      const whole = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat(all))
      const [head = "", tail = ""] = sidesOf(given)
      assert.isAtMost(bytesOf(given.text), bytesMax)
      assert.isTrue(whole.startsWith(head) && whole.endsWith(tail))
      assert.strictEqual(bytesOf(head) + bytesOf(tail) + given.bytesMissing, bytesOf(whole))
    },
    { arbitrary: { runs: 500, seed: "excerpt-bytes" } }
  )
})

describe("the last bytes", () => {
  it.prop(
    "are the last bytes of the input, whatever its pieces",
    [Schema.Array(Schema.Uint8Array), Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 50 }))],
    ([pieces, bytesMax]) => {
      const last = Excerpt.lastBytes(bytesMax)
      const all: Array<Uint8Array> = []
      for (const piece of [...pieces, ...pieces, ...pieces]) {
        last.add(piece)
        all.push(piece)
        const whole = Buffer.concat(all)
        assert.strictEqual(last.total(), whole.byteLength)
        assert.deepStrictEqual([...last.bytes()], [...whole.subarray(Math.max(0, whole.length - bytesMax))])
      }
    },
    { arbitrary: { runs: 300, seed: "last-bytes" } }
  )

  it("start with a whole character when they are cut as text", () => {
    const crab = encode("🦀b")
    for (const bytesMax of [1, 2, 3, 4]) {
      assert.strictEqual(Excerpt.decode(Excerpt.suffix(crab, bytesMax)), "b")
    }
    assert.strictEqual(Excerpt.decode(Excerpt.suffix(crab.subarray(2), 100)), "b")
  })
})

describe("short", () => {
  it("returns the text, or its beginning with an ellipsis, counted in characters", () => {
    assert.strictEqual(Excerpt.short("🦀🦀🦀", 3), "🦀🦀🦀")
    assert.strictEqual(Excerpt.short("🦀🦀🦀🦀", 3), "🦀🦀…")
    assert.strictEqual(Excerpt.short("x".repeat(200_000), 200).length, 200)
  })
})
