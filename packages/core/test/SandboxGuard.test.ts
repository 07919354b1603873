import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Ref } from "effect"
import { TestClock } from "effect/testing"
import type { Container } from "../src/ContainerRuntime.ts"
import * as SandboxGuard from "../src/internal/SandboxGuard.ts"
import { emptyOutput } from "../src/RunResult.ts"
import type { Limits } from "../src/SpecFields.ts"

const limits = { runtimeSecondsMax: 600, stopGraceSecondsMax: 5, workspaceBytesMax: 1000 } as Limits

describe("SandboxGuard", () => {
  it.effect("ends a sandbox whose workspace grows over its limit while no command runs", () =>
    Effect.gen(function* () {
      const countedBytes = yield* Ref.make(1000)
      const stops = yield* Ref.make(0)
      const container = {
        exit: Effect.never,
        stop: () => Ref.update(stops, (count) => count + 1)
      } as unknown as Container
      const broken = yield* SandboxGuard.make(container, limits, {
        countedBytes: Ref.get(countedBytes),
        failure: Effect.never,
        violation: Effect.never
      })
      const waiting = yield* Effect.forkChild(broken)
      yield* TestClock.adjust("60 seconds")
      assert.isUndefined(waiting.pollUnsafe(), "as much as it may have")
      yield* Ref.set(countedBytes, 1001)
      yield* TestClock.adjust("60 seconds")
      const why = yield* Fiber.join(waiting)
      assert.strictEqual(why({ output: emptyOutput, peak: {} })._tag, "DiskFull")
      assert.strictEqual(yield* Ref.get(stops), 1)
    }).pipe(Effect.scoped)
  )

  it.effect("tells a sandbox that ended itself at its deadline from one that ended otherwise", () =>
    Effect.gen(function* () {
      const endOf = Effect.fnUntraced(function* (deadlinePassed: boolean) {
        const exit = { exitCode: 98, oomKilled: false, processesRefused: false, deadlinePassed, peak: {} }
        const container = { exit: Effect.succeed(exit), stop: () => Effect.void } as unknown as Container
        const broken = yield* SandboxGuard.make(container, limits, {
          countedBytes: Effect.succeed(0),
          failure: Effect.never,
          violation: Effect.never
        })
        return (yield* broken)({ output: emptyOutput, peak: {} })._tag
      })
      assert.strictEqual(yield* endOf(true), "TimedOut")
      assert.strictEqual(yield* endOf(false), "ContainerFailed")
    }).pipe(Effect.scoped)
  )
})
