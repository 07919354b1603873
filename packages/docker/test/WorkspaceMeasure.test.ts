/** Tests an agent that replaces directories with links while the host measures its workspace. */
import { assert, describe, it } from "@effect/vitest"
import * as HeldDirectory from "@cogni/sandbox-host-files/HeldDirectory"
import { Clock, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { mkdirSync, mkdtempSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import type * as NodeFiles from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { vi } from "vitest"
import * as Await from "../../../test/harness/Await.ts"
import * as DiskLooks from "../src/internal/host/DiskLooks.ts"
import * as WorkspaceMeasure from "../src/internal/host/WorkspaceMeasure.ts"

/** Bytes that the disk of every path uses, if this is set, and the type of its file system: that of ext4. */
const disk: { usedBytes: number | undefined; type: number } = { usedBytes: undefined, type: 0xef53 }

/** `before`: the agent's action before each call that opens or stats a path. `listed`: the listed directories. */
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
        : {
            ...found,
            type: disk.type,
            bsize: 1,
            blocks: 2 ** 40,
            bfree: 2 ** 40 - disk.usedBytes,
            files: 0,
            ffree: 0
          }
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
  const request = { source, workspaceBytesMax: bytesMax }
  const { countedBytes } = yield* WorkspaceMeasure.make(held, request, { disks: yield* DiskLooks.make })
  return (yield* countedBytes).bytes
}, Effect.scoped)

/** Disks, and whether what waits for a change of a workspace goes on at once. */
const watched = Effect.gen(function* () {
  const places: Array<DiskLooks.Place> = []
  const made = yield* DiskLooks.make
  const disks: DiskLooks.DiskLooks = {
    ...made,
    placeOf: (device) => {
      const place = made.placeOf(device)
      places.push(place)
      return place
    }
  }
  const mayHaveChanged = Effect.fnUntraced(function* ({
    changed
  }: {
    readonly changed: Effect.Effect<void>
  }) {
    const fiber = yield* Effect.forkChild(changed, { startImmediately: true })
    const hasSettled = () => fiber.pollUnsafe() !== undefined
    yield* Await.until(
      "the disk is looked at",
      Effect.sync(() => hasSettled() || places.some(({ waiting }) => waiting.size > 0))
    )
    const settled = hasSettled()
    yield* Fiber.interrupt(fiber)
    return settled
  })
  return { disks, mayHaveChanged }
})

