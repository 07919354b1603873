/**
 * What a model is shown of output of any length: never a code point in two, never more than was allowed, and a number
 * that is exact.
 */
import { assert, describe, it } from "@effect/vitest"
import * as ToolText from "@cogni/sandbox-loop/ToolText"
import { Schema } from "effect"

const bytesOf = (text: string) => new TextEncoder().encode(text)
const decode = (bytes: Uint8Array) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)

const collected = (pieces: ReadonlyArray<Uint8Array>, limit: number) => {
  const collector = ToolText.collector(limit)
  for (const piece of pieces) collector.add(piece)
  return collector.text()
}

const found = /\n\[… ([\d,]+) bytes not shown; write to a file and read parts of it …\]\n/u

/** Head and tail of a text, around its marker. */
const sides = (text: string) => {
  const [, number = ""] = found.exec(text) ?? assert.fail("it has no marker")
  const marker = ToolText.marker(Number(number.replaceAll(",", "")))
  const at = text.indexOf(marker)
  return {
    head: text.slice(0, at),
    tail: text.slice(at + marker.length),
    missing: Number(number.replaceAll(",", ""))
  }
}

/** Texts of one, two, three and four bytes to the character, again and again. */
const Text = Schema.Struct({
  unit: Schema.Literals(["a", "ü", "☃", "🦀", "a🦀ü☃\n", "ab\u{10ffff}\u0800\u07ff"]),
  times: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 700 })),
  lead: Schema.Literals(["", "x", "xy", "xyz"])
})
const Limit = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1500 }))
const PieceBytes = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 900 }))

const cut = (bytes: Uint8Array, size: number) =>
  Array.from({ length: Math.ceil(bytes.byteLength / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size)
  )

describe("text", () => {
  it.prop(
    "that is UTF-8, in whatever pieces: within the limit, no code point in two, head + missing + tail = all",
    [Text, Limit, PieceBytes],
    ([{ lead, times, unit }, limit, size]) => {
      const whole = lead + unit.repeat(times)
      const bytes = bytesOf(whole)
      const given = collected(cut(bytes, size), limit)
      const allowed = Math.max(ToolText.textBytesMin, limit)
      assert.isAtMost(bytesOf(given.text).byteLength, allowed)
      assert.strictEqual(given.bytes, bytes.byteLength)
      assert.strictEqual(given.truncated, bytes.byteLength > allowed)
      assert.notInclude(given.text, "\uFFFD")
      if (!given.truncated) return assert.strictEqual(given.text, whole)
      const { head, missing, tail } = sides(given.text)
      assert.isTrue(whole.startsWith(head), "its head is not the beginning")
      assert.isTrue(whole.endsWith(tail), "its tail is not the end")
      assert.strictEqual(missing, given.missingBytes)
      assert.strictEqual(
        bytesOf(head).byteLength + missing + bytesOf(tail).byteLength,
        bytes.byteLength,
        "the number is not exact"
      )
      // As much as there is room for: what a code point at each cut may cost, and the digits of the number.
      assert.isAtLeast(bytesOf(given.text).byteLength, allowed - 12)
    },
    { arbitrary: { runs: 500, seed: "tool-text" } }
  )

  it.prop(
    "of any bytes: within the limit, what is shown is what the whole shows there, and none is counted twice",
    [Schema.Array(Schema.Uint8Array), Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 })), Limit],
    ([pieces, times, limit]) => {
      const all = Array.from({ length: times }, () => pieces).flat()
      const bytes = Buffer.concat(all)
      const given = collected(all, limit)
      const allowed = Math.max(ToolText.textBytesMin, limit)
      assert.isAtMost(bytesOf(given.text).byteLength, allowed)
      const whole = decode(bytes)
      if (!given.truncated) return assert.strictEqual(given.text, whole)
      const at = given.text.indexOf(ToolText.marker(given.missingBytes))
      assert.notStrictEqual(at, -1)
      assert.isTrue(whole.startsWith(given.text.slice(0, at)))
      assert.isTrue(whole.endsWith(given.text.slice(at + ToolText.marker(given.missingBytes).length)))
      assert.isBelow(given.missingBytes, bytes.byteLength)
      assert.isAbove(given.missingBytes, 0)
    },
    { arbitrary: { runs: 500, seed: "tool-bytes" } }
  )

  it("bytes that are no UTF-8 cost three each, and are counted as one each", () => {
    const bytes = new Uint8Array(1000).fill(0xff)
    const { missingBytes, text } = ToolText.truncate(bytes, 600)
    assert.isAtMost(bytesOf(text).byteLength, 600)
    const shown = [...text].filter((character) => character === "\uFFFD").length
    assert.strictEqual(shown + missingBytes, 1000)
  })

  it("what a decoder takes for one character that is broken off is never cut", () => {
    // U+1F600 without its last byte, again and again: three bytes, and one U+FFFD of three.
    const bytes = Buffer.concat(Array.from({ length: 400 }, () => Uint8Array.of(0xf0, 0x9f, 0x98)))
    for (let limit = 600; limit < 612; limit++) {
      const { missingBytes, text } = ToolText.truncate(bytes, limit)
      const shown = [...text].filter((character) => character === "\uFFFD").length
      assert.strictEqual(3 * shown + missingBytes, 1200)
    }
  })

  it("says it in words that a model can act upon", () => {
    assert.strictEqual(
      ToolText.marker(123456),
      "\n[… 123,456 bytes not shown; write to a file and read parts of it …]\n"
    )
  })

  it("a limit that is none is raised to one with room for a marker", () => {
    for (const limit of [0, -1, Number.NaN, 10]) {
      const { text } = ToolText.truncate(new Uint8Array(5000).fill(97), limit)
      assert.isAtMost(bytesOf(text).byteLength, ToolText.textBytesMin)
      assert.isAbove(sides(text).head.length, 0)
      assert.isAbove(sides(text).tail.length, 0)
    }
  })

  it("keeps the byte order mark, and every control character", () => {
    const odd = "\uFEFFa\u0000\u001b[31m\r\n"
    assert.strictEqual(ToolText.truncate(bytesOf(odd), 1000).text, odd)
  })
})

