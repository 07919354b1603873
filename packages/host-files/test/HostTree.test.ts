/** Any tree that an agent has made can be removed, without the targets of its links. */
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-tree-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

describe("HostTree", () => {
  it.live(
    "removes a tree deeper than any path and inaccessible to its owner, and follows no link in it",
    () =>
      Effect.gen(function* () {
        const root = yield* directory
        const elsewhere = yield* directory
        writeFileSync(join(elsewhere, "kept"), "")
        const tree = join(root, "tree")
        mkdirSync(tree)
        // A shell's cd takes one step at a time, as an agent would.
        const script = `n=$(printf 'a%.0s' $(seq 200)); i=0
        while [ $i -lt 40 ]; do mkdir $n; cd -P ./$n; : > f; ln -s ${elsewhere} l; i=$((i + 1)); done
        : > "$(printf '\\377')"; mkdir closed; : > closed/f; chmod 0 closed`
        execFileSync("bash", ["-c", script], { cwd: tree })
        yield* HostTree.remove(tree)
        assert.deepStrictEqual(readdirSync(root), [])
        assert.deepStrictEqual(readdirSync(elsewhere), ["kept"])
        yield* HostTree.remove(tree)
      })
  )

  it.live("removes a file and a link, and leaves the target of the link", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const elsewhere = yield* directory
      writeFileSync(join(elsewhere, "kept"), "")
      const places = ["file", "a link to a file", "a link to a directory", "a dangling link"] as const
      writeFileSync(join(root, places[0]), "")
      symlinkSync(join(elsewhere, "kept"), join(root, places[1]))
      symlinkSync(elsewhere, join(root, places[2]))
      symlinkSync(join(elsewhere, "missing"), join(root, places[3]))
      for (const name of places) yield* HostTree.remove(join(root, name))
      assert.deepStrictEqual(readdirSync(root), [])
      assert.deepStrictEqual(readdirSync(elsewhere), ["kept"])
    })
  )

  it.live("says why a tree cannot be given to another user", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "missing")
      const error = yield* Effect.flip(HostTree.giveTo(path, { userId: 1, groupId: 1 }))
      assert.include(error.message, "cannot be given to another user")
      assert.include(error.message, "No such file")
      assert.isFalse(existsSync(path))
    })
  )
})