/** Lets so much time pass that a disk is looked at again. */
const later = TestClock.adjust("500 millis")

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

  it.effect("may have changed when its disk has, by more than a share of what may still be added", () =>
    Effect.gen(function* () {
      const held = yield* HeldDirectory.hold(yield* directory)
      const request = { source: { type: "temporary" }, workspaceBytesMax: bytesMax } as const
      const { disks, mayHaveChanged } = yield* watched
      const measure = yield* WorkspaceMeasure.make(held, request, { disks })
      const { countedBytes } = measure
      const changedTo = (usedBytes: number) =>
        Effect.suspend(() => {
          disk.usedBytes = usedBytes
          return Effect.andThen(later, mayHaveChanged(measure))
        })
      const before = 10 * bytesMax
      assert.isTrue(yield* changedTo(before), "it was not counted on such a disk")
      yield* countedBytes
      assert.isFalse(yield* changedTo(before))
      assert.isFalse(yield* changedTo(before + bytesMax / 8))
      assert.isTrue(yield* changedTo(before + bytesMax / 8 + 1))
      assert.isTrue(
        yield* changedTo(before - bytesMax / 8 - 1),
        "others may remove more than the agent writes"
      )
      writeFileSync(join(held.path, "half"), Buffer.alloc(bytesMax / 2))
      disk.usedBytes = before
      yield* countedBytes
      assert.isFalse(yield* changedTo(before))
      assert.isTrue(yield* changedTo(before + bytesMax / 16 + 1), "less may be added")
    }).pipe(Effect.ensuring(Effect.sync(() => (disk.usedBytes = undefined))))
  )

  it.effect("looks at a disk once for all workspaces on it, and again after half a second", () =>
    Effect.gen(function* () {
      const held = yield* HeldDirectory.hold(yield* directory)
      const request = { source: { type: "temporary" }, workspaceBytesMax: bytesMax } as const
      const { disks, mayHaveChanged } = yield* watched
      const [first, second] = yield* Effect.all([
        WorkspaceMeasure.make(held, request, { disks }),
        WorkspaceMeasure.make(held, request, { disks })
      ])
      disk.usedBytes = 0
      yield* first.countedBytes
      yield* second.countedBytes
      disk.usedBytes = bytesMax
      assert.isFalse(yield* mayHaveChanged(first))
      yield* TestClock.adjust("500 millis")
      assert.isTrue(yield* mayHaveChanged(first))
      disk.usedBytes = 0
      assert.isTrue(yield* mayHaveChanged(second), "this is what the first has seen")
    }).pipe(Effect.ensuring(Effect.sync(() => (disk.usedBytes = undefined))))
  )

  it.effect("looks at a disk again also after the time of day was set back", () =>
    Effect.gen(function* () {
      const held = yield* HeldDirectory.hold(yield* directory)
      const request = { source: { type: "temporary" }, workspaceBytesMax: bytesMax } as const
      const clock = yield* Clock.Clock
      let hours = 0
      const stepped: Clock.Clock = {
        ...clock,
        currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis - hours * 3_600_000)
      }
      yield* Effect.gen(function* () {
        disk.usedBytes = 0
        const { disks, mayHaveChanged } = yield* watched
        const measure = yield* WorkspaceMeasure.make(held, request, { disks })
        hours = 1
        disk.usedBytes = bytesMax
        yield* TestClock.adjust("500 millis")
        assert.isTrue(yield* mayHaveChanged(measure))
      }).pipe(Effect.provideService(Clock.Clock, stepped))
    }).pipe(Effect.ensuring(Effect.sync(() => (disk.usedBytes = undefined))))
  )

  it.effect("always may have changed on a file system that says late what it uses, as btrfs does", () =>
    Effect.gen(function* () {
      const held = yield* HeldDirectory.hold(yield* directory)
      const request = { source: { type: "temporary" }, workspaceBytesMax: bytesMax } as const
      disk.usedBytes = 0
      const { disks, mayHaveChanged } = yield* watched
      const measure = yield* WorkspaceMeasure.make(held, request, { disks })
      assert.isFalse(yield* mayHaveChanged(measure))
      disk.type = 0x9123683e
      yield* later
      assert.isTrue(yield* mayHaveChanged(measure))
      yield* measure.countedBytes
      assert.isTrue(yield* mayHaveChanged(measure), "also by what was known of the disk")
    }).pipe(Effect.ensuring(Effect.sync(() => Object.assign(disk, { usedBytes: undefined, type: 0xef53 }))))
  )

  it.effect("looks at the disk of each directory of a user, because its quota may be its own", () =>
    Effect.gen(function* () {
      const held = yield* HeldDirectory.hold(yield* directory)
      const request = {
        source: { type: "directory", path: held.path, counts: "all" },
        workspaceBytesMax: bytesMax
      } as const
      const { disks, mayHaveChanged } = yield* watched
      const [first, second] = yield* Effect.all([
        WorkspaceMeasure.make(held, request, { disks }),
        WorkspaceMeasure.make(held, request, { disks })
      ])
      disk.usedBytes = 0
      yield* first.countedBytes
      yield* TestClock.adjust("500 millis")
      yield* second.countedBytes
      disk.usedBytes = bytesMax
      assert.isTrue(yield* mayHaveChanged(first), "whatever the second has seen")
    }).pipe(Effect.ensuring(Effect.sync(() => (disk.usedBytes = undefined))), Effect.scoped)
  )

  it.effect("counts known directories as it counts any", () =>
    Effect.gen(function* () {
      const root = yield* directory
      const held = yield* HeldDirectory.hold(root)
      const ofKnown = (...names: ReadonlyArray<string>) =>
        Effect.promise(() => WorkspaceMeasure.ofKnown(root, names))
      assert.strictEqual(yield* ofKnown(), yield* WorkspaceMeasure.now(held))
      mkdirSync(join(root, "one"))
      mkdirSync(join(root, "two"))
      assert.strictEqual(yield* ofKnown("one", "two"), yield* WorkspaceMeasure.now(held))
    })
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
