/** Links that agents leave, and directories that are replaced by links during a walk. */
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import * as HostPath from "@cogni/sandbox-host-files/HostPath"
import type { HostPathRefused } from "@cogni/sandbox-host-files/HostPathError"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { chmodSync, lchownSync, lstatSync, mkdirSync, renameSync, symlinkSync } from "node:fs"
import { join, relative } from "node:path"
import { afterEach, vi } from "vitest"
import * as HostileTree from "./HostileTree.ts"
import { strike } from "./Strike.ts"

vi.mock("node:fs/promises", async (original) => (await import("./Strike.ts")).interposed(original))

afterEach(() => {
  strike.before = undefined
})

/** Returns where a walk ends. */
const walked = (path: string, options: Partial<HostPath.WalkOptions> = {}) =>
  Effect.tryPromise({
    try: async () => {
      const found = await HostPath.find(path, { last: "follow", ...options })
      await HostPath.close(found)
      return found
    },
    catch: (thrown) => thrown as HostPathRefused
  })

const refusal = (path: string, options?: Partial<HostPath.WalkOptions>) =>
  Effect.map(Effect.flip(walked(path, options)), ({ component, message, problem }) => ({
    component,
    message,
    problem
  }))

describe("HostPath", () => {
  it.effect("follows links of this user where no other user can write", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.closed
      HostileTree.plant(root, {
        "real/inner/file": "text",
        link: "→ real",
        absolute: `→ ${join(root, "link")}`,
        "real/up": "→ ../real/inner/../inner"
      })
      const real = join(root, "real/inner/file")
      for (const path of ["real/inner/file", "link/inner/file", "absolute/inner/file", "absolute/up/file"]) {
        const found = yield* walked(join(root, path))
        assert.strictEqual(found.path, real, path)
        assert.strictEqual(found.entry?.stats.ino, lstatSync(real, { bigint: true }).ino, path)
      }
      assert.strictEqual((yield* walked(relative(process.cwd(), join(root, "link/up/file")))).path, real)
    })
  )

  it.effect("refuses a link in a directory that others may write, and names both", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.closed
      for (const mode of [0o777, 0o1777, 0o775, 0o757]) {
        const directory = join(root, mode.toString(8))
        HostileTree.plant(directory, { "real/file": "text", link: "→ real" })
        chmodSync(directory, mode)
        const refused = yield* refusal(join(directory, "link/file"))
        assert.strictEqual(refused.problem, "link_refused")
        assert.strictEqual(refused.component, join(directory, "link"))
        assert.include(refused.message, `${directory}, which can be written by other users`)
        assert.strictEqual((yield* walked(join(directory, "real/file"))).path, join(directory, "real/file"))
      }
    })
  )

  it.effect("refuses a link anywhere below the temporary directory", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      HostileTree.plant(root, { "own/real/file": "text", "own/link": "→ real" })
      assert.strictEqual((yield* refusal(join(root, "own/link/file"))).component, join(root, "own/link"))
    })
  )

  it.effect.runIf(HostileTree.isRoot)(
    "refuses a link of another user, and one in another user's directory",
    () =>
      Effect.gen(function* () {
        const root = yield* HostileTree.closed
        HostileTree.plant(root, { "real/file": "text", link: "→ real", "theirs/real/file": "x" })
        HostileTree.plant(root, { "theirs/link": "→ real" })
        lchownSync(join(root, "link"), 64_321, 64_321)
        lchownSync(join(root, "theirs"), 64_321, 64_321)
        assert.include((yield* refusal(join(root, "link/file"))).message, "belongs to uid 64321")
        const refused = yield* refusal(join(root, "theirs/link/file"))
        assert.strictEqual(refused.component, join(root, "theirs/link"))
        assert.include(refused.message, "belongs to uid 64321")
      })
  )

  it.effect("refuses a link below a directory in which an agent has worked", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.closed
      HostileTree.plant(root, { "w/deep/real/file": "text", "w/deep/link": "→ real", x: "→ w/deep" })
      const path = join(root, "w/deep/link/file")
      assert.strictEqual((yield* walked(path)).path, join(root, "w/deep/real/file"))
      const agents = [HostPath.identityOf(lstatSync(join(root, "w"), { bigint: true }))]
      assert.strictEqual((yield* refusal(path, { agents })).component, join(root, "w/deep/link"))
      assert.strictEqual((yield* refusal(join(root, "x/link/file"), { agents })).problem, "link_refused")
      mkdirSync(join(root, "w", HostPath.agentMark))
      assert.strictEqual((yield* refusal(path)).component, join(root, "w/deep/link"))
      assert.strictEqual((yield* walked(join(root, "x/real/file"))).path, join(root, "w/deep/real/file"))
    })
  )

  it.effect("refuses loops, missing parents, empty paths and NUL characters with the reason", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.closed
      HostileTree.plant(root, { one: "→ two", two: "→ one", file: "text" })
      assert.include((yield* refusal(join(root, "one"))).message, "too many symbolic links")
      assert.strictEqual((yield* refusal(join(root, "none/file"))).problem, "not_found")
      assert.strictEqual((yield* refusal(join(root, "file/file"))).problem, "not_a_directory")
      assert.strictEqual((yield* refusal(join(root, "d/".repeat(300)))).problem, "not_found")
      assert.isUndefined((yield* walked(join(root, "none"))).entry)
      assert.include((yield* refusal("")).message, "is empty")
      assert.include((yield* refusal("/a\0b")).message, "NUL")
      HostileTree.plant(root, { deep: null })
      mkdirSync(join(root, "deep", "d/".repeat(300)), { recursive: true })
      assert.include((yield* refusal(join(root, "deep", "d/".repeat(300)))).message, "256 directories")
    })
  )

  it.effect("resolves .. after a link to the parent of its target, and never above the root", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.closed
      HostileTree.plant(root, { "far/away/file": "far", "near/file": "near", "near/link": "→ ../far/away" })
      const found = yield* walked(`${root}/near/link/../away/file`)
      assert.strictEqual(found.path, join(root, "far/away/file"))
      assert.strictEqual((yield* walked("/../../")).path, "/")
    })
  )

  it.effect("never ends behind a link, at whichever step the directories are replaced", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      const path = join(root, "mono/pkg/src")
      let isLeft = false
      for (let step = 0; !isLeft; step++) {
        const round = join(root, String(step))
        HostileTree.plant(round, { "mono/pkg/src/mine": "x", "private/src/secret": "x" })
        let opened = 0
        isLeft = true
        strike.before = () => {
          if (opened++ !== step) return
          isLeft = false
          renameSync(join(round, "mono/pkg"), join(round, "mono/before"))
          symlinkSync(join(round, "private"), join(round, "mono/pkg"))
        }
        const ended = yield* walked(path.replace(root, round)).pipe(
          Effect.match({
            onFailure: ({ problem }) => problem,
            onSuccess: ({ entry }) => entry?.stats.ino
          })
        )
        strike.before = undefined
        const moved = isLeft ? "mono/pkg/src" : "mono/before/src"
        const mine = lstatSync(join(round, moved), { bigint: true }).ino
        assert.include(["link_refused", mine], ended, `struck before open ${step}`)
      }
    })
  )

  it.effect("refuses directories that others may write if the system cannot hold them open", () =>
    Effect.gen(function* () {
      const closed = yield* HostileTree.closed
      const open = yield* HostileTree.open
      HostileTree.plant(closed, { "real/file": "x", link: "→ real" })
      HostileTree.plant(open, { file: "x" })
      const held = false
      assert.strictEqual((yield* walked(join(closed, "link/file"), { held })).path, join(closed, "real/file"))
      const refused = yield* refusal(join(open, "file"), { held })
      assert.include(refused.message, "this system cannot open it safely")
    })
  )
})

