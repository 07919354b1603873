/** YAML as plain values with positions, and the YAML that is rejected. */
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { stringify } from "yaml"
import * as ConfigurationError from "@cogni/sandbox-sessions/config/ConfigurationError"
import * as YamlDocument from "../src/internal/config/YamlDocument.ts"

/** Returns the problems as `line:column key: message`. */
const problemsOf = (text: string): ReadonlyArray<string> => {
  const parsed = YamlDocument.parse(text)
  return Result.isFailure(parsed) ? parsed.failure.map(ConfigurationError.describe) : []
}

const read = (text: string): YamlDocument.YamlDocument => Result.getOrThrow(YamlDocument.parse(text))

const valueOf = (text: string): unknown => JSON.parse(JSON.stringify(read(text).value))

const refused: ReadonlyArray<readonly [what: string, text: string, where: string, says: string]> = [
  ["two documents", "a: 1\n---\nb: 2\n", "2:1", "one document"],
  ["a tab as indentation", "a:\n\tb: 1\n", "2:1", "Tabs"],
  ["an unknown tag", "a: !x 1\n", "1:4", "no tag"],
  ["a tag for bytes", "a: !!binary AAAA\n", "1:4", "no tag"],
  ["an unknown directive", "%FOO x\n---\na: yes\n", "1:1", "directive"],
  ["a duplicate key", "a: 1\nb: 1\na: 2\n", "3:1 a:", "once"],
  ["a duplicate key in brackets", "x: {a: 1, a: 2}\n", "1:11 x.a:", "once"],
  ["a duplicate key in another spelling", 'a: 1\n"\\x61": 2\n', "2:1 a:", "once"],
  ["a list as key", "? [a]\n: b\n", "1:3", "string as key"],
  ["a number that is too large", "a: 1e999\n", "1:4 a:", "decimal number"],
  ["infinity", "a: .inf\n", "1:4 a:", "decimal number"],
  ["not a number", "a: .NaN\n", "1:4 a:", "decimal number"],
  ["an octal", "a: {b: [0o17]}\n", "1:9 a.b.0:", "decimal number"],
  ["an octal of YAML 1.1", "a: 017\n", "1:4 a:", "decimal number"],
  ["a hexadecimal", "a: 0xff\n", "1:4 a:", "decimal number"],
  ["an exponent", "a: 1e3\n", "1:4 a:", "decimal number"],
  ["an alias without an anchor", "a: *x\n", "1:4 a:", "alias"],
  ["an alias before its anchor", "a: *x\nb: &x 1\n", "1:4 a:", "alias"],
  ["a bracket that is not closed", "a: [b\nc: d\n", "2:1", "end with a ]"],
  ["a quote that is not closed", "a: 'b\n", "2:1", "Missing closing"],
  ["two colons", "a: b: c\n", "1:4", "Nested mappings"],
  ["a reserved character", "a: @b\n", "1:4", "reserved character"],
  ["an invalid escape", 'a: "\\q"\n', "1:5", "escape"]
]

describe("rejected YAML", () => {
  it.each(refused)("%s", (_, text, where, says) => {
    const [problem] = problemsOf(text)
    assert.isDefined(problem)
    assert.isTrue(problem!.startsWith(where), problem)
    assert.include(problem, says)
  })

  it("is reported with all problems at once", () => {
    assert.lengthOf(problemsOf("a: 017\nb: 0x1\nb: 2\nc: *x\n"), 4)
  })

  it("is not repeated in messages", () => {
    const secret = "a".repeat(60)
    for (const text of [`a: *${secret}\n`, `a: !${secret} 1\n`, `a: @${secret}`, `%${secret}\n---\na: 1`]) {
      const [problem] = problemsOf(text)
      assert.isDefined(problem)
      assert.notMatch(problem!, /a{50}/u)
    }
  })
})

describe("aliases", () => {
  it("have the value of their anchor, and their own position", () => {
    const document = read("a: &x {b: [1, 2]}\nc: *x\n")
    assert.deepStrictEqual(document.value, { a: { b: [1, 2] }, c: { b: [1, 2] } })
    assert.include(document.problem(["c", "b"], "m"), { line: 2, column: 1, key: "c.b" })
  })

  it("refer to the last preceding anchor of their name", () => {
    assert.deepStrictEqual(valueOf("a: &x 1\nb: &y [*x]\nc: &x 2\nd: *y\ne: *x\n"), {
      a: 1,
      b: [1],
      c: 2,
      d: [1],
      e: 2
    })
  })

  it("cannot expand beyond the limit: refuses a YAML bomb", () => {
    let bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for (let at = 1; at < 40; at += 1) {
      bomb += `a${at}: &a${at} [${Array.from({ length: 9 }, () => `*a${at - 1}`).join(", ")}]\n`
    }
    const problems = problemsOf(bomb)
    assert.lengthOf(problems, 1)
    assert.include(problems[0], "at most 100000 values")
  })

  it("are limited to 100, and to the maximum number of values", () => {
    const used = (times: number) => Array.from({ length: times }, () => "*x").join(", ")
    assert.include(problemsOf(`a: &x 1\nb: [${used(101)}]\n`)[0], "at most 100 uses of anchors")
    const large = `a: &x [${"1, ".repeat(2000)}1]\n`
    assert.isDefined(read(`${large}b: [${used(40)}]\n`).value)
    assert.deepStrictEqual(problemsOf(`${large}b: [${used(60)}]\n`).length, 1)
  })
})

it("refuses blocks and brackets that are too deep, without a stack overflow", () => {
  for (const text of ["- ".repeat(10_000), "[".repeat(10_000), "{a: ".repeat(10_000)]) {
    assert.isTrue(problemsOf(text).some((problem) => problem.includes("fewer nested levels")))
  }
})

it("reads a large file that is not a configuration in seconds", () => {
  const before = process.cpuUsage()
  const many = Array.from({ length: 20_000 }, (_, at) => `k${at}: 1\n`).join("")
  const { problem } = read(many)
  for (let at = 0; at < 20_000; at += 1) problem([`k${at}`], "m")
  assert.isBelow(process.cpuUsage(before).user / 1e6, 3)
})

describe("positions", () => {
  it("are those of keys, and of the parent of a missing key", () => {
    const { problem } = read("# first\na:\n  b: [x,\n    y]\nc: {d: 1}\n")
    const placeOf = (...path: ReadonlyArray<string | number>) => {
      const { column, line } = problem(path, "m")
      return [line, column]
    }
    assert.deepStrictEqual(placeOf("a", "b"), [3, 3])
    assert.deepStrictEqual(placeOf("a", "b", 1), [4, 5])
    assert.deepStrictEqual(placeOf("c", "missing"), [5, 1])
    assert.deepStrictEqual(placeOf("missing"), [1, 1])
  })

  it("count lines with any line ending", () => {
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
  "reads back what was written",
  [Plain],
  ([value]) => assert.deepStrictEqual(valueOf(stringify(value)), value),
  { arbitrary: { runs: 300, seed: "yaml-tree" } }
)