describe("tail", () => {
  it.prop(
    "is the end, to a code point, and the rest is counted",
    [Text, Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 600 }))],
    ([{ lead, times, unit }, limit]) => {
      const whole = lead + unit.repeat(times)
      const bytes = bytesOf(whole)
      const { missingBytes, text, truncated } = ToolText.tail(bytes, limit, false)
      assert.isTrue(whole.endsWith(text))
      assert.strictEqual(bytesOf(text).byteLength + missingBytes, bytes.byteLength)
      assert.isAtMost(bytesOf(text).byteLength, limit)
      assert.strictEqual(truncated, bytes.byteLength > limit)
      if (truncated) assert.isAtLeast(bytesOf(text).byteLength, limit - 3)
    },
    { arbitrary: { runs: 300, seed: "tool-tail" } }
  )

  it("of bytes that begin inside a code point leaves the rest of it out", () => {
    const crab = bytesOf("🦀b")
    for (const from of [1, 2, 3]) {
      const { missingBytes, text } = ToolText.tail(crab.subarray(from), 100, true)
      assert.strictEqual(text, "b")
      assert.strictEqual(missingBytes, 4 - from)
    }
  })
})

describe("short", () => {
  it("is the text itself, or its beginning and an ellipsis, in characters", () => {
    assert.strictEqual(ToolText.short("🦀🦀🦀", 3), "🦀🦀🦀")
    assert.strictEqual(ToolText.short("🦀🦀🦀🦀", 3), "🦀🦀…")
    assert.strictEqual(ToolText.short("x".repeat(200_000), 200).length, 200)
  })
})
