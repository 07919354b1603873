/** The output of an agent is visible on a terminal, and cannot control it. */
import { assert, describe, it } from "@effect/vitest"
import * as TerminalText from "../src/TerminalText.ts"
import { Schema } from "effect"

describe("TerminalText", () => {
  it("control characters become visible; tabs and line ends stay", () => {
    assert.strictEqual(
      TerminalText.visible("a\tb\r\nc\u001b[31m\u0007\u009b\u007f"),
      "a\tb\r\nc^[[31m^G\\u{9b}^?"
    )
    assert.strictEqual(TerminalText.visible("a\u202eb"), "a\\u{202e}b")
    assert.strictEqual(TerminalText.visible("rm -rf /\rls"), "rm -rf /^Mls")
    assert.strictEqual(TerminalText.visible("a\r\r\nb\r"), "a^M\r\nb^M")
    assert.strictEqual(TerminalText.visible("a\u200bb\u{e0041}\ufeff"), "a\\u{200b}b\\u{e0041}\\u{feff}")
    assert.strictEqual(TerminalText.visible("👩‍👩‍👧 é → שלום"), "👩‍👩‍👧 é → שלום")
  })

  it("every invisible character becomes visible", () => {
    const shown = new Set([0x200c, 0x200d, 0xfe0f])
    const others = new Set([0x2800, 0x16fe4, 0x1d159, 0x13430, 0x1343f, 0xfff9, 0xfffa, 0xfffb])
    const survived: Array<string> = []
    for (let code = 0; code <= 0x10ffff; code++) {
      const character = String.fromCodePoint(code)
      if (!others.has(code) && (shown.has(code) || !/\p{Default_Ignorable_Code_Point}/u.test(character)))
        continue
      const text = TerminalText.visible(`a${character}b`)
      if (text !== `a\\u{${code.toString(16)}}b`) survived.push(code.toString(16))
    }
    assert.deepStrictEqual(survived, [])
    assert.strictEqual(TerminalText.visible("❤️ می‌خواهم"), "❤️ می‌خواهم")
  })

  it.prop("JSON for a terminal has the same value, and no hidden character", [Schema.Json], ([value]) => {
    const text = JSON.stringify({ value, agent: "\u009b31m\u202e\u007f\r\u001b\u{e0041}" }, undefined, 2)
    const shown = TerminalText.visibleJson(text)
    assert.deepStrictEqual(JSON.parse(shown), JSON.parse(text))
    assert.strictEqual(TerminalText.visible(shown), shown)
  })

  it.prop("no escape sequence survives", [Schema.String], ([text]) => {
    // eslint-disable-next-line no-control-regex
    assert.notMatch(TerminalText.visible(`${text}\u001b]0;x\u0007`), /[\u0000-\u0008\u001b\u007f-\u009f]/u)
    assert.notMatch(TerminalText.oneLine(`${text}\n${text}`), /[\n\r]/u)
  })

  it("a character or a line ending that is split between two pieces stays one", () => {
    const filter = TerminalText.makeFilter()
    const bytes = new TextEncoder().encode("é→\r\nls\r")
    assert.strictEqual([...bytes].map((byte) => filter(Uint8Array.of(byte))).join(""), "é→\r\nls")
    assert.strictEqual(filter("rm"), "^Mrm")
  })

  it("wraps at spaces, and does not break long words", () => {
    assert.deepStrictEqual(TerminalText.wrap("one two three\nverylongword x", 7), [
      "one two",
      "three",
      "verylongword",
      "x"
    ])
  })

  it("columns are as wide as their widest cell", () => {
    assert.deepStrictEqual(
      TerminalText.columns(
        [
          ["a", "bbb", "c"],
          ["aa", "b", ""]
        ],
        " "
      ),
      [" a   bbb  c", " aa  b"]
    )
  })
})
