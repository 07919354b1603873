/** The time limits that Temporal enforces, and what is left of the limit of a run that began late. */
import { assert, describe, it } from "@effect/vitest"
import { firingSecondsMax, leftMillis, runSecondsMax } from "../src/internal/RunDeadline.ts"

describe("the limits of Temporal", () => {
  it("leave a run time to stop, to deliver and to record, and a firing the time of a run that began late", () => {
    // A stop takes 300 s, a delivery 1800 s and a record 600 s at most.
    assert.isAtLeast(runSecondsMax({ wallSecondsMax: 60 }), 60 + 300 + 1800 + 600)
    assert.isAtLeast(
      firingSecondsMax({ wallSecondsMax: 60 }),
      60 + runSecondsMax({ wallSecondsMax: 60 }),
      "a run that begins at its limit would be cut"
    )
  })

  it("count from the submission: a run that a worker began late has less time", () => {
    const startedAt = new Date(1_000_000)
    const left = (nowMillis: number) => leftMillis({ wallSecondsMax: 60 }, startedAt, nowMillis)
    assert.strictEqual(left(1_000_000), 60_000)
    assert.strictEqual(left(1_010_000), 50_000)
    assert.strictEqual(left(9_000_000), 1)
    assert.strictEqual(left(0), 60_000, "the clock was set back")
  })
})
