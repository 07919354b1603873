import { assert, describe, it } from "@effect/vitest"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as WorkspaceClaims from "../src/internal/host/WorkspaceClaims.ts"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect, Exit, Scope } from "effect"
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** `mono`, with `mono/pkg/src` in it and `other` beside it, and a directory for the claims. */
const place = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  ),
  (root) => {
    mkdirSync(join(root, "mono/pkg/src"), { recursive: true })
    mkdirSync(join(root, "other"))
    const directory = join(root, "claims")
    return { root, directory, path: (name: string) => join(root, name) }
  }
)

/** Claims as a separate process would: only the directory of the claims is shared. */
const claim = Effect.fnUntraced(function* (directory: string, path: string) {
  const held = yield* HeldDirectory.hold(path)
  yield* WorkspaceClaims.make({ directory }).hold(yield* RunId.generate, held)
})

const claimsOf = (directory: string) => readdirSync(directory).filter((name) => name.endsWith(".json"))

describe("a workspace that is in use", () => {
  it.effect("excludes workspaces inside and around it, and allows those beside it", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      yield* claim(directory, path("mono/pkg"))
      const within = yield* Effect.flip(Effect.scoped(claim(directory, path("mono/pkg/src"))))
      assert.match(within.message, /lies in .*mono\/pkg, in which run run-[a-z0-9]+ works.*Wait until/u)
      const around = yield* Effect.flip(Effect.scoped(claim(directory, path("mono"))))
      assert.match(around.message, /contains .*mono\/pkg, in which run/u)
      yield* claim(directory, path("other"))
    })
  )

  it.effect("allows another run of the same directory", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      yield* claim(directory, path("mono"))
      yield* claim(directory, path("mono"))
      assert.lengthOf(claimsOf(directory), 2)
    })
  )

  it.effect("is identified by device and inode, even after a rename", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      yield* claim(directory, path("mono"))
      renameSync(path("mono"), path("renamed"))
      const error = yield* Effect.flip(Effect.scoped(claim(directory, path("renamed/pkg"))))
      assert.include(error.message, "lies in")
    })
  )

  it.effect("is free again when its run has ended or was refused", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      const scope = yield* Scope.make()
      yield* Scope.provide(claim(directory, path("mono")), scope)
      yield* Effect.flip(Effect.scoped(claim(directory, path("mono/pkg"))))
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(claimsOf(directory), [])
      yield* claim(directory, path("mono/pkg"))
    })
  )

  it.effect("is given to at most one of two conflicting runs that begin at the same moment", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      const both = yield* Effect.all(
        ["mono", "mono/pkg"].map((name) => Effect.exit(claim(directory, path(name)))),
        { concurrency: "unbounded" }
      )
      assert.isAtMost(both.filter(Exit.isSuccess).length, 1)
    })
  )

  it.effect("is free if its owner is dead or the machine was rebooted", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      const self = HostOwner.self()
      const rewrite = (owner: string) => {
        const file = join(directory, claimsOf(directory)[0]!)
        const written: unknown = JSON.parse(readFileSync(file, "utf8"))
        writeFileSync(file, JSON.stringify({ ...(written as object), owner }))
      }
      yield* claim(directory, path("mono"))
      rewrite(formatOwner({ ...self, bootId: "00000000-0000-4000-8000-000000000000-1" }))
      yield* Effect.scoped(claim(directory, path("mono/pkg")))
      rewrite(formatOwner({ ...self, startTicks: self.startTicks + 1 }))
      yield* Effect.scoped(claim(directory, path("mono/pkg")))
      assert.deepStrictEqual(claimsOf(directory), [], "claims of a dead owner are removed")
    })
  )

  it.effect("is still in use if its owner is in another PID namespace", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      yield* claim(directory, path("mono"))
      const file = join(directory, claimsOf(directory)[0]!)
      const written = JSON.parse(readFileSync(file, "utf8")) as { readonly owner: string }
      // The same boot, another PID namespace: a container that shares the state directory.
      const owner = written.owner.replace(/-\d+\//u, "-1/")
      assert.notStrictEqual(owner, written.owner)
      writeFileSync(file, JSON.stringify({ ...written, owner }))
      yield* Effect.flip(Effect.scoped(claim(directory, path("mono/pkg"))))
    })
  )

  it.effect("is refused if other users can write to the directory of the claims", () =>
    Effect.gen(function* () {
      const { directory, path } = yield* place
      mkdirSync(directory)
      for (const mode of [0o777, 0o770]) {
        chmodSync(directory, mode)
        const error = yield* Effect.flip(Effect.scoped(claim(directory, path("mono"))))
        assert.include(error.message, `other users (mode ${mode.toString(8)})`)
        assert.include(error.message, "only this user can write")
      }
    })
  )
})
