import { assert, describe, it } from "@effect/vitest"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import { Effect } from "effect"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../../../test/harness/Await.ts"
import { lifeSecondsMax } from "../../proxy/src/internal/nginx/SharedNginx.ts"
import * as HostOwner from "../src/HostOwner.ts"
import * as HostWorkspace from "../src/HostWorkspace.ts"
import * as WaitingRemains from "../src/WaitingRemains.ts"
import * as WaitingDirectories from "../src/internal/host/WaitingDirectories.ts"

const place = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

const dead = formatOwner({ ...HostOwner.self(), processId: 2 ** 22 + 1 })

const user = { userId: process.getuid!(), groupId: process.getgid!() }

const acquire = (directory: string) =>
  Effect.scoped(WaitingDirectories.acquire({ directory, user, isRoot: false }, false))

/** Makes something older than any run. */
const aged = (path: string) => {
  utimesSync(path, 0, 0)
  return path
}

/** Makes an old directory with a file, as a dead process leaves it. */
const old = (path: string, owner?: string) => {
  mkdirSync(path, { recursive: true, mode: 0o700 })
  if (owner !== undefined) writeFileSync(join(path, "owner"), owner)
  writeFileSync(join(path, "content"), "x")
  return aged(path)
}

describe("WaitingDirectories", () => {
  it.effect("removes those of dead processes, and nothing that is not of a waiting sandbox", () =>
    Effect.gen(function* () {
      const [directory, elsewhere] = [join(yield* place, "waiting"), yield* place]
      const named = () => join(directory, crypto.randomUUID())
      mkdirSync(directory, { mode: 0o700 })
      const removed = [old(named(), dead), old(named()), old(named(), "")]
      const file = named()
      writeFileSync(file, "x")
      const link = named()
      symlinkSync(old(join(elsewhere, "project"), dead), link)
      const kept = [
        old(join(directory, "project"), dead),
        old(join(directory, "notes")),
        old(named(), formatOwner(HostOwner.self())),
        aged(file),
        link,
        join(elsewhere, "project", "content")
      ]
      yield* acquire(directory)
      assert.deepStrictEqual(removed.filter(existsSync), [])
      assert.deepStrictEqual(
        kept.filter((path) => !existsSync(path)),
        []
      )
    })
  )

  it.effect("removes those of dead processes also at the start of a process without a pool", () =>
    Effect.gen(function* () {
      const directory = yield* place
      const removed = old(join(directory, crypto.randomUUID()), dead)
      assert.deepStrictEqual(yield* WaitingRemains.orphans(directory), [removed])
      const isGone = Effect.sync(() => !existsSync(removed))
      yield* Effect.provide(
        Await.until("they are removed", isGone),
        HostWorkspace.layer({ waiting: directory })
      )
      assert.deepStrictEqual(readdirSync(directory), [])
    })
  )

  it.effect("keeps those of a proxy whose owner is unknown for as long as a shared nginx can live", () =>
    Effect.gen(function* () {
      const directory = yield* place
      const path = old(join(directory, crypto.randomUUID()))
      const agedBy = (seconds: number) => {
        const at = Date.now() / 1000 - seconds
        utimesSync(path, at, at)
        return WaitingRemains.orphans(directory, "proxies")
      }
      assert.deepStrictEqual(yield* agedBy(lifeSecondsMax + 60), [])
      assert.deepStrictEqual(yield* WaitingRemains.orphans(directory), [path])
      yield* WaitingRemains.reap(directory, "proxies")
      assert.isTrue(existsSync(path))
      yield* Effect.scoped(WaitingRemains.acquire(directory, "proxies"))
      assert.isTrue(existsSync(path))
      assert.deepStrictEqual(yield* agedBy(lifeSecondsMax + 3 * 24 * 3600), [path])
    })
  )

  it.effect("removes what others left in a workspace before a run starts cold in it", () =>
    Effect.gen(function* () {
      const { clean, mounts } = yield* WaitingDirectories.acquire(
        { directory: join(yield* place, "waiting"), user, isRoot: false },
        false
      )
      const workspace = mounts.find(({ target }) => target === "/workspace")!.source
      mkdirSync(join(workspace, "planted", "deep"), { recursive: true })
      symlinkSync("/etc", join(workspace, "link"))
      yield* clean
      assert.deepStrictEqual(readdirSync(workspace), [".cogni"])
      assert.isTrue(existsSync("/etc/hosts"))
    })
  )

  it.effect("leaves nothing if it cannot be completed, as on a full disk", () =>
    Effect.gen(function* () {
      const directory = yield* place
      // An owner that the system refuses, after the first directories were made.
      const impossible = { userId: 2 ** 40, groupId: 2 ** 40 }
      const made = WaitingDirectories.acquire({ directory, user: impossible, isRoot: true }, false)
      assert.strictEqual((yield* Effect.flip(Effect.scoped(made)))._tag, "HostFailed")
      assert.deepStrictEqual(readdirSync(directory), [])
    })
  )

  it.effect("removes nothing through a link in place of the directory", () =>
    Effect.gen(function* () {
      const [parent, home] = [yield* place, yield* place]
      for (const owner of [dead, "", undefined]) old(join(home, crypto.randomUUID()), owner)
      const before = readdirSync(home)
      symlinkSync(home, join(parent, "waiting"))
      const error = yield* Effect.flip(acquire(join(parent, "waiting")))
      assert.strictEqual(error._tag, "HostFailed")
      assert.deepStrictEqual(readdirSync(home), before)
    })
  )
})
