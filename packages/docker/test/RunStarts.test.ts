import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as RunStarts from "../src/internal/container/RunStarts.ts"

it.effect("is quiet when no run starts, and when all starts have ended", () =>
  Effect.gen(function* () {
    const { note, quiet } = RunStarts.make()
    yield* quiet
    const [first, second] = [yield* note, yield* note]
    const waiting = yield* Effect.forkChild(quiet, { startImmediately: true })
    yield* first
    // Again, as the scope of the run does.
    yield* first
    assert.isUndefined(waiting.pollUnsafe())
    yield* second
    yield* Fiber.join(waiting)
    yield* Effect.scoped(Effect.asVoid(note))
    yield* quiet
  })
)

it.effect("lets nothing wait longer than its limit", () =>
  Effect.gen(function* () {
    const { note, quiet } = RunStarts.make()
    const end = yield* note
    const waiting = yield* Effect.forkChild(quiet, { startImmediately: true })
    yield* TestClock.adjust(`${RunStarts.waitSecondsMax} seconds`)
    yield* Fiber.join(waiting)
    yield* end
  })
)
