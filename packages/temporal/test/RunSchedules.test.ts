/** IDs of scheduled runs, and which schedules are valid. `test/integration/DurableSchedules.test.ts` tests the rest. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { runIdOf } from "../src/internal/ScheduledRunId.ts"
import { defaults, RunSchedule } from "../src/RunSchedule.ts"
import { DurableRun } from "../src/DurableRun.ts"
import * as Runs from "./Runs.ts"

const { runId: _, ...run } = Runs.run("run-scheduled")

const isValid = (over: object) =>
  Schema.is(RunSchedule)({ ...defaults, name: "nightly", times: { everySeconds: 60 }, run, ...over })

describe("the ID of a scheduled run", () => {
  it("is the name of its schedule, its tag and the time for which it was due", () => {
    const firing = "nightly-2026-11-27T03:00:00Z"
    assert.strictEqual(runIdOf("nightly", "k3f9x2", firing), "nightly-k3f9x2-20261127t030000z")
    assert.isUndefined(runIdOf("nightly", "k3f9x2", "nightly"))
    assert.isUndefined(runIdOf("nightly", "k3f9x2", "nightly-2026-11-27T03:00:00.5Z"))
  })

  it("stays the same for a schedule of an earlier version", () => {
    const firing = "nightly-2026-11-27T03:00:00Z"
    assert.strictEqual(runIdOf("nightly", undefined, firing), "nightly-20261127t030000z")
  })

  it("is a valid ID of a durable run for the shortest and for the longest name, with room for attempts", () => {
    for (const name of ["a", "a".repeat(20), "a--b"]) {
      const runId = runIdOf(name, "k3f9x2", `${name}-2026-11-27T03:00:00Z`)!
      assert.isTrue(Schema.is(DurableRun)({ ...run, runId }), runId)
      assert.isTrue(Schema.is(RunId.RunId)(`${runId}-a9`), runId)
    }
  })
})

describe("a schedule", () => {
  it("has a name that begins a run ID", () => {
    assert.isTrue(isValid({}))
    for (const name of ["", "Nightly", "-nightly", "nightly-", "a".repeat(21), "a/b"])
      assert.isFalse(isValid({ name }), name)
  })

  it("has either cron expressions or an interval, and bounded rules", () => {
    assert.isTrue(isValid({ times: { cron: ["0 3 * * *"], timeZone: "Europe/Berlin" } }))
    for (const times of [{}, { cron: [] }, { everySeconds: 0 }, { everySeconds: 1.5 }])
      assert.isFalse(isValid({ times }))
    assert.isFalse(isValid({ catchUpSecondsMax: 9 }))
    assert.isFalse(isValid({ overlap: "terminate" }))
    assert.isFalse(isValid({ jitterSecondsMax: -1 }))
  })
})
