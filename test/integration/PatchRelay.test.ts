/** Branches from patches, and the limits of a relay, on real git and real Docker. */
import { assert, it } from "@effect/vitest"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import { BranchName, CommitId } from "@cogni/sandbox-git-relay/Refs"
import * as PatchRelay from "../../packages/git-relay/src/PatchRelay.ts"
import { Effect, Layer } from "effect"
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as RelayHarness from "../harness/RelayHarness.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import { run } from "../relay-corpus/Making.ts"

const MiB = 1024 * 1024

const layers = Layer.provideMerge(PatchRelay.layer, RelayHarness.layer())

const repository = Effect.fnUntraced(function* (name: string, files: Readonly<Record<string, string>>) {
  const path = join(yield* RunHarness.Directory, `${name}.git`)
  yield* GitOrigin.seed(path, files)
  return path
})

/** Builds a patch in the format of `git format-patch`. */
const patch = (path: string, before: string, after: string) =>
  [
    "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001",
    "From: Somebody Else <else@example.com>",
    "Date: Fri, 2 Jan 2026 03:04:05 +0000",
    `Subject: [PATCH] Change ${path}`,
    "",
    "---",
    `diff --git a/${path} b/${path}`,
    `--- a/${path}`,
    `+++ b/${path}`,
    "@@ -1 +1 @@",
    `-${before}`,
    `+${after}`,
    "--",
    "2.39.5",
    ""
  ].join("\n")

it.layer(layers, { excludeTestServices: true })("PatchRelay", (it) => {
  it.effect("patches become a branch, and the same patches again change nothing", () =>
    Effect.gen(function* () {
      const repo = yield* PatchRelay.PatchRelay
      const path = yield* repository("patches", { "a.txt": "one\n" })
      const asked = {
        repoUrl: path,
        patches: [patch("a.txt", "one", "two"), patch("a.txt", "two", "three")],
        branchName: BranchName.make("sandbox/patched")
      }
      const { tip, unchanged } = yield* repo.pushBranchFromPatches(asked)
      assert.isFalse(unchanged)
      assert.strictEqual(yield* GitOrigin.branchAt(path, "sandbox/patched"), tip)
      assert.strictEqual(yield* GitOrigin.git(path, "show", `${tip}:a.txt`), "three")
      assert.strictEqual(
        yield* GitOrigin.git(path, "log", "-1", "--format=%an <%ae> %s", tip),
        "Somebody Else <else@example.com> Change a.txt"
      )
      assert.deepStrictEqual(yield* repo.pushBranchFromPatches(asked), {
        branchName: asked.branchName,
        tip,
        unchanged: true
      })
      assert.deepStrictEqual(yield* (yield* GitRelay).kept, [])
    })
  )

  it.effect("refuses a patch that does not apply, one that leaves the tree, and one against the policy", () =>
    Effect.gen(function* () {
      const repo = yield* PatchRelay.PatchRelay
      const path = yield* repository("refused", { "a.txt": "one\n" })
      const refused = (...patches: ReadonlyArray<string>) =>
        Effect.flip(
          repo.pushBranchFromPatches({
            repoUrl: path,
            patches,
            branchName: BranchName.make("sandbox/refused")
          })
        )
      assert.strictEqual((yield* refused(patch("a.txt", "other", "two"))).reason._tag, "PatchRefused")
      assert.strictEqual((yield* refused(patch("../out.txt", "one", "two"))).reason._tag, "PatchRefused")
      assert.strictEqual((yield* refused("no patch at all")).reason._tag, "PatchRefused")
      const workflow = patch(".github/workflows/x.yml", "", "").replace(
        /--- a[^]*$/u,
        "new file mode 100644\n--- /dev/null\n+++ b/.github/workflows/x.yml\n@@ -0,0 +1 @@\n+on: push\n--\n2.39.5\n"
      )
      const error = yield* refused(workflow)
      assert.strictEqual(error.reason._tag, "PolicyRefused", error.message)
      assert.notInclude(yield* GitOrigin.refsOf(path), "sandbox/")
      assert.deepStrictEqual(yield* (yield* GitRelay).kept, [])
    })
  )

  it.effect("a clone at a commit lives as long as its scope", () =>
    Effect.gen(function* () {
      const repo = yield* PatchRelay.PatchRelay
      const path = yield* repository("at", { "a.txt": "one\n" })
      yield* GitOrigin.git(path, "config", "uploadpack.allowReachableSHA1InWant", "true")
      const first = CommitId.make((yield* GitOrigin.branchAt(path, "main"))!)
      const later = yield* GitOrigin.git(path, "commit-tree", `${first}^{tree}`, "-p", first, "-m", "later")
      yield* GitOrigin.git(path, "update-ref", "refs/heads/main", later)
      const workspacePath = yield* Effect.scoped(
        Effect.gen(function* () {
          const clone = yield* repo.cloneToWorkspace({ repoUrl: path, sha: first })
          assert.strictEqual(clone.baseSha, first)
          assert.strictEqual(readFileSync(join(clone.workspacePath, "repo", "a.txt"), "utf8"), "one\n")
          return clone.workspacePath
        })
      )
      assert.isFalse(existsSync(workspacePath))
    })
  )
})

