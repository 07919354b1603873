/** Tests an agent that replaces directories with links while the host measures its workspace. */
import { assert, describe, it } from "@effect/vitest"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import { Effect } from "effect"
import { mkdirSync, mkdtempSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import type * as NodeFiles from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { vi } from "vitest"
import * as WorkspaceMeasure from "../src/internal/host/WorkspaceMeasure.ts"

/** `before`: the agent's action before each call that opens or stats a path. `listed`: the listed directories. */
/** Bytes that the disk of every path uses, if this is set. */
const disk: { usedBytes: number | undefined } = { usedBytes: undefined }

const strike: { before: (() => void) | undefined; listed: Array<string> } = { before: undefined, listed: [] }

vi.mock("node:fs/promises", async (original: () => Promise<typeof NodeFiles>) => {
  const real = await original()
  const wrap =
    <A extends ReadonlyArray<never>, B>(call: (...args: A) => B, note?: (path: string) => void) =>
    (...args: A): B => {
      strike.before?.()
      note?.(String(args[0]))
      return call(...args)
    }
  return {
    ...real,
    statfs: async (path: string) => {
      const found = await real.statfs(path)
      return disk.usedBytes === undefined
        ? found
        : { ...found, bsize: 1, blocks: 2 ** 40, bfree: 2 ** 40 - disk.usedBytes, files: 0, ffree: 0 }
    },
    lstat: wrap(real.lstat as never),
    open: wrap(real.open as never),
    opendir: wrap(real.opendir as never, (path) => strike.listed.push(whereIs(path)))
  }
})

const whereIs = (path: string): string => {
  try {
    return readlinkSync(path)
  } catch {
    return path
  }
}

const bytesMax = 1024 * 1024

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const measured = Effect.fnUntraced(function* (path: string) {
  const held = yield* HeldDirectory.hold(path)
  const source = { type: "directory", path, counts: "all" } as const
  const { countedBytes } = yield* WorkspaceMeasure.make(held, { source, workspaceBytesMax: bytesMax })
  return (yield* countedBytes).bytes
}, Effect.scoped)

describe("WorkspaceMeasure", () => {
  it.effect("lists and counts nothing outside, at whichever moment a directory is replaced with a link", () =>
    Effect.gen(function* () {
      const root = yield* directory
      let isLeft = false
      for (let step = 0; !isLeft; step++) {
        const round = join(root, String(step))
        mkdirSync(join(round, "workspace/one/two"), { recursive: true })
        writeFileSync(join(round, "workspace/one/two/mine"), "x")
        mkdirSync(join(round, "private/two"), { recursive: true })
        for (const name of ["private/secret", "private/two/secret"])
          writeFileSync(join(round, name), Buffer.alloc(bytesMax / 2, 1))
        let calls = 0
        isLeft = true
        strike.listed = []
        strike.before = () => {
          if (calls++ !== step) return
          isLeft = false
          renameSync(join(round, "workspace/one"), join(round, "workspace/before"))
          symlinkSync(join(round, "private"), join(round, "workspace/one"))
        }
        const bytes = yield* measured(join(round, "workspace"))
        strike.before = undefined
        assert.isBelow(bytes, bytesMax / 2, `struck before call ${step}`)
        const outside = strike.listed.filter((path) => path.includes("private"))
        assert.deepStrictEqual(outside, [], `struck before call ${step}`)
      }
    })
  )

  it("does not allow a run more because others remove files meanwhile", () => {
    const possible = WorkspaceMeasure.boundOf({ bytes: 10, usedBytes: 1000 })
    assert.strictEqual(possible(1050), 60)
    assert.strictEqual(possible(700), 10, "300 bytes of others are gone")
    assert.strictEqual(possible(850), 160, "so these 150 may all be of the run")
  })

  it.effect("may have changed when its disk has, by more than a small share of the limit", () =>
    Effect.gen(function* () {
      const held = yield* HeldDirectory.hold(yield* directory)
      const source = { type: "temporary" } as const
      const { countedBytes, mayHaveChanged } = yield* WorkspaceMeasure.make(held, {
        source,
        workspaceBytesMax: bytesMax
      })
      assert.isTrue(yield* mayHaveChanged, "nothing was counted yet")
      disk.usedBytes = 10 * bytesMax
      yield* countedBytes
      assert.isFalse(yield* mayHaveChanged)
      disk.usedBytes += bytesMax / 256
      assert.isFalse(yield* mayHaveChanged)
      disk.usedBytes += 1
      assert.isTrue(yield* mayHaveChanged)
      disk.usedBytes -= (2 * bytesMax) / 256 + 2
      assert.isTrue(yield* mayHaveChanged, "others may have removed more than the agent wrote")
      yield* countedBytes
      assert.isFalse(yield* mayHaveChanged)
    }).pipe(Effect.ensuring(Effect.sync(() => (disk.usedBytes = undefined))))
  )

  it.effect("refuses directories nested deeper than the maximum", () =>
    Effect.gen(function* () {
      const root = yield* directory
      mkdirSync(join(root, "d/".repeat(WorkspaceMeasure.levelsMax)), { recursive: true })
      assert.isAbove(yield* measured(root), 0)
      mkdirSync(join(root, "d/".repeat(WorkspaceMeasure.levelsMax + 1)), { recursive: true })
      const refused = yield* Effect.flip(measured(root))
      assert.include(refused.message, "nested")
    })
  )
})
