/** The end of durable runs that no worker takes, on a real Temporal server. */
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HostKeeper from "@cogni/sandbox-temporal/HostKeeper"
import * as RunSchedule from "@cogni/sandbox-temporal/RunSchedule"
import * as RunSchedules from "@cogni/sandbox-temporal/RunSchedules"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import * as TemporalServer from "@cogni/sandbox-temporal/TemporalServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { deadlineOfRun, deadlineOfSchedule, startUntaken } from "../../packages/temporal/test/Deadlines.ts"
import * as Runs from "../../packages/temporal/test/Runs.ts"
import * as Await from "../harness/Await.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

const { runId: _, ...run } = Runs.run("run-scheduled", { wallSecondsMax: 60 })

describe("a run that no worker takes", () => {
  it.live("is ended by Temporal after its time limit, and has then exceeded that", () =>
    Effect.gen(function* () {
      const address = yield* TemporalDevServer.acquire
      const server = { ...TemporalServer.defaults, address, isSearchable: true }
      const runs = yield* DurableRuns.make(server)
      yield* runs.submit(Runs.run("run-untaken", { wallSecondsMax: 60 }))
      assert.strictEqual(yield* deadlineOfRun(address, "run-untaken"), 60 + 3600)
      const schedules = yield* RunSchedules.make(server)
      yield* schedules.add({
        ...RunSchedule.defaults,
        name: "nightly",
        times: { everySeconds: 86_400 },
        run
      })
      assert.strictEqual(yield* deadlineOfSchedule(address, "nightly"), 60 + 60 + 3600)
      yield* startUntaken(address, "run-late", 1)
      assert.deepStrictEqual(yield* runs.wait("run-late"), {
        runId: "run-late",
        status: "stopped",
        reason: "WallClockExceeded",
        message: "the run exceeded its time limit (wallSecondsMax), and no worker was there to end it",
        attempts: []
      })
      assert.isFalse(yield* runs.hasWorkers)
      const { keeper } = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
      yield* Effect.forkScoped(
        RunWorker.serve({ ...server, host: "one", keepers: [keeper], capacity: { runsMax: 1, labels: [] } })
      )
      yield* Await.until("a worker polls", runs.hasWorkers)
    })
  )
})
