/** Workers of two versions at once, on a real Temporal server. `Replay.test.ts` replays histories of former versions. */
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HostKeeper from "@cogni/sandbox-temporal/HostKeeper"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import * as TemporalServer from "@cogni/sandbox-temporal/TemporalServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Runs from "../../packages/temporal/test/Runs.ts"
import * as Versions from "../../packages/temporal/test/Versions.ts"
import * as Await from "../harness/Await.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

const deployment = "cogni-sandbox"

describe("an upgrade of workers", () => {
  it.live("leaves runs with the version that they began with, and gives new runs the new one", () =>
    Effect.gen(function* () {
      const address = yield* TemporalDevServer.acquire
      const server = { ...TemporalServer.defaults, address, isSearchable: true }
      // One host, whose two workers ask the same keeper.
      const facts = { hostId: "host-a", missingGraphIds: [] }
      const { change, keeper, started } = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId], facts)
      const begin = Effect.fnUntraced(function* (buildId: string) {
        const polling = yield* Effect.forkScoped(
          RunWorker.serve({
            ...server,
            host: "one",
            keepers: [keeper],
            capacity: { runsMax: 4, labels: [] },
            version: { deployment, buildId }
          })
        )
        yield* Await.until(
          `${buildId} is current`,
          Effect.promise(() => Versions.setCurrent(address, deployment, buildId))
        )
        return polling
      })
      const runs = yield* DurableRuns.make(server)
      const submit = Effect.fnUntraced(function* (runId: string) {
        yield* runs.submit(Runs.run(runId))
        yield* Await.until(
          `${runId} has started`,
          Effect.map(started, (all) => all.includes(runId))
        )
        return yield* Effect.promise(() => Versions.versionOf(address, runId))
      })
      const first = yield* begin("1.0.0")
      assert.strictEqual(yield* submit("run-of-first"), "1.0.0")
      yield* begin("2.0.0")
      assert.strictEqual(yield* submit("run-of-second"), "2.0.0")
      // The old worker stays until the runs of its version have ended.
      for (const runId of ["run-of-first", "run-of-second"]) {
        yield* change(runId, { status: "succeeded" })
        assert.strictEqual((yield* runs.wait(runId)).status, "succeeded")
      }
      assert.strictEqual(yield* Effect.promise(() => Versions.versionOf(address, "run-of-first")), "1.0.0")
      yield* Fiber.interrupt(first)
    })
  )
})