it.layer(
  RelayHarness.layer({
    limits: {
      cloneBytesMax: 100_000,
      checkoutPathsMax: 1000,
      checkoutBytesMax: 10 * MiB,
      bundleBytesMax: 100_000,
      objectsMax: 50
    }
  }),
  { excludeTestServices: true }
)("a relay with small limits", (it) => {
  const commits = Effect.fnUntraced(function* (name: string, script: string) {
    const relay = yield* GitRelay
    const path = yield* repository(name, { "a.txt": "one\n" })
    const clone = yield* relay.clone({ runId: yield* RelayHarness.runId, url: path })
    yield* RelayHarness.work(clone, script)
    const error = yield* Effect.flip(relay.collect(clone))
    yield* relay.discard(clone.request.runId)
    return error.message
  }, Effect.scoped)

  it.effect("refuses an origin that is too large", () =>
    Effect.gen(function* () {
      const relay = yield* GitRelay
      const noise = Array.from({ length: 40_000 }, () => Math.random().toString(36)).join("\n")
      const path = yield* repository("large", { noise })
      const error = yield* Effect.flip(
        Effect.scoped(relay.clone({ runId: yield* RelayHarness.runId, url: path }))
      )
      assert.include(error.message, "more than 100000 bytes")
      assert.deepStrictEqual(yield* relay.kept, [])
    })
  )

  it.effect("refuses a small origin that exceeds the limits when checked out", () =>
    Effect.gen(function* () {
      const relay = yield* GitRelay
      /** Each level has ten names for the same object. */
      const grown = Effect.fnUntraced(function* (name: string, content: string, levels: number) {
        const path = yield* repository(name, { "a.txt": "one\n" })
        const write = (argv: ReadonlyArray<string>, input: string) =>
          Effect.promise(() => run(["git", "-C", path, ...argv], { input }))
        let inner = `100644 blob ${yield* write(["hash-object", "-w", "--stdin"], content)}`
        for (let level = 0; level < levels; level++) {
          const entries = Array.from({ length: 10 }, (_, at) => `${inner}\td${at}\n`)
          inner = `040000 tree ${yield* write(["mktree"], entries.join(""))}`
        }
        const commit = yield* write(["commit-tree", "-m", "grows", inner.slice(-40)], "")
        yield* write(["update-ref", "refs/heads/main", commit], "")
        const error = yield* Effect.flip(
          Effect.scoped(relay.clone({ runId: yield* RelayHarness.runId, url: path }))
        )
        assert.strictEqual(error.reason._tag, "OriginUnavailable")
        return error.message
      })
      assert.include(yield* grown("many", "", 4), "more than 1000 files and directories")
      assert.include(yield* grown("heavy", "A".repeat(2 * MiB), 1), `more than ${10 * MiB} bytes of files`)
      assert.deepStrictEqual(yield* relay.kept, [])
    })
  )

  it.effect("refuses a bundle with too many bytes or too many objects", () =>
    Effect.gen(function* () {
      const large = "head -c 200000 /dev/urandom > big; git add --all; git commit -qm big"
      assert.include(yield* commits("bytes", large), "larger than 100000 bytes")
      const many = "for i in $(seq 60); do echo $i > $i; done; git add --all; git commit -qm many"
      assert.include(yield* commits("objects", many), "more than the 50 that are allowed")
    })
  )
})
