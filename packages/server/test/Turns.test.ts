import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Turns from "../src/internal/Turns.ts"

describe("Turns", () => {
  it.live("lets the event loop come in between, after a few pieces of work at a time", () =>
    Effect.gen(function* () {
      const turn = Turns.make(3)
      let loops = 0
      const counting = () => {
        loops += 1
        if (loops < 100) setImmediate(counting)
      }
      setImmediate(counting)
      const at = yield* Effect.all(
        Array.from({ length: 10 }, () => Effect.map(turn, () => loops)),
        { concurrency: "unbounded" }
      )
      for (const loop of new Set(at)) assert.isAtMost(at.filter((one) => one === loop).length, 3)
      assert.strictEqual(new Set(at).size, 4)
    })
  )

  it.live("does not spend a turn on one who has left", () =>
    Effect.gen(function* () {
      const turn = Turns.make(1)
      const fibers = yield* Effect.forEach(Array.from({ length: 50 }), () =>
        Effect.forkChild(turn, { startImmediately: true })
      )
      yield* Fiber.interruptAll(fibers)
      let loops = 0
      const counting = () => {
        loops += 1
        if (loops < 100) setImmediate(counting)
      }
      setImmediate(counting)
      yield* turn
      assert.isBelow(loops, 10)
    })
  )
})
