/** What keeps a text from being read as YAML at all. */
import { assert, describe, it } from "@effect/vitest"
import * as YamlText from "../src/internal/config/YamlText.ts"

const says = (text: string) => YamlText.problemsOf(text).map(({ message }) => message)

describe("a text", () => {
  it("may hold anything that is plain YAML", () => {
    const text = 'a: "\\0"\nb: |\n  !important\n  %done\n  # no comment\nc: &x [1, 2]\nd: *x\n\te: 😀\u0085\n'
    assert.deepStrictEqual(says(text), [])
  })

  it("is of at most a mebibyte, counted in bytes", () => {
    assert.deepStrictEqual(says(`# ${"x".repeat(YamlText.textBytesMax - 2)}`), [])
    const message = "Expected a file of at most 1048576 bytes (1 MiB)"
    assert.deepStrictEqual(says("x".repeat(YamlText.textBytesMax + 1)), [message])
    assert.deepStrictEqual(says("é".repeat(YamlText.textBytesMax / 2 + 1)), [message])
  })

  it.each([
    ["\0", "NUL"],
    ["\u0007", "U+0007"],
    ["\u001b", "U+001B"],
    ["\u007f", "U+007F"],
    ["\u0080", "U+0080"],
    ["\ud800", "U+D800"],
    ["\uffff", "U+FFFF"]
  ])("has no character %j", (character, name) => {
    const [problem, ...rest] = YamlText.problemsOf(`a: x${character}y\n`)
    assert.strictEqual(problem?.offset, 4)
    assert.include(problem?.message, `got the character ${name} `)
    assert.deepStrictEqual(rest, [])
  })

  it.each([[0], [3]])("has no byte order mark, at %i", (at) => {
    const [problem] = YamlText.problemsOf(`${"#".repeat(at)}\ufeffa: 1`)
    assert.strictEqual(problem?.offset, at)
    assert.include(problem?.message, "byte order mark")
  })

  it("has no tags, wherever they are, and no directives", () => {
    const text = "%YAML 1.1\n---\na: !!str 1\nb: !x [!<tag:x> y]\n! c: d\n"
    assert.deepStrictEqual(
      YamlText.problemsOf(text).map(({ offset }) => text.slice(offset).split(/[ \n]/u)[0]),
      ["%YAML", "!!str", "!x", "!<tag:x>", "!"]
    )
    assert.include(says("%TAG ! tag:x\n---\na: 1\n")[0], "directive")
  })

  it("is shallow and short, before anything of it is composed", () => {
    assert.deepStrictEqual(says("[".repeat(YamlText.depthMax) + "]".repeat(YamlText.depthMax)), [])
    assert.deepStrictEqual(says("[".repeat(1_000_000)), [YamlText.tooDeep])
    assert.deepStrictEqual(says("{a: ".repeat(200_000)), [YamlText.tooDeep])
    assert.include(says(`[${",".repeat(1_000_000)}]`)[0], "words and marks")
    for (const line of ["a: 1\n", "#\n", "- ", "? ", "---\n", "&a ", "*a\n"]) {
      const [message, ...rest] = says(line.repeat(Math.floor(YamlText.textBytesMax / line.length)))
      assert.strictEqual(
        message,
        `Expected at most ${YamlText.marksMax} words and marks (the file is too large)`
      )
      assert.deepStrictEqual(rest, [])
    }
  })
})
