/**
 * What an agent says can be seen, and can do nothing to the terminal it is seen on.
 */
import { assert, describe, it } from "@effect/vitest"
import * as TerminalText from "@cogni/sandbox-cli/TerminalText"
import { Schema } from "effect"

describe("TerminalText", () => {
  it("control characters become visible; tabs and line ends stay", () => {
    assert.strictEqual(
      TerminalText.visible("a\tb\r\nc\u001b[31m\u0007\u009b\u007f"),
      "a\tb\r\nc^[[31m^G\\u{9b}^?"
    )
    assert.strictEqual(TerminalText.visible("a\u202eb"), "a\\u{202e}b")
  })

  it.prop("no escape sequence survives", [Schema.String], ([text]) => {
    // eslint-disable-next-line no-control-regex
    assert.notMatch(TerminalText.visible(`${text}\u001b]0;x\u0007`), /[\u0000-\u0008\u001b\u007f-\u009f]/u)
    assert.notMatch(TerminalText.oneLine(`${text}\n${text}`), /[\n\r]/u)
  })

  it("a character cut between two pieces is one character", () => {
    const decode = TerminalText.makeDecoder()
    const bytes = new TextEncoder().encode("é→")
    assert.strictEqual([...bytes].map((byte) => decode(Uint8Array.of(byte))).join(""), "é→")
  })

  it("wraps at blanks, and leaves long words whole", () => {
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
