/** Adding a branch as files to a repository of root, beside other gits and under any umask. Only root can do that. */
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import type * as NodeFiles from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, vi } from "vitest"
import * as RootDelivery from "../src/internal/origin/RootDelivery.ts"
import { BranchName, CommitId } from "../src/Refs.ts"

const renamed = vi.hoisted(() => ({ after: undefined as (() => void) | undefined }))

vi.mock("node:fs/promises", async (original) => {
  const real = await original<typeof NodeFiles>()
  const rename: typeof real.rename = async (from, to) => {
    await real.rename(from, to)
    renamed.after?.()
  }
  return { ...real, rename }
})

afterEach(() => {
  renamed.after = undefined
})

const branch = BranchName.make("sandbox/work")
const tip = CommitId.make("a".repeat(40))

/** A minimal repository for a delivery, and a pack. */
const world = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-root-delivery-"))),
    (root) => Effect.sync(() => rmSync(root, { recursive: true }))
  ),
  (root) => {
    const [repository, directory] = [join(root, "repository"), join(root, "packed")]
    for (const path of ["objects/pack", "refs/heads"])
      mkdirSync(join(repository, path), { recursive: true, mode: 0o755 })
    mkdirSync(directory)
    for (const ending of ["pack", "idx"]) writeFileSync(join(directory, `pack-1.${ending}`), ending)
    return { repository, packed: { directory, name: "pack-1" }, ref: join(repository, "refs/heads", branch) }
  }
)

const write = (repository: string, packed: RootDelivery.RootDelivery["packed"], expected?: string) =>
  Effect.scoped(
    Effect.flatMap(HeldDirectory.hold(repository), (held) =>
      RootDelivery.write(held, { packed, branch, tip, expected })
    )
  )

/** Sets the umask until the scope closes. Node has one umask for the whole process. */
const umask = (mask: number) =>
  Effect.acquireRelease(
    Effect.sync(() => process.umask(mask)),
    (before) => Effect.sync(() => process.umask(before))
  )

describe.skipIf(process.getuid?.() !== 0)("a branch for a repository of root", () => {
  it.effect("keeps the lock that another git takes as soon as the branch is written", () =>
    Effect.gen(function* () {
      const { packed, ref, repository } = yield* world
      renamed.after = () => writeFileSync(`${ref}.lock`, "of another git", { flag: "wx" })
      yield* write(repository, packed)
      assert.strictEqual(readFileSync(ref, "utf8"), `${tip}\n`)
      assert.strictEqual(readFileSync(`${ref}.lock`, "utf8"), "of another git")
    })
  )

  it.effect("leaves no lock behind, whether the branch is written or not", () =>
    Effect.gen(function* () {
      const { packed, ref, repository } = yield* world
      const refused = yield* Effect.flip(write(repository, packed, "b".repeat(40)))
      assert.strictEqual(refused._tag, "PushRefusal")
      assert.isFalse(existsSync(ref))
      assert.deepStrictEqual(readdirSync(join(ref, "..")), [])
      yield* write(repository, packed)
      assert.deepStrictEqual(readdirSync(join(ref, "..")), ["work"])
    })
  )

  it.effect("reports the path that others may write, with the command to type", () =>
    Effect.gen(function* () {
      const { packed, repository } = yield* world
      chmodSync(join(repository, "refs"), 0o775)
      const { message } = yield* Effect.flip(write(repository, packed))
      assert.include(message, `others may write to ${repository}/refs`)
      assert.include(message, `chmod -R go-w ${repository})`)
    })
  )

  for (const mask of [0o002, 0o022, 0o077])
    it.effect(`can be read by others and written by root alone under umask ${mask.toString(8)}`, () =>
      Effect.gen(function* () {
        const { packed, ref, repository } = yield* world
        yield* umask(mask)
        yield* write(repository, packed)
        assert.strictEqual(statSync(join(ref, "..")).mode & 0o777, 0o755)
        assert.strictEqual(statSync(ref).mode & 0o777, 0o644)
      })
    )
})