describe("HeldDirectory", () => {
  it.effect("stays the directory that was opened when its name leads elsewhere", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.open
      HostileTree.plant(root, { "pkg/mine": "x", "private/secret": "x" })
      const { ino } = lstatSync(join(root, "pkg"), { bigint: true })
      const held = yield* HeldDirectory.hold(join(root, "pkg"))
      renameSync(join(root, "pkg"), join(root, "before"))
      symlinkSync("private", join(root, "pkg"))
      assert.strictEqual(held.identity.inode, ino)
      assert.isTrue(HostileTree.isThere(`${held.access}/mine`))
      assert.isFalse(HostileTree.isThere(`${held.access}/secret`))
      const again = yield* Effect.flip(HeldDirectory.hold(join(root, "pkg")))
      assert.strictEqual(again.problem, "link_refused")
    }).pipe(Effect.scoped)
  )

  it.effect("closes it, and everything else that it opened", () =>
    Effect.gen(function* () {
      const root = yield* HostileTree.closed
      HostileTree.plant(root, { "one/two/three/file": "x", link: "→ one/two" })
      const held = yield* Effect.scoped(HeldDirectory.hold(join(root, "link/three")))
      assert.isFalse(HostileTree.isThere(`${held.access}/file`))
      assert.strictEqual((yield* Effect.flip(HeldDirectory.hold(join(root, "none")))).problem, "not_found")
      assert.strictEqual(
        (yield* Effect.flip(HeldDirectory.hold(join(root, "one/two/three/file")))).problem,
        "not_a_directory"
      )
      assert.isFalse(HostileTree.isThere(held.access))
    })
  )
})
