/** Errors for repositories of this host that cannot be opened: the path, the problem, and the command to type. */
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import * as PathOrigin from "../src/internal/origin/PathOrigin.ts"
import * as PathClone from "../src/internal/origin/PathClone.ts"
import * as ContainerGit from "../src/internal/git/ContainerGit.ts"

/** A directory below the home of this user, where no other user may write. */
const place = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(homedir(), ".cogni-path-origin-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

const refused = (path: string) => Effect.scoped(Effect.flip(PathOrigin.open(path)))

describe("a path that is not a repository", () => {
  it.effect("is reported with its problem", () =>
    Effect.gen(function* () {
      const root = yield* place
      mkdirSync(join(root, "plain"))
      writeFileSync(join(root, "file"), "")
      mkdirSync(join(root, "half/.git/objects"), { recursive: true })
      for (const [name, says] of [
        ["missing", "at PATH does not exist"],
        ["missing/", "at PATH does not exist"],
        ["missing/app", `at PATH lies below ${join(root, "missing")}, which does not exist`],
        ["file", "at PATH is not a directory"],
        ["file/app", "at PATH is, or lies below, something that is not a directory"],
        ["plain", "at PATH is not a git repository: there is no .git in it, and it is not a bare one"],
        ["half", "at PATH is not a git repository: there is no HEAD in its .git"]
      ] as const) {
        const { fault, message } = yield* refused(join(root, name))
        assert.strictEqual(fault, "not_found", name)
        assert.isTrue(
          message.startsWith(`the origin ${says.replace("PATH", join(root, name))}. `),
          `${name}: ${message}`
        )
      }
    })
  )

  it.effect("is reported as it was given, even if NAME.git was searched for", () =>
    Effect.gen(function* () {
      const root = yield* place
      mkdirSync(join(root, "app.git"))
      assert.include(
        (yield* refused(join(root, "app"))).message,
        `${join(root, "app")} is not a git repository`
      )
    })
  )
})

describe("a repository that its container may not read", () => {
  const told = (directory: HeldDirectory.HeldDirectory, stderr: string) =>
    PathClone.faultOf(
      { exitCode: ContainerGit.exitCodes.denied, stderr },
      { directory, user: { userId: PathOrigin.nobodyId, groupId: 0 } }
    ).message

  const held = Effect.gen(function* () {
    const path = join(yield* place, "it's mine")
    mkdirSync(path)
    return yield* HeldDirectory.hold(path)
  })

  it.effect("is reported itself if nothing in it is accessible, and otherwise by the path inside it", () =>
    Effect.gen(function* () {
      const directory = yield* held
      const { path } = directory
      for (const [mode, says] of [
        [0o700, `${path}, which has mode 700`],
        [0o705, `${path}, which has mode 705`],
        [0o750, `${path} (objects may not be read by this user)`]
      ] as const) {
        const asRoots = { ...directory, mode, userId: 0, groupId: 0 }
        const message = told(asRoots, "objects may not be read by this user")
        assert.include(message, `may not be opened by the user 65534: ${says}`)
        const word = `'${path.replace("'", `'\\''`)}'`
        assert.include(message, `chmod -R go+rX ${word}`)
      }
    })
  )
})
