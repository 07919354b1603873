/** Tests that no text hides anything. */
import { assert, describe, it } from "@effect/vitest"
import * as HostileTexts from "../../../test/harness/HostileTexts.ts"
import * as VisibleText from "../src/VisibleText.ts"

describe("VisibleText", () => {
  it("shows characters that reverse, hide or control text", () => {
    assert.strictEqual(VisibleText.line("a\u202eb"), "a⟨U+202E⟩b")
    assert.strictEqual(
      VisibleText.line("a\u0000\u001b\u0007\u200b\ufeff\u{e0041}"),
      "a⟨U+0000⟩⟨U+001B⟩⟨U+0007⟩⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩"
    )
    assert.strictEqual(VisibleText.block("a\u2028b\rc"), "a⟨U+2028⟩b⟨U+000D⟩c")
  })

  it("keeps ordinary text of any language, and lines and tabs where they belong", () => {
    for (const text of ["Limå", "日本語", "العربية", "emoji 🎉 ❤️", "é"])
      assert.strictEqual(VisibleText.line(text), text)
    assert.strictEqual(VisibleText.block("a\r\n\tb"), "a\n\tb")
    assert.strictEqual(VisibleText.line("a\r\n\tb"), "a  b")
    assert.strictEqual(VisibleText.code("\tif (x)\n"), "\tif (x) ")
  })

  it("cuts long text and says how much is missing, never within a character", () => {
    assert.strictEqual(VisibleText.line("abcdef", 3), "abc… (3 more characters)")
    assert.strictEqual(VisibleText.line("ab🎉cd", 3), "ab… (4 more characters)")
    assert.isBelow(VisibleText.line("x".repeat(10_000_000)).length, 400)
  })

  it("piles few marks on a letter", () => {
    assert.isBelow(VisibleText.line(`e${"\u0301".repeat(1000)}`, 2000).length, 20)
  })

  it("shows every character of a whole text, however long and with however many marks", () => {
    const back = (text: string) =>
      text.replaceAll(/⟨U\+([0-9A-F]+)⟩/gu, (_, code: string) =>
        String.fromCodePoint(Number.parseInt(code, 16))
      )
    const long = `${"x".repeat(VisibleText.blockCharsMax * 2)}y`
    for (const text of [
      ...HostileTexts.texts,
      long,
      `e${"\u0301".repeat(1000)}`,
      `e\u0301${"\u{1d165}".repeat(9)}`,
      "\ud800x\udc00\r\n"
    ])
      assert.strictEqual(back(VisibleText.whole(text)), text)
    assert.notMatch(VisibleText.whole(`e${"\u0301".repeat(1000)}`), /\p{M}{5}/u)
    assert.isTrue(VisibleText.whole(`e\u0301${"\u{1d165}".repeat(9)}`).isWellFormed())
  })

  it("leaves no such character in any hostile text", () => {
    for (const text of HostileTexts.texts)
      for (const shown of [
        VisibleText.line(text),
        VisibleText.block(text),
        VisibleText.code(text),
        VisibleText.whole(text)
      ])
        assert.notMatch(
          shown,
          /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff]/u
        )
  })
})
