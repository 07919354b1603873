/** The trace of a durable run, from its submission to the requests to its keeper, on a real Temporal server. */
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HttpHostKeeper from "@cogni/sandbox-temporal/HttpHostKeeper"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import * as TemporalServer from "@cogni/sandbox-temporal/TemporalServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Tracer } from "effect"
import { FetchHttpClient } from "effect/http"
import * as Runs from "../../packages/temporal/test/Runs.ts"
import * as ServerWorld from "../../packages/server/test/ServerWorld.ts"
import * as Await from "../harness/Await.ts"
import * as RecordingTracer from "../harness/RecordingTracer.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

describe("the trace of a durable run", () => {
  it.live("has its submission, each activity, and each request to the keeper", () => {
    const { spans, tracer } = RecordingTracer.make()
    return Effect.gen(function* () {
      const server = {
        ...TemporalServer.defaults,
        address: yield* TemporalDevServer.acquire,
        isSearchable: true
      }
      const { grant, url } = yield* ServerWorld.serve({ program: ServerWorld.lasting })
      const { id, token } = yield* grant()
      const keeper = yield* HttpHostKeeper.make({ url, token: Redacted.make(token) })
      yield* Effect.forkScoped(
        RunWorker.serve({ ...server, host: "one", keepers: [keeper], capacity: { runsMax: 1, labels: [] } })
      )
      const runs = yield* DurableRuns.make(server)
      yield* runs.submit(Runs.run("run-traced", { grantId: id }))
      yield* Await.until(
        "it has begun",
        Effect.map(keeper.describe("run-traced"), (run) => run !== undefined)
      )
      yield* runs.cancel("run-traced")
      yield* runs.wait("run-traced")
      const submitted = spans.find(({ name }) => name === "DurableRuns.submit")
      const activities = spans.filter(({ name }) => name.startsWith("RunWorker."))
      const names = new Set(activities.map(({ name }) => name))
      const all = [...names].join()
      for (const name of ["validateGrantActivity", "executeGraphActivity", "stopRunActivity"])
        assert.isTrue(names.has(`RunWorker.${name}`), all)
      // By the host that executes the workflow, or by any other one.
      assert.isTrue(names.has("RunWorker.placeHere") || names.has("RunWorker.place"), all)
      for (const { name, parent, traceId } of activities) {
        assert.strictEqual(traceId, submitted?.traceId, name)
        assert.strictEqual(parent._tag === "Some" ? parent.value.spanId : undefined, submitted?.spanId, name)
      }
      // The keeper's own spans, which it makes from the header of the request.
      const starts = spans.filter(({ name }) => name === "POST /api/v1/runs")
      assert.deepStrictEqual(
        starts.map(({ traceId }) => traceId),
        [submitted?.traceId]
      )
    }).pipe(Effect.orDie, Effect.provideService(Tracer.Tracer, tracer), Effect.provide(FetchHttpClient.layer))
  })
})
