/** YAML as plain values with their places, and what of it is not taken. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { stringify } from "yaml"
import * as YamlText from "../src/internal/config/YamlText.ts"
import * as YamlTree from "../src/internal/config/YamlTree.ts"

/** What is wrong, each as `line:column key: message`. */
const problemsOf = (text: string): ReadonlyArray<string> => {
  const parsed = YamlTree.parse(text)
  return parsed._tag === "Broken"
    ? parsed.problems.map(({ column, key, line, message }) => `${line}:${column} ${key}: ${message}`)
    : parsed.findings.map(({ message, part, path, place }) => {
        const { column, line } = place ?? parsed.tree.placeOf(path, part)
        return `${line}:${column} ${YamlTree.describePath(path)}: ${message}`
      })
}

const valueOf = (text: string): unknown => {
  const parsed = YamlTree.parse(text)
  assert(parsed._tag === "Tree")
  assert.deepStrictEqual(parsed.findings, [])
  return JSON.parse(JSON.stringify(parsed.tree.value))
}

const refused: ReadonlyArray<readonly [what: string, text: string, where: string, says: string]> = [
  ["an empty file", "", "1:1 :", "empty file"],
  ["a file of comments", "# a\n\n# b\n", "1:1 :", "empty file"],
  ["an empty document", "---\n...\n", "1:1 :", "empty file"],
  ["two documents", "a: 1\n---\nb: 2\n", "2:1 :", "one document"],
  ["two documents of scalars", "--- 1\n--- 2\n", "2:1 :", "one document"],
  ["a tab as indentation", "a:\n\tb: 1\n", "2:1 :", "tab"],
  ["a tag", "a: !x 1\n", "1:4 :", "no tag"],
  ["a tag of YAML's own", "a: !!binary AAAA\n", "1:4 :", "no tag"],
  ["another version", "%YAML 1.1\n---\na: yes\n", "1:1 :", "directive"],
  ["a key twice", "a: 1\nb: 1\na: 2\n", "3:1 a:", "once"],
  ["a key twice, in brackets", "x: {a: 1, a: 2}\n", "1:11 x.a:", "once"],
  ["a key twice, spelled otherwise", 'a: 1\n"\\x61": 2\n', "2:1 a:", "once"],
  ["a number as key", "1: a\n", "1:1 :", "string as key, got 1 (quote it)"],
  ["a boolean as key", "x:\n  true: a\n", "2:3 x:", "string as key, got true"],
  ["nothing as key", "x: {~: a}\n", "1:5 x:", "string as key, got ~"],
  ["no key", ": a\n", "1:1 :", "string as key"],
  ["a list as key", "? [a]\n: b\n", "1:3 :", "string as key"],
  ["a merge key", "x: &x {a: 1}\ny:\n  <<: *x\n", "3:3 y:", "merge key"],
  ["__proto__", "__proto__: {a: 1}\n", "1:1 :", "reserved"],
  ["constructor", "x:\n  constructor: 1\n", "2:3 x:", "reserved"],
  ["an escaped NUL", 'a: "x\\0"\n', "1:4 a:", "NUL"],
  ["half a character, escaped", 'a: "\\ud800"\n', "1:4 a:", "halves"],
  ["an escaped NUL in a key", '"a\\0": 1\n', "1:1 :", "NUL"],
  ["more than a number is", "a: 1e999\n", "1:4 a:", "decimal number"],
  ["infinity", "a: .inf\n", "1:4 a:", "decimal number"],
  ["no number", "a: .NaN\n", "1:4 a:", "decimal number"],
  ["an octal", "a: 0o17\n", "1:4 a:", "decimal number, such as 300 or 0.5, got 0o17"],
  ["an octal of YAML 1.1", "a: 017\n", "1:4 a:", "decimal number"],
  ["a hexadecimal", "a: 0xff\n", "1:4 a:", "decimal number"],
  ["an exponent", "a: 1e3\n", "1:4 a:", "decimal number"],
  ["an alias of nothing", "a: *x\n", "1:4 a:", "alias"],
  ["an alias of itself", "a: &x [*x]\n", "1:8 a.0.0:", "inside what it stands for"],
  ["a bracket that is not closed", "a: [b\nc: d\n", "2:1 :", "Expected"],
  ["a quote that is not closed", "a: 'b\n", "2:1 :", "missing"],
  ["two colons", "a: b: c\n", "1:4 :", "one `:`"],
  ["a reserved character", "a: @b\n", "1:4 :", "reserved character"],
  ["an escape that is none", 'a: "\\q"\n', "1:5 :", "escape"]
]

