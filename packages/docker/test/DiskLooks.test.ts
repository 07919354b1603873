import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type * as NodeFiles from "node:fs/promises"
import { vi } from "vitest"
import * as Await from "../../../test/harness/Await.ts"
import * as DiskLooks from "../src/internal/host/DiskLooks.ts"

/** Bytes that each disk uses, by the path of a look at it. A missing one fails, and one of `hangs` does not answer. */
const disks = { used: new Map<string, number>(), hangs: new Set<string>(), looks: 0 }

vi.mock("node:fs/promises", async (original: () => Promise<typeof NodeFiles>) => ({
  ...(await original()),
  statfs: async (path: string) => {
    disks.looks++
    if (disks.hangs.has(path)) return new Promise(() => undefined)
    const used = disks.used.get(path)
    if (used === undefined) throw new Error("it does not exist")
    return { type: 0xef53, bsize: 1, blocks: 2 ** 40, bfree: 2 ** 40 - used, files: 0, ffree: 0 }
  }
}))

const held = (path: string) => ({ access: path, path })

/** Waits until a disk uses more, in a fiber. */
const waitFor = Effect.fnUntraced(function* (
  looks: DiskLooks.DiskLooks,
  place: DiskLooks.Place,
  { path, usedBytes }: { readonly path: string; readonly usedBytes: number }
) {
  const before = place.waiting.size
  const fiber = yield* Effect.forkChild(
    looks.changed(place, held(path), (disk) => disk === undefined || disk.usedBytes > usedBytes),
    { startImmediately: true }
  )
  yield* Await.until(
    "it waits",
    Effect.sync(() => place.waiting.size > before)
  )
  return fiber
})

const begun = (used: ReadonlyArray<readonly [string, number]>) => {
  Object.assign(disks, { used: new Map(used), hangs: new Set(), looks: 0 })
  return DiskLooks.make
}

/** Whether a fiber has ended. */
const hasEnded = (fiber: Fiber.Fiber<void>) => fiber.pollUnsafe() !== undefined

/** Lets seconds pass, and the looks in them end. */
const seconds = (count: number) =>
  Effect.forEach(
    Array.from({ length: count }),
    () =>
      Effect.andThen(
        TestClock.adjust("1 second"),
        Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      ),
    { discard: true }
  )

it.effect(
  "looks at a disk once a second for 200 workspaces that wait, and wakes those that have changed",
  () =>
    Effect.gen(function* () {
      const looks = yield* begun([["/a", 10]])
      const place = looks.placeOf(1n)
      const patient = yield* Effect.forEach(Array.from({ length: 199 }), () =>
        waitFor(looks, place, { path: "/a", usedBytes: 1000 })
      )
      const eager = yield* waitFor(looks, place, { path: "/a", usedBytes: 100 })
      const before = disks.looks
      yield* seconds(60)
      assert.isAtLeast(disks.looks - before, 59)
      assert.isAtMost(disks.looks - before, 61)
      disks.used.set("/a", 101)
      yield* seconds(1)
      assert.isTrue(hasEnded(eager))
      assert.isFalse(patient.some(hasEnded))
      assert.strictEqual(place.waiting.size, 199)
    })
)

it.effect(
  "wakes 300 workspaces at once in small groups, so that their counts do not wait for each other",
  () =>
    Effect.gen(function* () {
      const looks = yield* begun([["/a", 10]])
      const place = looks.placeOf(1n)
      yield* Effect.forEach(Array.from({ length: 300 }), () =>
        waitFor(looks, place, { path: "/a", usedBytes: 100 })
      )
      disks.used.set("/a", 101)
      const woken: Array<number> = []
      for (let step = 0; step < 64 && place.waiting.size > 0; step++) {
        const before = place.waiting.size
        yield* TestClock.adjust("62.5 millis")
        yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
        woken.push(before - place.waiting.size)
      }
      assert.strictEqual(place.waiting.size, 0)
      assert.isAtMost(Math.max(...woken), 32)
    })
)

it.effect("notices within a second what happens after an hour without a change", () =>
  Effect.gen(function* () {
    const looks = yield* begun([["/a", 10]])
    const fiber = yield* waitFor(looks, looks.placeOf(1n), { path: "/a", usedBytes: 100 })
    yield* seconds(4000)
    disks.used.set("/a", 101)
    yield* seconds(1)
    assert.isTrue(hasEnded(fiber))
  })
)

it.effect("looks at no disk that no workspace waits for, and again when one does", () =>
  Effect.gen(function* () {
    const looks = yield* begun([["/a", 10]])
    const place = looks.placeOf(1n)
    yield* Fiber.interrupt(yield* waitFor(looks, place, { path: "/a", usedBytes: 100 }))
    assert.strictEqual(place.waiting.size, 0)
    yield* seconds(2)
    const before = disks.looks
    yield* seconds(60)
    assert.strictEqual(disks.looks, before)
    const fiber = yield* waitFor(looks, place, { path: "/a", usedBytes: 100 })
    disks.used.set("/a", 101)
    yield* seconds(2)
    assert.isTrue(hasEnded(fiber))
  })
)

it.effect("looks at other disks while a look hangs", () =>
  Effect.gen(function* () {
    const looks = yield* begun([
      ["/a", 10],
      ["/b", 10]
    ])
    const stuck = yield* waitFor(looks, looks.placeOf(undefined), { path: "/a", usedBytes: 100 })
    disks.hangs.add("/a")
    yield* seconds(2)
    const fiber = yield* waitFor(looks, looks.placeOf(undefined), { path: "/b", usedBytes: 100 })
    disks.used.set("/b", 101)
    yield* seconds(2)
    assert.isTrue(hasEnded(fiber))
    assert.isFalse(hasEnded(stuck))
  })
)

it.effect("wakes a workspace whose disk cannot be looked at, and looks for the others by themselves", () =>
  Effect.gen(function* () {
    const looks = yield* begun([
      ["/gone", 10],
      ["/a", 10]
    ])
    const place = looks.placeOf(1n)
    const gone = yield* waitFor(looks, place, { path: "/gone", usedBytes: 100 })
    const other = yield* waitFor(looks, place, { path: "/a", usedBytes: 100 })
    disks.used.delete("/gone")
    yield* seconds(3)
    assert.isTrue(hasEnded(gone))
    assert.isFalse(hasEnded(other))
    disks.used.set("/a", 101)
    yield* seconds(1)
    assert.isTrue(hasEnded(other))
  })
)
