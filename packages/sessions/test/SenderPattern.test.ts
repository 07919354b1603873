/** Sender patterns, compared with a plain, slow matcher, and with a file matcher where both have the same meaning. */
import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Result, Schema } from "effect"
import picomatch from "picomatch"
import * as SenderPattern from "../src/internal/config/SenderPattern.ts"

const of = (pattern: string): SenderPattern.SenderPattern => {
  const parsed = SenderPattern.parse(`c:${pattern}`)
  assert(Result.isSuccess(parsed), `${pattern}: ${Result.isFailure(parsed) ? parsed.failure : ""}`)
  return parsed.success
}

const matches = (pattern: string, senderId: string) => of(pattern).matches(senderId)

/** Matches by trying everything, for patterns without brackets and backslashes. */
const plainly = (pattern: ReadonlyArray<string>, sender: ReadonlyArray<string>): boolean => {
  const [mark, ...marks] = pattern
  if (mark === undefined) return sender.length === 0
  if (mark === "*") return sender.some((_, at) => plainly(marks, sender.slice(at))) || plainly(marks, [])
  const [first, ...rest] = sender
  return first !== undefined && (mark === "?" || mark === first) && plainly(marks, rest)
}

describe("a key of senders", () => {
  it.each([
    ["telegram:12345", "telegram", "12345"],
    ["matrix:@ana:example.org", "matrix", "@ana:example.org"],
    ["mail:a.b+c@example.org", "mail", "a.b+c@example.org"],
    ["x-1_2.3:😀", "x-1_2.3", "😀"]
  ])("%s is a channel and a sender", (key, channel, text) => {
    const parsed = SenderPattern.parse(key)
    assert(Result.isSuccess(parsed))
    assert.deepStrictEqual([parsed.success.channel, parsed.success.text], [channel, text])
    assert.strictEqual(parsed.success.exact, text)
  })

  it.each(["telegram", "telegram:", ":1", "a b:1", "*:1", "-a:1", "a:\n", `a:${"x".repeat(129)}`, ""])(
    "%j is invalid",
    (key) => {
      const parsed = SenderPattern.parse(key)
      assert(Result.isFailure(parsed))
      assert.strictEqual(parsed.failure, SenderPattern.keyExpected)
    }
  )
})

const cases: ReadonlyArray<
  readonly [pattern: string, yes: ReadonlyArray<string>, no: ReadonlyArray<string>]
> = [
  ["U0*", ["U0", "U012", "U0/x", "U0\\", "U0:x", "U0..", "U0\u2028x", "U0😀"], ["u012", "XU0", ""]],
  ["*", ["", "a", ".hidden", "..", "a/b", "../x"], []],
  ["**", ["", "..", "a/../b"], []],
  ["?", ["a", "/", ".", "😀"], ["", "ab"]],
  ["*/x", ["/x", "a/b/x"], ["x"]],
  ["./a*", ["./a", "./ab"], ["a"]],
  [".*", [".", ".x"], ["x."]],
  ["+49*", ["+49", "+4912"], ["49"]],
  ["*@example.org", ["a@example.org"], ["a@exampleXorg"]],
  ["a!b", ["a!b"], ["ab"]],
  ["[a-c]1", ["a1", "b1", "c1"], ["d1", "-1", "1"]],
  ["[!a-c]", ["d", "/", "-"], ["a", "b", ""]],
  ["[^0-9]*", ["a1", ".1"], ["1a"]],
  ["[a-]", ["a", "-"], ["b"]],
  ["[-a]", ["a", "-"], ["b"]],
  ["[a\\-c]", ["a", "-", "c"], ["b"]],
  ["[\\]x]", ["]", "x"], ["\\"]],
  ["[\\!\\\\!a]", ["!", "\\", "a"], ["b"]],
  ["[!^a]", ["b"], ["^", "a"]],
  ["[.]", ["."], ["a"]],
  ["[😀-😂]", ["😁"], ["a"]],
  ["\\[x\\]", ["[x]"], ["x"]],
  ["\\*", ["*"], ["a", ""]],
  ["a\\?\\\\", ["a?\\"], ["ab\\"]],
  ["\\!a\\{b\\|c\\}\\(d\\)", ["!a{b|c}(d)"], ["a"]]
]

