/** Schedules in Temporal, with a client that never answers. `test/integration/DurableSchedules.test.ts` tests the rest. */
import type { ScheduleClient } from "@temporalio/client"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { over } from "../src/internal/TemporalSchedules.ts"
import { defaults as rules } from "../src/RunSchedule.ts"
import { defaults } from "../src/TemporalServer.ts"
import * as Runs from "./Runs.ts"

const { runId: _, ...run } = Runs.run("run-scheduled")

const schedule = { ...rules, name: "nightly", times: { everySeconds: 60 }, run }

const silence = () => new Promise<never>(() => {})

/** A client whose calls hang. `described`: it describes a schedule of ours, and hangs after that. */
const hung = (described: boolean) => {
  const deadlines: Array<number> = []
  const client = {
    withDeadline: <A>(deadline: number, task: () => Promise<A>) => {
      deadlines.push(deadline)
      return task()
    },
    create: silence,
    list: async function* () {
      yield await silence()
    },
    getHandle: () => ({
      describe: () =>
        described
          ? Promise.resolve({ action: { workflowType: "scheduledAgentRun" }, state: { paused: false } })
          : silence(),
      pause: silence,
      unpause: silence,
      delete: silence
    })
  }
  return {
    deadlines,
    schedules: over(client as unknown as ScheduleClient, { ...defaults, isSearchable: true })
  }
}

describe("a schedule at a server that hangs", () => {
  it.effect("is unreachable after 5 seconds, says what to do, and ends the call", () =>
    Effect.gen(function* () {
      const before = Date.now()
      for (const described of [false, true]) {
        const { deadlines, schedules } = hung(described)
        const calls = [
          schedules.add(schedule),
          schedules.list,
          schedules.pause("nightly"),
          schedules.resume("nightly"),
          schedules.remove("nightly"),
          ...(described ? [] : [schedules.show("nightly")])
        ]
        for (const call of calls) {
          const asking = yield* Effect.forkChild(Effect.flip(call), { startImmediately: true })
          yield* Effect.promise(() => new Promise(setImmediate))
          yield* TestClock.adjust("5 seconds")
          const { message, reason } = yield* Fiber.join(asking)
          assert.strictEqual(reason, "Unreachable")
          assert.match(message, /did not answer in 5 seconds\. Check the address/u)
        }
        assert.isAtLeast(deadlines.length, calls.length)
        for (const deadline of deadlines) assert.isAtLeast(deadline, before + 5000)
      }
    })
  )
})
