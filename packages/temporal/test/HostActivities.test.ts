/** Activities tell that their worker lives while they wait, so that Temporal notices a dead one. */
import { describe, it } from "@effect/vitest"
import { asyncLocalStorage, type Context } from "@temporalio/activity"
import { Effect, FiberSet } from "effect"
import * as Await from "../../../test/harness/Await.ts"
import * as HostActivities from "../src/internal/HostActivities.ts"
import * as HostKeeper from "../src/HostKeeper.ts"
import * as HostRuns from "../src/internal/HostRuns.ts"
import * as Runs from "./Runs.ts"

/** Activities of a host whose keeper does not answer, and the number of heartbeats. */
const world = Effect.gen(function* () {
  const { keeper } = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
  const silent = { ...keeper, grant: Effect.never, describe: () => Effect.never, deliver: () => Effect.never }
  const capacity = {
    runsMax: 1,
    cores: 1,
    memoryBytes: 1,
    labels: [],
    graphIds: [Runs.graphId],
    grantIds: [Runs.grant.id]
  }
  const runs = yield* HostRuns.make({ name: "host-1", capacity, keepers: new Map([[Runs.grant.id, silent]]) })
  let beats = 0
  const ended = new AbortController()
  yield* Effect.addFinalizer(() => Effect.sync(() => ended.abort()))
  const context = {
    cancellationSignal: ended.signal,
    info: { activityType: "validateGrantActivity" },
    heartbeat: () => void (beats += 1)
  } as unknown as Context
  const activities = HostActivities.make(runs, "queue-1", yield* FiberSet.makeRuntimePromise<never>())
  const start = (step: (all: HostActivities.HostActivities) => Promise<unknown>) =>
    void asyncLocalStorage.run(context, () => step(activities)).catch(() => undefined)
  return {
    start,
    isAlive: Await.until(
      "a heartbeat was sent",
      Effect.sync(() => beats > 0)
    )
  }
})

describe("an activity that waits for a keeper", () => {
  it.live("sends heartbeats while it validates a grant", () =>
    Effect.gen(function* () {
      const { isAlive, start } = yield* world
      start((all) => all.validateGrantActivity({ grantId: Runs.grant.id, graphId: Runs.graphId }))
      yield* isAlive
    })
  )
})