describe("a pattern", () => {
  for (const [pattern, yes, no] of cases) {
    it(`${pattern} matches as documented`, () => {
      for (const sender of yes) assert.isTrue(matches(pattern, sender), sender)
      for (const sender of no) assert.isFalse(matches(pattern, sender), sender)
    })
  }

  it.each([
    ["[", "got [ at character 1 "],
    ["a[b", "got [ at character 2 "],
    ["[]", "got ["],
    ["[!]", "got ["],
    ["[^]", "got ["],
    ["]", "got ]"],
    ["[[:alpha:]]", "got ["],
    ["[c-a]", "ascending"],
    ["{a,b}", "got {"],
    ["@(a|b)", "got ( at character 2 "],
    ["a|b", "got |"],
    ["!a", "got !"],
    ["a\\", "got \\"],
    ["a\\d", "got \\"],
    ["[\\d]", "got ["]
  ])("%j is refused: %s", (pattern, says) => {
    const parsed = SenderPattern.parse(`c:${pattern}`)
    assert(Result.isFailure(parsed))
    assert.include(parsed.failure, says)
  })

  it("distinguishes one sender from a pattern", () => {
    assert.strictEqual(of("a\\*b").exact, "a*b")
    for (const pattern of ["a*", "?", "[a]"]) assert.isUndefined(of(pattern).exact)
  })

  it("takes at most the product of both lengths", () => {
    const pattern = "*a".repeat(63) + "*b"
    // Backtracking over all stars would practically never end.
    for (const length of [100, 1000, 10_000]) assert.isFalse(matches(pattern, "a".repeat(length)))
    assert.isTrue(matches(pattern, `${"a".repeat(1000)}b`))
  })
})

const letters = Schema.Literals(["a", "b", "*", "?", "/", ".", "😀"])
const Pattern = Schema.Array(letters).check(Schema.isMinLength(1), Schema.isMaxLength(8))
const Sender = Schema.Array(Schema.Literals(["a", "b", "/", ".", "😀"])).check(Schema.isMaxLength(10))

it.prop(
  "patterns match like a matcher that tries everything",
  [Pattern, Sender],
  ([pattern, sender]) =>
    assert.strictEqual(
      matches(pattern.join(""), sender.join("")),
      plainly(pattern, sender),
      pattern.join("")
    ),
  { arbitrary: { runs: 3000, seed: "sender-plainly" } }
)

const Word = Schema.Array(Schema.Literals(["a", "b", "c", "*", "?", "[ab]", "[^a]", "[a-c]"])).check(
  Schema.isMinLength(1),
  Schema.isMaxLength(5)
)

it.prop(
  "patterns of letters match like file patterns",
  [Word, Arbitrary.array(Arbitrary.schema(Schema.Literals(["a", "b", "c", "d"])), { maxLength: 6 })],
  ([pattern, sender]) => {
    const text = pattern.join("").replaceAll(/\*+/gu, "*")
    if (sender.length === 0) return
    assert.strictEqual(
      matches(text, sender.join("")),
      picomatch.isMatch(sender.join(""), text, { dot: true, bash: true }),
      `${text} ${sender.join("")}`
    )
  },
  { arbitrary: { runs: 2000, seed: "sender-picomatch" } }
)

it.prop(
  "patterns have a total order, with longer ones first",
  [Pattern, Pattern],
  ([one, other]) => {
    const [a, b] = [of(one.join("")), of(other.join(""))]
    const order = Math.sign(SenderPattern.compare(a, b))
    assert.strictEqual(order + Math.sign(SenderPattern.compare(b, a)), 0)
    assert.strictEqual(order === 0, a.text === b.text)
    if (one.length > other.length) assert.strictEqual(order, -1)
  },
  { arbitrary: { runs: 500, seed: "sender-order" } }
)
