/** Text that an agent wrote has no effect in a forge. */
import { assert, describe, it } from "@effect/vitest"
import * as PullRequestText from "../src/internal/forge/PullRequestText.ts"
import { Schema } from "effect"

const facts = { runId: "run-000000000001", baseBranch: "main" }
const of = (...messages: ReadonlyArray<string>) => PullRequestText.make({ ...facts, messages })

/**
 * Patterns that forges look for in raw text, code or not: GitLab's closing words in a description, and all of them in
 * the commit message that a squash merge makes of a description.
 */
const actingAnywhere = [
  // Mentions, issues, merge requests, epics, snippets, milestones, labels, alerts.
  /@[\p{L}\p{N}_]/u,
  /[#!&$%^~][\p{L}\p{N}_"{]/u,
  /GH-\d/iu,
  // GitLab's default closing words, followed by a reference or the URL of an issue.
  /\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?):? +(?:issues? +)?(?:#\d|https?:\/\/|[A-Z][A-Z0-9_]+-\d)/iu,
  /:\/\//u,
  /www\./iu,
  /!\[/u,
  // Commands of GitLab, and markers of commits for which no pipeline must run.
  /^\s*\/[a-z]/imu,
  /\[(?:skip ci|ci skip|no ci)\]/iu
]

/** Patterns that have an effect only outside code. */
const actingInText = [/\]\(/u, /<[a-z/!?]/iu, /&[#a-z]/iu, /`/u]

/** Characters that change the direction of writing, end a line for some programs, or are invisible. */
const unseen =
  /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\u{e0000}-\u{e007f}]/u

/** Returns the body without its block of code; there must be exactly one. */
const outside = (body: string): string => {
  const opening = /\n(`{3,})text\n/u.exec(body)
  if (opening === null) return assert.fail(`there is no block: ${body}`)
  const fence = opening[1]!
  const rest = body.slice(opening.index + opening[0].length)
  const lines = rest.split("\n")
  const end = lines.findIndex((line) => new RegExp(`^ {0,3}\`{${fence.length},}\\s*$`, "u").test(line))
  if (end === -1) return assert.fail(`the block has no end: ${body}`)
  return `${body.slice(0, opening.index)}\n${lines.slice(end + 1).join("\n")}`
}

const assertInert = ({ body, title }: { readonly body: string; readonly title: string }) => {
  for (const pattern of actingAnywhere) {
    assert.notMatch(title, pattern)
    assert.notMatch(body, pattern)
  }
  // The host's own words about the run are code too.
  const around = outside(body).replace("`run-000000000001`", "").replace("`main`", "")
  for (const pattern of actingInText) assert.notMatch(around, pattern)
  for (const pattern of actingInText.slice(0, -1)) assert.notMatch(title, pattern)
  assert.notMatch(title + body, unseen)
  assert.notInclude(title, "\n")
  assert.isAtMost(title.length, PullRequestText.titleCharactersMax)
  assert.isAtMost(body.length, PullRequestText.bodyCharactersMax)
  assert.isTrue(title.isWellFormed() && body.isWellFormed())
}

const hostile = [
  "fixes #1",
  "Closes GH-12, acme/other#3",
  "Implements: issue #4 and PROJ-12",
  "resolves https://github.com/acme/app/issues/1",
  "@everyone look",
  "see !7, &8, $9, %10, ~bug, ^alert#11",
  "![x](https://evil.example/beacon.png)",
  "![x][beacon]\n\n[beacon]: //evil.example/x",
  "<img src=https://evil.example/x>",
  "<!-- hidden -->",
  "[click](javascript:alert(1)) www.evil.example",
  "&#64;admin",
  "done [skip ci] [ci skip]",
  "ok\n/merge\n  /assign me",
  "```\n/close\n@out\n```",
  "````````text\n@out",
  "a\u202Eb\u0007c\u001b[31m\u061c\u{e0041}\u{e0042}",
  "one\u2028@two\u0085/close\r#3",
  "\n\n\u0000\nfixes #1",
  "#\u00001 @\u200e\u200fadmin #\u{e0041}1 @\u061cadmin",
  "@\ud800admin",
  `${"`".repeat(500)}\n@out\n${"`".repeat(500)}`,
  "~~~\n@out"
]

/** Fragments that are combined. */
const Piece = Schema.Literals([
  ..."@#!&$%^~[]()<>/:`'\"\\_*-.1a\n\r\t \u2060\u200b\u2028\u202e\u061c",
  "\ud83d",
  "\u{e0041}",
  "😀",
  "fixes",
  "Closes:",
  "GH-",
  "PROJ-",
  "www",
  "http://",
  "```",
  "admin",
  "skip ci",
  "\n/close"
])

describe("PullRequestText", () => {
  it("uses the first commit's subject as the title, and all messages as code in the body", () => {
    const { body, title } = of("Repair adding\n\nIt took away.", "Test it")
    assert.strictEqual(title, "Repair adding")
    assert.include(body, "2 commits of run `run-000000000001`, for `main`")
    assert.include(body, "```text\nRepair adding\n\nIt took away.\n\nTest it\n```")
  })

  it("keeps split text readable as it was written", () => {
    const text = "fixes #1, @admin: see https://git.example.com/a/b_c"
    const { body, title } = of(text)
    assert.strictEqual(title.replaceAll("\u2060", ""), text)
    assert.include(body.replaceAll("\u2060", ""), text)
  })

  it.each(["fix(proxy): parse() fails on an empty_file", "Use `map` & <= 50% of *it*", "Add [a] link (b)"])(
    "leaves the ordinary title %j as it is, apart from references",
    (text) => assert.strictEqual(of(text).title.replace("[\u2060a", "[a"), text)
  )

  it("uses the run ID in the title if there is no subject", () => {
    assert.include(of("").title, "run-000000000001")
    assert.include(of().title, "run-000000000001")
    assert.include(of("\n \u0007\n").title, "run-000000000001")
  })

  it.each(hostile)("removes the effects of %j", (text) => {
    assertInert(of(text, text))
    assertInert(of(`Repair ${text}`, `and\n${text}`))
  })

  it.prop("removes the effects of any text", [Schema.Array(Schema.String)], ([messages]) => {
    assertInert(of(...messages.map((message, index) => `${hostile[index % hostile.length]}${message}`)))
  })

  it.prop(
    "removes the effects of combined fragments",
    [Schema.Array(Piece), Schema.Array(Piece)],
    ([one, other]) => {
      assertInert(of(one.join(""), other.join("")))
      assertInert(of(`${one.join("")}${other.join("")}`.repeat(200)))
    }
  )

  it("cuts text between characters, and still ends its block of code", () => {
    const long = "😀".repeat(5000)
    assertInert(of(long, ...Array.from({ length: 50 }, () => long)))
    assertInert(of(`x${long}`, ...Array.from({ length: 50 }, () => `${"`".repeat(398)}\n#1${long}`)))
    for (let shift = 0; shift < 4; shift += 1) assertInert(of(`${"a".repeat(shift)}${"@b#1".repeat(9000)}`))
  })
})