describe("what is refused", () => {
  it.each(refused)("%s", (_, text, where, says) => {
    const [problem] = problemsOf(text)
    assert.isDefined(problem)
    assert.isTrue(problem!.startsWith(where), problem)
    assert.include(problem, says)
  })

  it("is told all at once", () => {
    assert.lengthOf(problemsOf("1: a\nb: 0x1\nb: 2\n<<: c\n"), 4)
  })

  it("repeats nothing that is long", () => {
    const secret = "a".repeat(200)
    for (const text of [
      `a: 0${"1".repeat(200)}\n`,
      `a: *${secret}\n`,
      `a: !${secret} 1\n`,
      `[${secret}]: 1\n`,
      `a: @${secret}`
    ]) {
      const [problem] = problemsOf(text)
      assert.isDefined(problem)
      assert.notMatch(problem!, /[a1]{61}/u)
    }
  })
})

describe("aliases", () => {
  it("are what they stand for, at their own place", () => {
    const text = "a: &x {b: [1, 2]}\nc: *x\n"
    assert.deepStrictEqual(valueOf(text), { a: { b: [1, 2] }, c: { b: [1, 2] } })
    const parsed = YamlTree.parse(text)
    assert(parsed._tag === "Tree")
    assert.deepStrictEqual(parsed.tree.placeOf(["c"], "value"), { line: 2, column: 4 })
  })

  it("and all else become objects without a prototype", () => {
    const parsed = YamlTree.parse("a: &x {b: 1}\nc: *x\n")
    assert(parsed._tag === "Tree")
    const root = parsed.tree.value as Readonly<Record<string, unknown>>
    for (const object of [root, root["a"], root["c"]]) assert.isNull(Object.getPrototypeOf(object))
  })

  it("stand for the last of their name before them", () => {
    assert.deepStrictEqual(valueOf("a: &x 1\nb: &y [*x]\nc: &x 2\nd: *y\ne: *x\n"), {
      a: 1,
      b: [1],
      c: 2,
      d: [1],
      e: 2
    })
    assert.include(problemsOf("a: *x\nb: &x 1\n")[0], "1:4 a: Expected an alias")
  })

  it("are found at once, however many there are", () => {
    const before = process.cpuUsage()
    assert.deepStrictEqual(problemsOf(`a: &a 1\nb: [${"*a, ".repeat(9000)}]\n`), [])
    assert.isBelow(process.cpuUsage(before).user / 1000, 3000)
  })

  it("do not make many of few: a bomb is refused at a number of values", () => {
    let bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for (let at = 1; at < 40; at += 1) {
      bomb += `a${at}: &a${at} [${Array.from({ length: 9 }, () => `*a${at - 1}`).join(", ")}]\n`
    }
    const problems = problemsOf(bomb)
    assert.lengthOf(problems, 1)
    assert.include(problems[0], `at most ${YamlTree.nodesMax} values in all`)
  })

  it("do not make deep of shallow", () => {
    const text = Array.from(
      { length: YamlText.depthMax + 2 },
      (_, at) => `a${at}: &a${at} {x: ${at === 0 ? "1" : `*a${at - 1}`}}\n`
    ).join("")
    assert.isTrue(problemsOf(text).some((problem) => problem.includes(YamlText.tooDeep)))
  })

  it("of blocks too deep are refused, not overflowed", () => {
    for (const text of [
      "- ".repeat(10_000),
      "? ".repeat(10_000),
      Array.from({ length: 200 }, (_, at) => `${" ".repeat(at)}-\n`).join("")
    ]) {
      assert.isTrue(problemsOf(text).some((problem) => problem.includes(YamlText.tooDeep)))
    }
  })
})

describe("places", () => {
  it("are those of keys and of values, and of what would hold a key that is not there", () => {
    const parsed = YamlTree.parse("# first\na:\n  b: [x,\n    y]\nc: {d: 1}\n")
    assert(parsed._tag === "Tree")
    const { placeOf } = parsed.tree
    assert.deepStrictEqual(placeOf(["a", "b"], "key"), { line: 3, column: 3 })
    assert.deepStrictEqual(placeOf(["a", "b"], "value"), { line: 3, column: 6 })
    assert.deepStrictEqual(placeOf(["a", "b", 1], "value"), { line: 4, column: 5 })
    assert.deepStrictEqual(placeOf(["c", "missing"], "key"), { line: 5, column: 1 })
    assert.deepStrictEqual(placeOf(["missing"], "key"), { line: 1, column: 1 })
  })

  it("count lines of any end", () => {
    assert.match(problemsOf("a: 1\r\nb: 0x1\r\n")[0]!, /^2:4 b/u)
  })
})

const Plain = Schema.Record(
  Schema.String.check(Schema.isPattern(/^[a-z _:#-]{1,12}$/u)),
  Schema.Union([
    Schema.String.check(Schema.isPattern(/^[ -~]{0,20}$/u)),
    Schema.Int.check(Schema.isBetween({ minimum: -1e9, maximum: 1e9 })),
    Schema.Boolean,
    Schema.Array(Schema.String.check(Schema.isPattern(/^[ -~]{0,8}$/u)))
  ])
).check(Schema.isMinProperties(1))

it.prop(
  "what is written is what is read",
  [Plain],
  ([value]) => assert.deepStrictEqual(valueOf(stringify(value)), value),
  { arbitrary: { runs: 300, seed: "yaml-tree" } }
)
