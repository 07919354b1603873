/** Foreign text that is safe to display: one line of limited length, without characters that a terminal interprets. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Text from "../src/internal/git/ShownText.ts"

/** C0, DEL, C1, and characters that change the direction of writing. */
const acts = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/u

const latin1 = (text: string) => Buffer.from(text, "utf8").toString("latin1")

/** Any bytes, as latin1 character codes. */
const Bytes = Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))

describe("ShownText", () => {
  it.each([
    ["fatal:\tno\n\u001b[31msuch thing.\n", "fatal: no [31msuch thing"],
    ["a \r\n  b", "a b"],
    ["it ended...", "it ended"],
    ["3.14 is.not the end", "3.14 is.not the end"],
    ["exe\u202etxt.cod\u2066x\ufeff", "exe txt.cod x"],
    ["lone \ud800 half", "lone \ufffd half"],
    ["größe ☃ 😀", "größe ☃ 😀"],
    ["\n.\n", ""]
  ])("shows %j as %j on one line", (text, line) => assert.strictEqual(Text.oneLine(text), line))

  it.prop("returns one line that is not longer than allowed, for any text", [Schema.String], ([text]) => {
    const noisy = `\u001b]0;${text}\u0007\n${text}\u0085${text}\u202e`
    for (const charactersMax of [1, 7, Text.lineCharactersMax]) {
      const line = Text.oneLine(noisy.repeat(20), charactersMax)
      assert.notMatch(line, acts)
      assert.isAtMost(line.length, charactersMax)
      assert.isTrue(line.isWellFormed())
    }
    assert.notMatch(Text.printable(noisy), acts)
  })

  it("marks a cut, and cuts no character in two", () => {
    assert.strictEqual(Text.clip("abcd", 4), "abcd")
    assert.strictEqual(Text.clip("abcde", 4), "abc…")
    assert.strictEqual(Text.clip("ab😀", 4), "ab😀")
    assert.strictEqual(Text.clip("ab😀c", 4), "ab…")
    assert.strictEqual(Text.oneLine("x".repeat(401)), `${"x".repeat(399)}…`)
  })

  it.each([
    [latin1("src/größe.ts"), "src/größe.ts"],
    ["latin\u00e9.txt", String.raw`latin\xe9.txt`],
    // A name that is not valid UTF-8 as a whole is escaped byte by byte.
    [`${latin1("ö")}\u00c3`, String.raw`\xc3\xb6\xc3`],
    ["a\nb\u001b", String.raw`a\x0ab\x1b`],
    [latin1("a\u202eb\ufeff"), String.raw`a\u{202e}b\u{feff}`],
    [latin1("a\u0085"), String.raw`a\x85`],
    ["../a b", "../a b"]
  ])("shows the path %j as %s", (path, shown) => assert.strictEqual(Text.showPath(path), shown))

  it.prop("shows a path of any bytes", [Bytes], ([bytes]) => {
    const shown = Text.showPath(Buffer.from(bytes).toString("latin1"))
    assert.notMatch(shown, acts)
    assert.isTrue(shown.isWellFormed())
    assert.isAtMost(Text.showPath(Buffer.from(bytes).toString("latin1").repeat(100)).length, 400)
  })
})
