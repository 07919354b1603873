import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { chmod, chown, lstat, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as HostSessionWorkspaces from "../src/sandbox/HostSessionWorkspaces.ts"
import * as SessionId from "../src/sandbox/SessionId.ts"

const directory = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "cogni-test-"))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

const of = (root: string, id: string) =>
  Effect.gen(function* () {
    const source = yield* HostSessionWorkspaces.make({ directory: root }).of(yield* SessionId.decode(id))
    return source.type === "directory" ? source.path : assert.fail("not a directory")
  })

describe("HostSessionWorkspaces", () => {
  it.effect("a session always has the same directory, which is its own and private to its owner", () =>
    Effect.gen(function* () {
      const root = join(yield* directory, "made", "here")
      const one = yield* of(root, "telegram:1:coder")
      yield* Effect.promise(() => writeFile(join(one, "kept"), ""))
      assert.strictEqual(yield* of(root, "telegram:1:coder"), one)
      assert.notStrictEqual(yield* of(root, "telegram:1:coder "), one)
      assert.deepStrictEqual(yield* Effect.promise(() => readdir(one)), ["kept"])
      const { mode, uid } = yield* Effect.promise(() => lstat(one))
      assert.deepStrictEqual(
        [mode & 0o777, uid],
        [0o700, process.getuid?.() === 0 ? 1000 : process.getuid?.()]
      )
    })
  )

  it.effect("belongs to the configured owner", () =>
    Effect.gen(function* () {
      const owner = { userId: 1234, groupId: 1235 }
      const workspaces = HostSessionWorkspaces.make({ directory: yield* directory, owner })
      const source = yield* workspaces.of(yield* SessionId.decode("a"))
      if (source.type !== "directory") return assert.fail("not a directory")
      const { gid, uid } = yield* Effect.promise(() => lstat(source.path))
      if (process.getuid?.() === 0) assert.deepStrictEqual([uid, gid], [1234, 1235])
      else assert.strictEqual(uid, process.getuid?.())
    })
  )

  it.effect("reopens a workspace whose permissions the agent removed, with its content", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const path = yield* of(root, "a")
      yield* Effect.promise(() => writeFile(join(path, "kept"), ""))
      yield* Effect.promise(() => chmod(path, 0))
      assert.strictEqual(yield* of(root, "a"), path)
      assert.strictEqual((yield* Effect.promise(() => lstat(path))).mode & 0o7777, 0o700)
      assert.deepStrictEqual(yield* Effect.promise(() => readdir(path)), ["kept"])
    })
  )

  it.effect.each(["../../etc", "/etc/passwd", "a/b", "..", ".", "~", "$(id)", "C:\\x", "é".repeat(512)])(
    "maps every ID to a directory below the root: %s",
    (id) =>
      Effect.gen(function* () {
        const root = yield* directory
        const path = yield* of(root, id)
        assert.match(path.slice(root.length), /^\/[0-9a-f]{32}$/u)
        assert.strictEqual((yield* Effect.promise(() => readdir(root))).length, 1)
      })
  )

  it.effect("refuses a link in place of the directory", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const elsewhere = yield* directory
      const path = yield* of(root, "a")
      yield* Effect.promise(() => rm(path, { recursive: true }))
      yield* Effect.promise(() => symlink(elsewhere, path))
      const error = yield* Effect.flip(of(root, "a"))
      assert.include(error.message, "the path exists and is not a directory")
    })
  )

  it.effect(
    "removes a tree that is deeper than any path, with closed directories and names that are not UTF-8",
    () =>
      Effect.gen(function* () {
        const root = yield* directory
        const elsewhere = yield* directory
        yield* Effect.promise(() => writeFile(join(elsewhere, "kept"), ""))
        const workspaces = HostSessionWorkspaces.make({ directory: root })
        const id = yield* SessionId.decode("a")
        const path = yield* of(root, "a")
        // A shell's cd takes one step at a time, as an agent would.
        const script = `n=$(printf 'a%.0s' $(seq 200)); i=0
        while [ $i -lt 40 ]; do mkdir $n; cd -P ./$n; : > f; ln -s ${elsewhere} l; i=$((i + 1)); done
        : > "$(printf '\\377')"; mkdir closed; chmod 0 closed`
        yield* Effect.sync(() => execFileSync("bash", ["-c", script], { cwd: path }))
        yield* workspaces.forget(id)
        assert.deepStrictEqual(yield* Effect.promise(() => readdir(root)), [])
        assert.deepStrictEqual(yield* Effect.promise(() => readdir(elsewhere)), ["kept"])
      })
  )

  it.effect.skipIf(process.getuid?.() !== 0)(
    "changes the owner of a workspace that an earlier process left to root",
    () =>
      Effect.gen(function* () {
        const root = yield* directory
        const path = yield* of(root, "a")
        yield* Effect.promise(() => chown(path, 0, 0))
        assert.strictEqual(yield* of(root, "a"), path)
        assert.strictEqual((yield* Effect.promise(() => lstat(path))).uid, 1000)
      })
  )

  it.effect("is accessible only to its owner, whatever the umask", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const above = join(root, "made")
      const before = process.umask(0o777)
      yield* Effect.addFinalizer(() => Effect.sync(() => process.umask(before)))
      process.umask(0)
      yield* of(above, "b")
      assert.strictEqual((yield* Effect.promise(() => lstat(above))).mode & 0o777, 0o700)
      process.umask(0o777)
      const path = yield* of(above, "a")
      assert.strictEqual((yield* Effect.promise(() => lstat(path))).mode & 0o777, 0o700)
    }).pipe(Effect.scoped)
  )

  it.effect("forget removes the directory, and has no effect the second time", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const workspaces = HostSessionWorkspaces.make({ directory: root })
      const id = yield* SessionId.decode("a")
      yield* workspaces.of(id)
      yield* workspaces.forget(id)
      yield* workspaces.forget(id)
      assert.deepStrictEqual(yield* Effect.promise(() => readdir(root)), [])
    })
  )
})
