/** The model of many hosts, which `./dev bench durable` reports. */
import { assert, describe, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import * as DurableFleet from "../../../test/bench/DurableFleet.ts"

const fleet = { hosts: 200, runsMax: 4, utilization: 0.9, runSeconds: 60 }

const asked = { ...fleet, seconds: 600, seed: 7, queued: 0 }

describe("the model of many hosts", () => {
  it("counts what the history of a run has", () => {
    const { events } = JSON.parse(
      readFileSync(new URL("histories/v2-failed.json", import.meta.url), "utf8")
    ) as { readonly events: ReadonlyArray<{ readonly eventType: string }> }
    const count = (type: string) => events.filter(({ eventType }) => eventType.endsWith(type)).length
    const { activities, historyEvents, visibilityChanges, workflowTasks } = DurableFleet.costs
    assert.deepStrictEqual(
      { activities, historyEvents, visibilityChanges, workflowTasks },
      {
        historyEvents: events.length,
        workflowTasks: count("WORKFLOW_TASK_SCHEDULED"),
        activities: count("ACTIVITY_TASK_SCHEDULED"),
        visibilityChanges: count("UPSERT_WORKFLOW_SEARCH_ATTRIBUTES")
      }
    )
  })

  it("adds up the load, and names the limit that the fewest hosts reach first", () => {
    const load = DurableFleet.load(fleet, DurableFleet.costs)
    assert.closeTo(load.running, 720, 1e-6)
    assert.closeTo(load.runs, 12, 1e-6)
    assert.closeTo(load.heartbeats, 180, 1e-6)
    assert.closeTo(load.writes, 180 + 12 * 7, 1e-6)
    const limits = { requests: 2400, activityPolls: 1200 }
    assert.deepStrictEqual(
      DurableFleet.breaks(fleet, DurableFleet.costs, limits).map(({ hosts, name }) => [name, hosts]),
      [
        ["activityPolls", 400],
        ["requests", Math.floor(2400 / (load.requests / fleet.hosts))]
      ]
    )
  })

  it("places the same runs for the same seed", () => {
    const place = () => DurableFleet.place({ ...asked, policy: "withRoom" })
    assert.deepStrictEqual(place(), place())
  })

  it("places runs in their order if only hosts with room ask, with fewer tasks than if runs ask hosts", () => {
    for (const [utilization, queued] of [
      [0.9, 0],
      [0.98, 500]
    ] as const) {
      const [any, withRoom] = (["any", "withRoom"] as const).map((policy) =>
        DurableFleet.place({ ...asked, utilization, queued, policy })
      )
      assert.strictEqual(withRoom!.overtaken, 0)
      assert.isAbove(any!.overtaken, 0)
      assert.isBelow(withRoom!.tasksPerSecond, any!.tasksPerSecond)
      assert.isBelow(withRoom!.waitSeconds.p99, any!.waitSeconds.p99)
      assert.isAbove(withRoom!.placed, 0.95 * any!.placed)
    }
  })
})
