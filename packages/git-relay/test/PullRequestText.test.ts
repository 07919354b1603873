/**
 * Text that an agent wrote, where text acts: nothing of it does.
 */
import { assert, describe, it } from "@effect/vitest"
import * as PullRequestText from "@cogni/sandbox-git-relay/PullRequestText"
import { Schema } from "effect"

const facts = { runId: "run-000000000001", baseBranch: "main" }
const of = (...messages: ReadonlyArray<string>) => PullRequestText.make({ ...facts, messages })

/** What a forge would act on, by a reader of its own. */
const acting = [
  /(?<![\w`])@[a-z\d]/iu,
  /#\d/u,
  /\bGH-\d/iu,
  /!\[/u,
  /\]\(/u,
  /<[a-z/!?]/iu,
  /:\/\//u,
  /&[#a-z]/iu
]

/** The body without its block of code, which must be one block. */
const outside = (body: string): string => {
  const opening = /\n(`{3,})text\n/u.exec(body)
  if (opening === null) return assert.fail(`there is no block: ${body}`)
  const fence = opening[1]!
  const rest = body.slice(opening.index + opening[0].length)
  const lines = rest.split("\n")
  const end = lines.findIndex((line) => new RegExp(`^ {0,3}\`{${fence.length},}\\s*$`, "u").test(line))
  if (end === -1) return body.slice(0, opening.index)
  return `${body.slice(0, opening.index)}\n${lines.slice(end + 1).join("\n")}`
}

const hostile = [
  "fixes #1",
  "Closes GH-12, acme/other#3",
  "@everyone look",
  "![x](https://evil.example/beacon.png)",
  "<img src=https://evil.example/x>",
  "<!-- hidden -->",
  "[click](javascript:alert(1))",
  "&#64;admin",
  "```\n@out\n```",
  "````````text\n@out",
  "a\u202Eb\u0007c\u001b[31m",
  `${"`".repeat(500)}\n@out\n${"`".repeat(500)}`,
  "~~~\n@out"
]

describe("PullRequestText", () => {
  it("the title is the first commit's subject, the body all messages as code", () => {
    const { body, title } = of("Repair adding\n\nIt took away.", "Test it")
    assert.strictEqual(title, "Repair adding")
    assert.include(body, "2 commits of run `run-000000000001`, for `main`")
    assert.include(body, "```text\nRepair adding\n\nIt took away.\n\nTest it\n```")
  })

  it("without a subject it is named after the run", () => {
    assert.include(of("").title, "run-000000000001")
    assert.include(of().title, "run-000000000001")
  })

  it.each(hostile)("%j acts nowhere", (text) => {
    const { body, title } = of(text, text)
    for (const pattern of acting) {
      assert.notMatch(title, pattern)
      assert.notMatch(outside(body), pattern)
    }
    assert.notMatch(title + body, /[\u202e\u0007\u001b]/u)
  })

  it.prop("nor does any text", [Schema.Array(Schema.String)], ([messages]) => {
    const some = messages.map((message, index) => `${hostile[index % hostile.length]}${message}`)
    const { body, title } = of(...some)
    for (const pattern of acting) {
      assert.notMatch(title, pattern)
      assert.notMatch(outside(body), pattern)
    }
    assert.isAtMost(title.length, PullRequestText.titleCharactersMax)
    assert.isAtMost(body.length, PullRequestText.bodyCharactersMax)
    assert.isTrue(title.isWellFormed() && !title.includes("\n"))
  })

  it("is cut between characters", () => {
    const { body, title } = of("😀".repeat(5000), ...Array.from({ length: 50 }, () => "😀".repeat(5000)))
    assert.isAtMost(title.length, PullRequestText.titleCharactersMax)
    assert.isAtMost(body.length, PullRequestText.bodyCharactersMax)
    assert.isTrue(title.isWellFormed())
    assert.isTrue(body.isWellFormed())
  })
})
