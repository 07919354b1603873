/** How soon a log of nginx that is nearly full or was truncated ends its run. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type * as NodeFiles from "node:fs/promises"
import { vi } from "vitest"
import * as AuditDirectory from "../src/internal/nginx/AuditDirectory.ts"

/** The log of calls: its size, and the number of looks at it. The log of errors stays empty. */
const log = { bytes: 0, looks: 0 }
const directory = "/audit"

vi.mock("node:fs/promises", async (original: () => Promise<typeof NodeFiles>) => ({
  ...(await original()),
  lstat: async (path: string) => {
    const isCalls = path === AuditDirectory.logPath(directory)
    if (isCalls) log.looks++
    return { size: isCalls ? log.bytes : 0, isFile: () => true }
  }
}))

const bytesMax = 1000

/** Follows the logs, in a fiber that ends with what ends the run. */
const followed = Effect.gen(function* () {
  Object.assign(log, { bytes: 10, looks: 0 })
  const { failure } = yield* AuditDirectory.follow(directory, bytesMax)
  return yield* Effect.forkChild(Effect.flip(failure), { startImmediately: true })
})

/** Lets seconds pass, with the looks in them. Returns the number of looks. */
const seconds = Effect.fnUntraced(function* (count: number, eachSecond?: () => void) {
  const before = log.looks
  for (let second = 0; second < count; second++) {
    eachSecond?.()
    yield* TestClock.adjust("1 second")
    yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
  }
  return log.looks - before
})

it.effect("looks at a log that does not grow every five seconds, and at one that grows every second", () =>
  Effect.gen(function* () {
    const fiber = yield* followed
    yield* seconds(20)
    assert.isAtMost(yield* seconds(20), 4)
    const grow = () => void log.bytes++
    yield* seconds(6, grow)
    assert.strictEqual(yield* seconds(10, grow), 10)
    yield* Fiber.interrupt(fiber)
  })
)

it.effect("looks every second at a log that is half full", () =>
  Effect.gen(function* () {
    const fiber = yield* followed
    log.bytes = bytesMax / 2
    yield* seconds(20)
    assert.strictEqual(yield* seconds(10), 10)
    yield* Fiber.interrupt(fiber)
  })
)

it.effect("ends a run within five seconds after an hour of silence when its log is full or truncated", () =>
  Effect.gen(function* () {
    for (const [bytes, says] of [
      [bytesMax, "nearly full"],
      [5, "truncated"]
    ] as const) {
      const fiber = yield* followed
      yield* seconds(20)
      yield* seconds(3600)
      log.bytes = bytes
      yield* seconds(5)
      assert.isDefined(fiber.pollUnsafe())
      assert.include((yield* Fiber.join(fiber)).message, says)
    }
  })
)

it.effect("looks at the quiet logs of all runs at the same moments", () =>
  Effect.gen(function* () {
    const one = yield* followed
    yield* seconds(2)
    const other = yield* followed
    yield* seconds(20)
    const looks: Array<number> = []
    for (let second = 0; second < 10; second++) looks.push(yield* seconds(1))
    assert.deepStrictEqual(
      looks.filter((count) => count > 0),
      [2, 2]
    )
    yield* Effect.all([Fiber.interrupt(one), Fiber.interrupt(other)])
  })
)
