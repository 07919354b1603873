/**
 * Plain English, as far as a program can check it.
 *
 * Every text that people read keeps the rules of `Prose.ts`: pages, messages, docstrings, comments and test titles.
 */
import { assert, describe, it } from "@effect/vitest"
import { none } from "./Rule.ts"
import * as Prose from "./Prose.ts"
import * as SourceTree from "./SourceTree.ts"

const byKind = Object.groupBy(Prose.passages(), ({ kind }) => kind)

describe("prose", () => {
  it.each(["page", "message", "docstring", "comment", "title"] as const)(
    "every %s is in plain English",
    (kind) => {
      const passages = byKind[kind] ?? []
      assert.isAbove(passages.length, 500, "too few were read")
      none(
        passages
          .flatMap(Prose.faults)
          .map(({ found, instead, passage }) => `${passage.path}:${passage.line} “${found}”: ${instead}`),
        "write as the documentation of Effect, Docker and Stripe is written"
      )
    }
  )

  it("every pattern matches a file", () => {
    none(
      [...SourceTree.pagePatterns, ...Prose.shellPatterns, ...Prose.programPatterns].filter(
        (pattern) => pattern !== ".changeset/*.md" && SourceTree.files(pattern).length === 0
      ),
      "these read nothing"
    )
  })

  it(`a page, and all text of a kind, has a reading grade of at most ${Prose.gradeMax}`, () => {
    const pages = Object.entries(Object.groupBy(byKind.page ?? [], ({ path }) => path))
    const offenders = [...Object.entries(byKind), ...pages]
      // The grade of a few sentences says nothing.
      .filter(([, passages]) => (passages ?? []).flatMap(({ text }) => Prose.sentences(text)).length > 10)
      .map(([name, passages]) => ({ name, grade: Prose.grade(passages ?? []) }))
      .filter(({ grade }) => grade > Prose.gradeMax)
      .map(({ grade, name }) => `${name}: ${grade.toFixed(1)}`)
    none(offenders, "shorter sentences, and shorter words")
    const hard =
      "Notwithstanding considerable organizational interdependencies, institutional responsibilities remain."
    assert.isAbove(Prose.grade([{ kind: "page", path: "x.md", line: 1, text: hard }]), Prose.gradeMax)
  })

  it.each([
    ["X is none", "does not exist"],
    ["Of them, of one grant (8)", "begin with the noun"],
    ["nobody is called that", "no user"],
    ["Whoever reads slowly is hung up on", "the caller"],
    ["What was reported, where nothing of it is otherwise than it must be", "begin with a verb"],
    [`A sentence of ${"very ".repeat(Prose.sentenceWordsMax)}many words.`, "two sentences"]
  ])("detects %j", (text, instead) => {
    const found = Prose.faults({ kind: "page", path: "x.md", line: 1, text })
    assert.isTrue(
      found.some((fault) => fault.instead.includes(instead)),
      JSON.stringify(found)
    )
  })

  it.each([
    "None of the limits applies.",
    "What is it?",
    "A reader can tell the two apart.",
    "Of course it ends. Returns `what is none`.",
    "Returns the posture, or fails with its mismatches."
  ])("accepts %j", (text) => {
    assert.deepStrictEqual(Prose.faults({ kind: "page", path: "x.md", line: 1, text }), [])
  })
})
