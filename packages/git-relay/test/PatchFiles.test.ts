/** Tests which files a patch changes, whatever its lines look like. */
import * as PatchFiles from "@cogni/sandbox-git-relay/PatchFiles"
import { assert, describe, it } from "@effect/vitest"

const from = `From ${"a".repeat(40)} Mon Sep 17 00:00:00 2001`

const patch = [
  from,
  "Subject: one",
  "",
  "---",
  " a.txt | 2 +-",
  "",
  "diff --git a/a.txt b/a.txt",
  "index 1..2 100644",
  "--- a/a.txt",
  "+++ b/a.txt",
  "@@ -1,2 +1,3 @@",
  " same",
  "-diff --git a/x b/x",
  "+diff --git a/forged.txt b/forged.txt",
  `+${from}`,
  "\\ No newline at end of file",
  "diff --git a/logo.png b/logo.png",
  "GIT binary patch",
  "literal 4",
  "",
  from,
  "Subject: two",
  "",
  "diff --git a/a.txt b/a.txt",
  "--- a/a.txt",
  "+++ b/a.txt",
  "@@ -1 +0,0 @@",
  "-same",
  'diff --git "a/\\303\\251.txt" "b/\\303\\251.txt"',
  "new file mode 100644",
  "@@ -0,0 +1 @@",
  "+x",
  ""
].join("\n")

describe("PatchFiles", () => {
  it("adds up the lines of each file over all commits, and takes no line of a file for a header", () => {
    assert.deepStrictEqual(PatchFiles.summarize(patch, 10), {
      commits: 2,
      files: [
        { path: "a.txt", added: 2, removed: 2 },
        { path: "logo.png" },
        { path: '"\\303\\251.txt"', added: 1, removed: 0 }
      ],
      filesTotal: 3
    })
    assert.deepStrictEqual(PatchFiles.summarize(patch, 1).files.length, 1)
  })

  it("names a file whose name looks like two, and the new name of a renamed one", () => {
    const names = ["a/evil.sh b/README.md b/evil.sh b/README.md", "a/old name b/new name", "a/x b/x"]
    const diffs = names.map((name) => `diff --git ${name}\nold mode 100644\nnew mode 100755\n`)
    assert.deepStrictEqual(
      PatchFiles.summarize(diffs.join(""), 10).files.map(({ path }) => path),
      ["evil.sh b/README.md", "new name", "x"]
    )
  })

  it("finds nothing in other text", () => {
    assert.deepStrictEqual(PatchFiles.summarize("hello\n@@ -1 +1 @@\n", 10), {
      commits: 0,
      files: [],
      filesTotal: 0
    })
  })
})
