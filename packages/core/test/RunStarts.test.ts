import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as RunStarts from "../src/RunStarts.ts"

const waitMillisMax = 5000

it.effect("is quiet when no run starts, and when all starts have ended", () =>
  Effect.gen(function* () {
    const { note, quiet } = RunStarts.make({ waitMillisMax })
    yield* quiet
    const [first, second] = [yield* note, yield* note]
    const waiting = yield* Effect.forkChild(quiet, { startImmediately: true })
    yield* first
    // Again, as the scope of the run does.
    yield* first
    assert.isUndefined(waiting.pollUnsafe())
    yield* second
    yield* Fiber.join(waiting)
    yield* Effect.flatten(note)
    yield* quiet
  })
)

it.effect("lets nothing wait longer than its limit", () =>
  Effect.gen(function* () {
    const { note, quiet } = RunStarts.make({ waitMillisMax })
    const end = yield* note
    const waiting = yield* Effect.forkChild(quiet, { startImmediately: true })
    yield* TestClock.adjust(waitMillisMax)
    yield* Fiber.join(waiting)
    yield* end
  })
)

it.effect("counts some time after a start as part of it", () =>
  Effect.gen(function* () {
    const { note, quiet } = RunStarts.make({ quietMillis: 30, waitMillisMax })
    yield* Effect.flatten(note)
    const waiting = yield* Effect.forkChild(quiet, { startImmediately: true })
    yield* TestClock.adjust(29)
    assert.isUndefined(waiting.pollUnsafe())
    yield* TestClock.adjust(1)
    yield* Fiber.join(waiting)
  })
)

it.effect("says whether a run starts now", () =>
  Effect.gen(function* () {
    const { isQuiet, note } = RunStarts.make({ quietMillis: 30, waitMillisMax })
    assert.isTrue(yield* isQuiet)
    const end = yield* note
    yield* TestClock.adjust(waitMillisMax)
    assert.isFalse(yield* isQuiet)
    yield* end
    yield* TestClock.adjust(29)
    assert.isFalse(yield* isQuiet)
    yield* TestClock.adjust(1)
    assert.isTrue(yield* isQuiet)
  })
)
