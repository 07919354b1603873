/** Tests that a patch is read as what it is, and that it hides nothing. */
import { assert, describe, it } from "@effect/vitest"
import * as HostileTexts from "../../../test/harness/HostileTexts.ts"
import * as Patch from "../src/Patch.ts"

const mail = (body: string, message = "A change") =>
  `From ${"a".repeat(40)} Mon Sep 17 00:00:00 2001\nFrom: a <a@example.com>\nSubject: [PATCH] ${message}\n\n---\n x | 2 +-\n\n${body}-- \n2.50.1\n\n`

const diff = (name: string, ...lines: ReadonlyArray<string>) =>
  `diff --git a/${name} b/${name}\nindex 1111111..2222222 100644\n--- a/${name}\n+++ b/${name}\n` +
  `@@ -1,${lines.length} +1,${lines.length} @@\n${lines.map((line) => `${line}\n`).join("")}`

describe("Patch", () => {
  it("reads the files of all commits", () => {
    const patch = Patch.parse(
      mail(diff("a.ts", " same", "-old", "+new")) + mail(diff("b.ts", "+two", "+three"))
    )
    assert.deepStrictEqual(
      patch.files.map(({ added, name, removed }) => [name, added, removed]),
      [
        ["a.ts", 1, 1],
        ["b.ts", 2, 0]
      ]
    )
    assert.isFalse(patch.isCut)
  })

  it("shows characters that would reverse or hide code", () => {
    const [file] = Patch.parse(mail(diff("a.ts", "+if (admin\u202e\u2066) {"))).files
    assert.strictEqual(file?.diff.hunks[0]?.changes[0]?.content, "if (admin⟨U+202E⟩⟨U+2066⟩) {")
  })

  it("stops at its limits", () => {
    const long = mail(diff("a.ts", ...Array.from({ length: 4000 }, () => "+x")))
    assert.deepInclude(Patch.parse(long + long), { isCut: true })
    const many = Array.from({ length: 400 }, (_, n) => diff(`f${n}`, "+x")).join("")
    assert.lengthOf(Patch.parse(mail(many)).files, Patch.filesMax)
  })

  it("never throws", () => {
    const texts = ["", "x", "diff --git", "diff --git a/x b/x\n@@ -1", ...HostileTexts.texts]
    const read = texts.flatMap((text) => [
      Patch.parse(text),
      Patch.parse(mail(diff(text.replaceAll(/[\r\n]/gu, " "), `+${text}`), text))
    ])
    assert.lengthOf(read, texts.length * 2)
  })
})
