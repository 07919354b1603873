/** Workers of one name, on a real Temporal server. */
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HostKeeper from "@cogni/sandbox-temporal/HostKeeper"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import * as TemporalServer from "@cogni/sandbox-temporal/TemporalServer"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import * as Histories from "../../packages/temporal/test/Histories.ts"
import * as Runs from "../../packages/temporal/test/Runs.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

describe("a worker", () => {
  it.live("is refused if another host has its name, and not if it is one more of the same host", () =>
    Effect.gen(function* () {
      const address = yield* TemporalDevServer.acquire
      const begin = Effect.fnUntraced(function* (hostId: string, host: string, namespace = "default") {
        const { keeper } = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId], {
          hostId,
          missingGraphIds: []
        })
        const ready = yield* Deferred.make<void>()
        const polling = yield* Effect.forkScoped(
          RunWorker.serve({
            ...TemporalServer.defaults,
            namespace,
            address,
            host,
            keepers: [keeper],
            capacity: { runsMax: 1, labels: [] },
            ready: Effect.asVoid(Deferred.succeed(ready, undefined))
          })
        )
        return yield* Effect.raceFirst(
          Effect.as(Deferred.await(ready), "polls" as const),
          Effect.map(Effect.flip(Fiber.join(polling)), (error) =>
            error._tag === "TemporalFailed" ? error.reason : error._tag
          )
        )
      })
      assert.strictEqual(yield* begin("host-a", "one"), "polls")
      assert.strictEqual(yield* begin("host-a", "one"), "polls")
      assert.strictEqual(yield* begin("host-b", "one"), "HostNameInUse")
      assert.strictEqual(yield* begin("host-b", "two"), "polls")
      assert.strictEqual(yield* begin("host-c", "three", "nowhere"), "NamespaceNotFound")
    })
  )

  it.live("takes no run of an agent whose image is missing", () =>
    Effect.gen(function* () {
      const server = {
        ...TemporalServer.defaults,
        address: yield* TemporalDevServer.acquire,
        isSearchable: true
      }
      const graphIds = [Runs.graphId, "sandbox:codex"]
      const facts = { hostId: "host-a", missingGraphIds: [Runs.graphId] }
      const { keeper, started } = yield* HostKeeper.makeMemory(Runs.grant, graphIds, facts)
      yield* Effect.forkScoped(
        RunWorker.serve({ ...server, host: "one", keepers: [keeper], capacity: { runsMax: 1, labels: [] } })
      )
      const runs = yield* DurableRuns.make(server)
      yield* runs.submit(Runs.run("run-without-image", { placementSecondsMax: 3 }))
      const outcome = yield* runs.wait("run-without-image")
      assert.deepInclude(outcome, { status: "refused", reason: "NoRoom" })
      assert.include(outcome.message, "ImageMissing")
      assert.deepStrictEqual(yield* started, [])
    })
  )

  it.live("looks for a host that has the grant of a run for the time of its placement", () =>
    Effect.gen(function* () {
      const server = {
        ...TemporalServer.defaults,
        address: yield* TemporalDevServer.acquire,
        isSearchable: true
      }
      const { keeper } = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
      yield* Effect.forkScoped(
        RunWorker.serve({ ...server, host: "one", keepers: [keeper], capacity: { runsMax: 1, labels: [] } })
      )
      const runs = yield* DurableRuns.make(server)
      yield* runs.submit(Runs.run("run-of-other", { grantId: "grant-2", placementSecondsMax: 3 }))
      const outcome = yield* runs.wait("run-of-other")
      assert.deepInclude(outcome, { status: "refused", reason: "GrantUnchecked" })
      assert.include(outcome.message, "in 3 seconds")
      const policy = yield* Effect.promise(() =>
        Histories.retryOf(server.address, "run-of-other", "validateGrantActivity")
      )
      assert.deepInclude(policy, { maximumAttempts: 0 }, "any host may take it, also many times")
    })
  )
})
