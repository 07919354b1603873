import * as Excerpt from "@cogni/sandbox-loop/Excerpt"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"

const bytesOf = (text: string) => new TextEncoder().encode(text).byteLength

describe("Excerpt", () => {
  it("leaves what fits as it is, to the byte", () => {
    assert.deepStrictEqual(Excerpt.excerpt("héllo", 6), { text: "héllo", bytesMissing: 0 })
    assert.notStrictEqual(Excerpt.excerpt("héllo", 5).bytesMissing, 0)
    assert.deepStrictEqual(Excerpt.excerpt("", 0), { text: "", bytesMissing: 0 })
  })

  it("keeps the beginning and the end, and says how much is missing between them", () => {
    const { bytesMissing, text } = Excerpt.excerpt(`BEGIN${"x".repeat(10_000)}END`, 200)
    assert.isTrue(text.startsWith("BEGIN"))
    assert.isTrue(text.endsWith("END"))
    assert.include(text, Excerpt.marker(bytesMissing))
    assert.isAtMost(bytesOf(text), 200)
  })

  it("has only the beginning where there is no room for a marker", () => {
    assert.deepStrictEqual(Excerpt.excerpt("abcdefghij", 4), { text: "abcd", bytesMissing: 6 })
    assert.deepStrictEqual(Excerpt.excerpt("éé", 3), { text: "é", bytesMissing: 2 })
    assert.deepStrictEqual(Excerpt.excerpt("abc", 0), { text: "", bytesMissing: 3 })
  })

  it("takes bytes that are no text for U+FFFD, and still holds the limit", () => {
    const { text } = Excerpt.excerpt(new Uint8Array(1000).fill(0xff), 300)
    assert.include(text, "\uFFFD")
    assert.isAtMost(bytesOf(text), 300)
  })

  it.prop(
    "is never longer than it may be, cuts no character, and counts what is missing",
    {
      piece: Schema.NonEmptyString,
      times: Schema.Literals([1, 7, 200]),
      bytesMax: Schema.Literals([0, 1, 40, 61, 333, 4096])
    },
    ({ bytesMax, piece, times }) => {
      // Lone surrogates have no bytes of their own.
      const given = piece.toWellFormed().repeat(times)
      const { bytesMissing, text } = Excerpt.excerpt(given, bytesMax)
      const [head = "", ...tail] = text.split(Excerpt.marker(bytesMissing))
      const kept =
        bytesMissing === 0 ? bytesOf(text) : bytesOf(head) + bytesOf(tail.join(Excerpt.marker(bytesMissing)))
      return (
        bytesOf(text) <= bytesMax &&
        kept + bytesMissing === bytesOf(given) &&
        given.startsWith(bytesMissing === 0 ? text : head) &&
        given.endsWith(bytesMissing === 0 ? text : tail.join(Excerpt.marker(bytesMissing)))
      )
    },
    { arbitrary: { runs: 300, seed: 20_260 } }
  )
})
