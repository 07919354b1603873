/** Time for durations. */
import * as MonotonicTime from "@cogni/sandbox-core/MonotonicTime"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"

it.effect("is whole milliseconds, because messages and reports show differences of it", () =>
  Effect.gen(function* () {
    yield* TestClock.adjust("2751170 micros")
    assert.strictEqual(yield* MonotonicTime.nowMillis, 2751)
  })
)
