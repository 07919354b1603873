/** Internal files of the program are never created or opened through a link. */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import {
  chmodSync,
  lchownSync,
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import * as HostileTree from "./HostileTree.ts"

const secret = "TOPSECRET-of-host"

/** The error code or the message of a refusal. */
const refusal = (run: () => unknown) =>
  Effect.map(
    Effect.flip(
      Effect.tryPromise({
        try: async () => await run(),
        catch: (thrown) => thrown as { readonly code?: string; readonly message: string }
      })
    ),
    ({ code, message }) => code ?? message
  )

const opened = async (file: ReturnType<typeof OwnFiles.openLog>) => (await file).close()

const ways: Readonly<Record<string, (path: string) => unknown>> = {
  create: (path) => OwnFiles.create(path, "x"),
  touch: (path) => OwnFiles.touch(path),
  append: (path) => OwnFiles.append(path, "x"),
  openNewLog: (path) => opened(OwnFiles.openNewLog(path)),
  openLog: (path) => opened(OwnFiles.openLog(path)),
  openScratch: (path) => opened(OwnFiles.openScratch(path)),
  secureSync: (path) => OwnFiles.secureSync(path)
}

describe("OwnFiles", () => {
  for (const [name, use] of Object.entries(ways)) {
    it.effect(`${name} refuses a link, and does not change its target`, () =>
      Effect.gen(function* () {
        const root = yield* HostileTree.open
        HostileTree.plant(root, { secret, link: "→ secret", dangling: "→ made" })
        assert.include(["ELOOP", "EEXIST"], yield* refusal(() => use(join(root, "link"))))
        assert.include(["ELOOP", "EEXIST"], yield* refusal(() => use(join(root, "dangling"))))
        assert.strictEqual(readFileSync(join(root, "secret"), "utf8"), secret)
        assert.isFalse(HostileTree.isThere(join(root, "made")))
      })
    )
  }

  it.effect("replaces and copies over a link, which is not followed, and leaves no draft", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      HostileTree.plant(root, { secret, from: "new", one: "→ secret", two: "→ secret", directory: null })
      yield* Effect.promise(() => OwnFiles.replace(join(root, "one"), "new"))
      yield* Effect.promise(() => OwnFiles.copy(join(root, "from"), join(root, "two")))
      assert.strictEqual(readFileSync(join(root, "secret"), "utf8"), secret)
      for (const name of ["one", "two"]) {
        assert.isTrue(lstatSync(join(root, name)).isFile())
        assert.strictEqual(readFileSync(join(root, name), "utf8"), "new")
      }
      assert.strictEqual(yield* refusal(() => OwnFiles.replace(join(root, "directory"), "x")), "EISDIR")
      assert.deepStrictEqual(readdirSync(root).toSorted(), ["directory", "from", "one", "secret", "two"])
      assert.strictEqual(statSync(join(root, "one")).mode & 0o777, 0o600)
    })
  )

  it.effect("refuses a directory that other users may write, or that is a link", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      HostileTree.plant(root, { "open/file": "x", "closed/file": "x", link: "→ closed" })
      chmodSync(join(root, "open"), 0o1777)
      for (const name of ["create", "touch", "openNewLog", "openLog", "openScratch"]) {
        assert.include(yield* refusal(() => ways[name]!(join(root, "open/new"))), "other users (mode 1777)")
        assert.include(yield* refusal(() => ways[name]!(join(root, "link/new"))), "is not a directory")
      }
      assert.deepStrictEqual(readdirSync(join(root, "closed")), ["file"])
    })
  )

  it.effect.runIf(HostileTree.isRoot)("refuses a directory or a database of another user", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      HostileTree.plant(root, { "theirs/file": "x", file: "x" })
      lchownSync(join(root, "theirs"), 64_321, 64_321)
      lchownSync(join(root, "file"), 64_321, 64_321)
      const says = yield* refusal(() => OwnFiles.create(join(root, "theirs/new"), "x"))
      assert.include(says, "belongs to uid 64321")
      assert.include(yield* refusal(() => OwnFiles.secureSync(join(root, "file"))), "not a regular file")
    })
  )

  it.effect("does not wait for a FIFO", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      const fifo = join(root, "fifo")
      execFileSync("mkfifo", [fifo])
      for (const name of ["touch", "append", "openScratch", "secureSync"]) {
        assert.isNotEmpty(yield* refusal(() => ways[name]!(fifo)), name)
      }
    })
  )

  it.effect("makes a directory and those above it, and accepts an existing one or a link to one", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      HostileTree.plant(root, { "there/file": "x", link: "→ there" })
      for (const name of ["one", "two/three/four", "two/three/four", "link/five", "link", "six/../seven"]) {
        yield* Effect.promise(() => OwnFiles.makeDirectory(join(root, name)))
      }
      for (const name of ["one", "two", "two/three", "two/three/four", "there/five", "seven"]) {
        assert.strictEqual(statSync(join(root, name)).mode & 0o777, 0o700, name)
      }
      assert.isFalse(HostileTree.isThere(join(root, "six")))
    })
  )

  it.effect("names the file that lies where a directory is needed", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      HostileTree.plant(root, { file: "x", dangling: "→ away" })
      for (const [name, component, kind] of [
        ["file", "file", "a file"],
        ["file/one/two", "file", "a file"],
        ["dangling", "dangling", "a link that leads nowhere"]
      ] as const) {
        const error = yield* Effect.flip(
          Effect.tryPromise({
            try: () => OwnFiles.makeDirectory(join(root, name)),
            catch: (thrown) => thrown as HostPathRefused
          })
        )
        assert.instanceOf(error, HostPathRefused)
        assert.strictEqual(error.component, join(root, component))
        assert.include(error.message, `${kind}. Name a directory, or move that file away`)
      }
    })
  )

  it.effect.runIf(process.platform === "linux")("ends below /proc, which takes no new directories", () =>
    Effect.gen(function* () {
      for (const [path, parent] of [
        ["/proc/x/y", "/proc"],
        ["/proc/self/x", "/proc/self"]
      ] as const) {
        const says = yield* refusal(() => OwnFiles.makeDirectory(path))
        assert.include(says, `"${path}" cannot be created, because "${parent}" takes no new`)
        assert.include(says, "Name a directory on a disk that this user can write to")
      }
    })
  )

  it.effect("denies other users access to the file of a database, new or existing", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      writeFileSync(join(root, "old"), "kept", { mode: 0o644 })
      for (const name of ["old", "new"]) {
        OwnFiles.secureSync(join(root, name))
        assert.strictEqual(statSync(join(root, name)).mode & 0o777, 0o600)
      }
      assert.strictEqual(readFileSync(join(root, "old"), "utf8"), "kept")
      symlinkSync("old", join(root, "link"))
      assert.strictEqual(yield* refusal(() => OwnFiles.secureSync(join(root, "link"))), "ELOOP")
    })
  )
})
