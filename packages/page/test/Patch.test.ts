/** Tests that a patch is read as what it is, and that it hides nothing. */
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as HostileTexts from "../../../test/harness/HostileTexts.ts"
import * as Patch from "../src/Patch.ts"

const mail = (body: string, message = "A change") =>
  `From ${"a".repeat(40)} Mon Sep 17 00:00:00 2001\nFrom: a <a@example.com>\nSubject: [PATCH] ${message}\n\n---\n x | 2 +-\n\n${body}-- \n2.50.1\n\n`

const diff = (name: string, ...lines: ReadonlyArray<string>) => {
  const count = (other: string) => lines.filter((line) => !line.startsWith(other)).length
  return (
    `diff --git a/${name} b/${name}\nindex 1111111..2222222 100644\n--- a/${name}\n+++ b/${name}\n` +
    `@@ -1,${count("+")} +1,${count("-")} @@\n${lines.map((line) => `${line}\n`).join("")}`
  )
}

/** The shown lines, as they were written. */
const linesOf = ({ hunks }: Patch.PatchFile) =>
  hunks.flatMap(({ changes }) =>
    changes.map(({ content, type }) => `${{ insert: "+", delete: "-", normal: " " }[type]}${content}`)
  )

/** Lines of files that look like other parts of a patch. */
const misleading = [
  "- ",
  "-- ",
  "2.50.1",
  "",
  "---",
  "--- a/other",
  "++ b/other",
  "+++ b/other",
  "diff --git a/other b/other",
  "@@ -1,1 +1,9 @@",
  `From ${"b".repeat(40)} Mon Sep 17 00:00:00 2001`,
  "GIT binary patch",
  "Binary files a/x and b/x differ",
  "\\ No newline at end of file",
  "rename to other"
]

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
    assert.strictEqual(file?.hunks[0]?.changes[0]?.content, "if (admin⟨U+202E⟩⟨U+2066⟩) {")
  })

  it.prop(
    "shows each line of each file, whatever it looks like",
    [
      Schema.Array(
        Schema.Array(
          Schema.Struct({
            kind: Schema.Literals(["+", "-", " "]),
            text: Schema.Literals(misleading)
          })
        ).check(Schema.isBetweenLength(1, 12))
      ).check(Schema.isBetweenLength(1, 4))
    ],
    ([drafts]) => {
      const files = drafts.map((lines) => lines.map(({ kind, text }) => `${kind}${text}`))
      const patch = Patch.parse(mail(files.map((lines, n) => diff(`f${n}`, ...lines)).join("")))
      assert.isFalse(patch.isUnreadable || patch.isCut)
      assert.deepStrictEqual(
        patch.files.map((file) => [file.name, linesOf(file)]),
        files.map((lines, n) => [`f${n}`, lines])
      )
    }
  )

  it("shows the lines of the commit, and not the diff in its message", () => {
    const fake = diff("fake", "-a", "+b")
    for (const message of [`x\n\n${fake}`, `x\n\n---\n x | 2 +-\n\n${fake}`, `x\n\n${fake}---\n\n`]) {
      const patch = Patch.parse(mail(diff("real", " same", "+evil()"), message) + mail(diff("b", "-c")))
      assert.deepStrictEqual(
        patch.files.map(({ name }) => name),
        ["real", "b"]
      )
    }
  })

  it("shows nothing of a patch in which a hunk has other lines than its header says", () => {
    const real = diff("real", "+evil()")
    for (const lie of ["@@ -1,9 +1,9 @@", "@@ -1,4 +1,3 @@", "@@ -1,99 +1 @@", "@@ x @@"])
      assert.deepInclude(
        Patch.parse(mail(real, `x\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n${lie}\n-a\n`)),
        { isUnreadable: true, files: [] },
        lie
      )
    assert.deepInclude(Patch.parse("no patch"), { isUnreadable: true })
  })

  it("reports a patch that ends in a hunk", () => {
    const [whole] = [mail(diff("a", "-old", "+new", "+end"))]
    const patch = Patch.parse(whole.slice(0, whole.indexOf("+end")))
    assert.isTrue(patch.isCut)
    assert.deepStrictEqual(patch.files.map(linesOf), [["-old", "+new"]])
  })

  it("names what changed besides lines", () => {
    const files = [
      "diff --git a/x y b/x y\nold mode 100644\nnew mode 100755\n",
      "diff --git a/old b/c b/new\nsimilarity index 100%\nrename from old b/c\nrename to new\n",
      'diff --git "a/\\303\\245" "b/\\303\\245"\nnew file mode 120000\nindex 0000000..2222222\n' +
        '--- /dev/null\n+++ "b/\\303\\245"\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n',
      "diff --git a/z z b/z z\nindex 1111111..2222222 100644\n--- a/z z\t\n+++ b/z z\t\n@@ -1 +1 @@\n-a\n+b\n",
      "diff --git a/i.png b/i.png\ndeleted file mode 100644\nindex 1111111..0000000\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n"
    ]
    assert.deepStrictEqual(
      Patch.parse(mail(files.join(""))).files.map((file) => [
        file.name,
        file.type,
        file.notes.join(),
        ...linesOf(file)
      ]),
      [
        ["x y", "modify", "old mode 100644,new mode 100755"],
        ["old b/c → new", "rename", ""],
        ['"\\303\\245"', "add", "new file mode 120000", "+/etc/passwd⟨no line feed⟩"],
        ["z z", "modify", "", "-a", "+b"],
        ["i.png", "delete", "GIT binary patch"]
      ]
    )
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
