import { assert, describe, it } from "@effect/vitest"
import { CommitId } from "@cogni/sandbox-git-relay/Refs"
import { Effect } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as CheckoutSize from "../src/internal/git/CheckoutSize.ts"
import * as HostGit from "../src/internal/git/HostGit.ts"
import * as HostRepository from "../src/internal/git/HostRepository.ts"

const limits: CheckoutSize.CheckoutLimits = {
  checkoutPathsMax: 10_000,
  checkoutBytesMax: 1024 * 1024,
  checkSecondsMax: 60
}

/** A bare repository, and functions that write objects into it. */
const repository = Effect.gen(function* () {
  const root = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const gitDirectory = join(root, "bare")
  yield* HostRepository.initBare(gitDirectory, "sha1")
  const git = (argv: ReadonlyArray<string>, input: string) =>
    Effect.map(HostGit.runOk({ argv, gitDirectory, runtimeSecondsMax: 60 }, input), (stdout) =>
      stdout.toString("latin1").trim()
    )
  const blob = (content: string) => git(["hash-object", "-w", "--stdin"], content)
  const tree = (entries: ReadonlyArray<string>) =>
    git(["mktree"], entries.map((entry) => `${entry}\n`).join(""))
  const check = Effect.fnUntraced(function* (tree: string) {
    const identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    const commit = CommitId.make(yield* git([...identity, "commit-tree", "-m", "base", tree], ""))
    return yield* CheckoutSize.check(gitDirectory, commit, limits)
  })
  return { blob, tree, check }
})

/** Ten entries with different names for one object. */
const ten = (entry: string) => Array.from({ length: 10 }, (_, at) => `${entry}\td${at}`)

describe("CheckoutSize", () => {
  it.effect("accepts a commit that is exactly as large as allowed", () =>
    Effect.gen(function* () {
      const { blob, check, tree } = yield* repository
      const half = yield* blob("A".repeat(limits.checkoutBytesMax / 2))
      yield* check(yield* tree([`100644 blob ${half}\tone`, `100755 blob ${half}\t1 \u00e9 2`]))
      yield* check(yield* tree([]))
      // A link is as long as its target, and a submodule has no content.
      const link = yield* blob("one")
      yield* check(yield* tree([`120000 blob ${link}\tlink`, `160000 commit ${"1".repeat(40)}\tmodule`]))
    })
  )

  it.effect("refuses one file under many names by its total size", () =>
    Effect.gen(function* () {
      const { blob, check, tree } = yield* repository
      const inner = yield* tree(ten(`100644 blob ${yield* blob("A".repeat(100_000))}`))
      const error = yield* Effect.flip(check(yield* tree(ten(`040000 tree ${inner}`))))
      assert.containSubset(error, { _tag: "OriginUnavailable", fault: "unsupported", isRetryable: false })
      assert.include(error.message, "more than 1048576 bytes of files")
      assert.include(error.message, "limits.checkoutBytesMax")
    })
  )

  for (const what of ["files", "empty directories"])
    it.effect(`refuses ${what} in directories that are listed again and again`, () =>
      Effect.gen(function* () {
        const { blob, check, tree } = yield* repository
        let inner = what === "files" ? `100644 blob ${yield* blob("")}` : `040000 tree ${yield* tree([])}`
        for (let level = 0; level < 9; level++) inner = `040000 tree ${yield* tree(ten(inner))}`
        const error = yield* Effect.flip(check(inner.slice(-40)))
        assert.include(error.message, "more than 10000 files and directories")
        assert.include(error.message, "limits.checkoutPathsMax")
      })
    )

  it.effect("refuses a path that is too long for any system, before git has listed all of it", () =>
    Effect.gen(function* () {
      const { blob, check, tree } = yield* repository
      const name = "n".repeat(200)
      let inner = `100644 blob ${yield* blob("")}`
      for (let level = 0; level < 25; level++) inner = `040000 tree ${yield* tree([`${inner}\t${name}`])}`
      assert.include((yield* Effect.flip(check(inner.slice(-40)))).message, "4096 bytes in one path")
    })
  )
})
