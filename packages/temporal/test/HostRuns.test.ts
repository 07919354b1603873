/** The steps of a host, with a keeper in memory. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Clock, Deferred, Effect, Fiber, Ref } from "effect"
import { TestClock } from "effect/testing"
import * as Await from "../../../test/harness/Await.ts"
import type { RunTask } from "../src/internal/RunTask.ts"
import * as HostKeeper from "../src/HostKeeper.ts"
import * as HostRuns from "../src/internal/HostRuns.ts"
import * as Runs from "./Runs.ts"

const task: RunTask = {
  runId: RunId.make("run-durable"),
  attempt: 0,
  grantId: Runs.grant.id,
  request: Runs.request,
  needs: {},
  hostGoneSecondsMax: 60
}

const asked = { runId: task.runId, graphId: Runs.graphId, grantId: task.grantId, needs: {} }

const gone = new HostKeeper.KeeperUnreachable({ detail: "connection refused" })

const full = new HostKeeper.KeeperRefused({
  status: 503,
  reason: "ServerFull",
  detail: "full",
  retrySeconds: 7
})

const world = Effect.gen(function* () {
  const memory = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
  const capacity = {
    runsMax: 2,
    cores: 4,
    memoryBytes: 1000,
    labels: [],
    graphIds: [Runs.graphId],
    grantIds: [Runs.grant.id]
  }
  const make = HostRuns.make({ name: "host-1", capacity, keepers: new Map([[Runs.grant.id, memory.keeper]]) })
  const beats = yield* Ref.make(0)
  const cancelled = yield* Deferred.make<void>()
  const watch = (over: Partial<HostRuns.Watch> = {}): HostRuns.Watch => ({
    isRepeated: false,
    lastEventId: 0,
    beat: Ref.update(beats, (count) => count + 1),
    followed: () => Effect.void,
    cancelled: Deferred.await(cancelled),
    ...over
  })
  const isStarted = Await.until(
    "the run has started",
    Effect.map(memory.started, (all) => all.length > 0)
  )
  return { memory, make, runs: yield* make, beats, cancelled, watch, isStarted }
})

describe("the steps of a host", () => {
  it.effect("start a run once, and follow it to its end, also from a second worker", () =>
    Effect.gen(function* () {
      const { beats, isStarted, make, memory, runs, watch } = yield* world
      const first = yield* Effect.forkChild(runs.execute(task, watch()))
      yield* isStarted
      yield* TestClock.adjust("3 seconds")
      assert.isAtLeast(yield* Ref.get(beats), 3)
      // The worker is killed. Another process has no memory of it.
      yield* Fiber.interrupt(first)
      const second = yield* make
      const following = yield* Effect.forkChild(
        second.execute(task, watch({ isRepeated: true, lastEventId: 1 }))
      )
      yield* memory.change(task.runId, { status: "succeeded", exitCode: 0 })
      const ended = yield* Await.play(Fiber.join(following))
      assert.deepStrictEqual(ended, {
        _tag: "Ended",
        isComplete: true,
        report: {
          runId: task.runId,
          attempt: 0,
          host: "host-1",
          lastEventId: 2,
          status: "succeeded",
          exitCode: 0,
          spend: { calls: 0, isFinal: true }
        }
      })
      assert.deepStrictEqual(yield* memory.started, [task.runId])
    })
  )

  it.effect("cancel a run on request, and wait for its end", () =>
    Effect.gen(function* () {
      const { cancelled, isStarted, runs, watch } = yield* world
      const running = yield* Effect.forkChild(runs.execute(task, watch()))
      yield* isStarted
      yield* Deferred.succeed(cancelled, undefined)
      const ended = yield* Await.play(Fiber.join(running))
      assert.strictEqual(ended._tag === "Ended" && ended.report.status, "interrupted")
    })
  )

  it.effect("stop a run that another step started, and need not stop one that never was", () =>
    Effect.gen(function* () {
      const { memory, runs, watch } = yield* world
      assert.deepStrictEqual(yield* runs.stop(task, watch()), { _tag: "Stopped" })
      yield* memory.keeper.start(task)
      const ended = yield* Await.play(runs.stop(task, watch()))
      assert.strictEqual(ended._tag === "Ended" && ended.report.status, "interrupted")
    })
  )

  it.effect("free the place of a run that is stopped before it began", () =>
    Effect.gen(function* () {
      const { runs, watch } = yield* world
      yield* runs.place(asked)
      yield* runs.place({ ...asked, runId: "run-other" })
      const last = { ...asked, runId: "run-last" }
      assert.strictEqual(yield* Effect.flip(runs.place(last)), "Full")
      assert.deepStrictEqual(yield* runs.stop(task, watch()), { _tag: "Stopped" })
      assert.deepStrictEqual(yield* runs.place(last), { host: "host-1" })
    })
  )

  it.effect("stop a run that another step is just starting", () =>
    Effect.gen(function* () {
      const { memory, watch } = yield* world
      const gate = yield* Deferred.make<void>()
      const start = (one: HostKeeper.StartedTask) =>
        Effect.andThen(Deferred.await(gate), memory.keeper.start(one))
      const runs = yield* HostRuns.make({
        name: "host-1",
        capacity: { runsMax: 1, cores: 1, memoryBytes: 1, labels: [], graphIds: [], grantIds: [] },
        keepers: new Map([[Runs.grant.id, { ...memory.keeper, start }]])
      })
      const running = yield* Effect.forkChild(runs.execute(task, watch()))
      yield* TestClock.adjust("1 second")
      const stopping = yield* Effect.forkChild(runs.stop(task, watch()))
      yield* TestClock.adjust("1 second")
      assert.isUndefined(stopping.pollUnsafe())
      yield* Deferred.succeed(gate, undefined)
      for (const step of [running, stopping]) {
        const ended = yield* Await.play(Fiber.join(step))
        assert.strictEqual(ended._tag === "Ended" && ended.report.status, "interrupted")
      }
    })
  )

  it.effect("start no run again on a host that replaced its own, and say that this one is lost", () =>
    Effect.gen(function* () {
      const { watch } = yield* world
      const facts = { hostId: "id-new", missingGraphIds: [] }
      const { keeper, started } = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId], facts)
      const runs = yield* HostRuns.make({
        name: "host-1",
        hostId: "id-new",
        capacity: {
          runsMax: 2,
          cores: 4,
          memoryBytes: 1000,
          labels: [],
          graphIds: [Runs.graphId],
          grantIds: [Runs.grant.id]
        },
        keepers: new Map([[Runs.grant.id, keeper]])
      })
      const before = { ...task, hostId: "id-old" }
      const isLost = {
        _tag: "HostLost",
        message: "it was replaced by another host of its name",
        lastEventId: 5
      } as const
      const repeated = watch({ isRepeated: true, lastEventId: 5 })
      assert.deepStrictEqual(yield* Await.play(runs.execute(before, repeated)), isLost)
      assert.deepStrictEqual(yield* runs.stop(before, repeated), isLost)
      assert.strictEqual(yield* runs.deliver(before), isLost.message)
      assert.deepStrictEqual(yield* started, [])
      // The same host knows that nothing was started.
      const placed = yield* runs.place(asked)
      assert.deepStrictEqual(placed, { host: "host-1", hostId: "id-new" })
      const here = { ...task, hostId: "id-new" }
      assert.deepStrictEqual(yield* runs.stop(here, repeated), { _tag: "Stopped" })
      const running = yield* Effect.forkChild(runs.execute(here, repeated))
      yield* Await.until(
        "the run has started",
        Effect.map(started, (all) => all.length > 0)
      )
      yield* Fiber.interrupt(running)
    })
  )

  it.effect("wait for a keeper that does not answer, until it counts as lost", () =>
    Effect.gen(function* () {
      const { memory, runs, watch } = yield* world
      yield* memory.fault(gone)
      const running = yield* Effect.forkChild(runs.execute(task, watch({ lastEventId: 5, isRepeated: true })))
      yield* TestClock.adjust("59 seconds")
      assert.isUndefined(running.pollUnsafe())
      const ended = yield* Await.play(Fiber.join(running))
      assert.deepInclude(ended, { _tag: "HostLost", lastEventId: 5 })
    })
  )

  it.effect("go on when the keeper answers again", () =>
    Effect.gen(function* () {
      const { isStarted, memory, runs, watch } = yield* world
      yield* memory.fault(gone)
      const running = yield* Effect.forkChild(runs.execute(task, watch()))
      yield* TestClock.adjust("10 seconds")
      yield* memory.fault(undefined)
      yield* TestClock.adjust("1 second")
      yield* isStarted
      yield* memory.change(task.runId, { status: "failed", reason: "OomKilled" })
      const ended = yield* Await.play(Fiber.join(running))
      assert.strictEqual(ended._tag === "Ended" && ended.report.reason, "OomKilled")
    })
  )

  it.effect("place no run while the keeper is full, and say so", () =>
    Effect.gen(function* () {
      const { memory, runs, watch } = yield* world
      yield* memory.fault(full)
      assert.deepInclude(yield* runs.execute(task, watch()), { _tag: "HostFull" })
      yield* memory.fault(undefined)
      assert.strictEqual(yield* Effect.flip(runs.place(asked)), "Full")
      yield* TestClock.adjust("7 seconds")
      assert.deepStrictEqual(yield* runs.place(asked), { host: "host-1" })
    })
  )

  it.effect("place runs again after a minute, if a keeper that is full names a longer time", () =>
    Effect.gen(function* () {
      const { memory, runs, watch } = yield* world
      yield* memory.fault(
        new HostKeeper.KeeperRefused({ ...full, reason: "ServerStopping", retrySeconds: 86_400 })
      )
      assert.deepInclude(yield* runs.execute(task, watch()), { _tag: "HostFull" })
      yield* TestClock.adjust("59 seconds")
      assert.strictEqual(yield* Effect.flip(runs.place(asked)), "Full")
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* runs.place(asked), { host: "host-1" })
    })
  )

  it.effect("place runs again after the time of a keeper that is full, also if the clock is set back", () =>
    Effect.gen(function* () {
      const { memory, runs, watch } = yield* world
      yield* memory.fault(full)
      assert.deepInclude(yield* runs.execute(task, watch()), { _tag: "HostFull" })
      yield* TestClock.adjust("7 seconds")
      const clock = yield* Clock.Clock
      const setBack = {
        ...clock,
        currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() - 3_600_000,
        currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis - 3_600_000)
      }
      const placed = runs.place(asked).pipe(Effect.provideService(Clock.Clock, setBack))
      assert.deepStrictEqual(yield* placed, { host: "host-1" })
    })
  )

  it.effect("place no run of a grant that is at its limit, and those of other grants as before", () =>
    Effect.gen(function* () {
      const { memory, watch } = yield* world
      const busy = yield* HostKeeper.makeMemory({ ...Runs.grant, id: "grant-busy" }, [Runs.graphId])
      const runs = yield* HostRuns.make({
        name: "host-1",
        capacity: {
          runsMax: 2,
          cores: 4,
          memoryBytes: 1000,
          labels: [],
          graphIds: [Runs.graphId],
          grantIds: [Runs.grant.id, "grant-busy"]
        },
        keepers: new Map([
          [Runs.grant.id, memory.keeper],
          ["grant-busy", busy.keeper]
        ])
      })
      yield* busy.fault(
        new HostKeeper.KeeperRefused({
          status: 429,
          reason: "TooFast",
          detail: "this grant may make 60 runs per minute",
          retrySeconds: 55
        })
      )
      const ofBusy = { ...task, grantId: "grant-busy" }
      assert.deepStrictEqual(yield* runs.execute(ofBusy, watch()), { _tag: "HostFull" })
      const again = { ...asked, grantId: "grant-busy" }
      assert.strictEqual(yield* Effect.flip(runs.place(again)), "GrantFull")
      assert.deepStrictEqual(yield* runs.place({ ...asked, runId: "run-other" }), { host: "host-1" })
      yield* runs.room
      yield* TestClock.adjust("55 seconds")
      assert.deepStrictEqual(yield* runs.place(again), { host: "host-1" })
    })
  )

  it.effect("find a run of a full keeper that an earlier worker started, instead of placing it again", () =>
    Effect.gen(function* () {
      const { memory, runs, watch } = yield* world
      yield* memory.keeper.start(task)
      yield* memory.fault(full)
      const running = yield* Effect.forkChild(runs.execute(task, watch({ isRepeated: true })))
      yield* TestClock.adjust("2 seconds")
      yield* memory.fault(undefined)
      yield* memory.change(task.runId, { status: "succeeded" })
      assert.strictEqual((yield* Await.play(Fiber.join(running)))._tag, "Ended")
    })
  )

  it.effect("refuse a grant that is read-only, that the keeper refuses, or that the host does not have", () =>
    Effect.gen(function* () {
      const { memory, runs } = yield* world
      const validate = (grantId: string = Runs.grant.id) => runs.validate({ grantId, graphId: Runs.graphId })
      assert.deepStrictEqual(yield* validate(), { _tag: "Valid", billingAccountId: "acme" })
      yield* memory.fault(
        new HostKeeper.KeeperRefused({ status: 403, reason: "GrantExpired", detail: "expired" })
      )
      assert.deepInclude(yield* validate(), { _tag: "Refused", reason: "GrantExpired" })
      yield* memory.fault(gone)
      assert.strictEqual(yield* Effect.flip(validate()), gone)
      assert.strictEqual(yield* Effect.flip(validate("grant-2")), "NoSuchGrant")
      const readOnly = yield* HostKeeper.makeMemory({ ...Runs.grant, mayWrite: false }, [])
      const other = yield* HostRuns.make({
        name: "host-2",
        capacity: { runsMax: 1, cores: 1, memoryBytes: 1, labels: [], graphIds: [], grantIds: [] },
        keepers: new Map([[Runs.grant.id, readOnly.keeper]])
      })
      assert.deepInclude(yield* other.validate({ grantId: Runs.grant.id, graphId: Runs.graphId }), {
        reason: "GrantReadOnly"
      })
    })
  )

  it.effect("deliver kept commits, and report those that stay kept", () =>
    Effect.gen(function* () {
      const { memory, runs } = yield* world
      yield* memory.keeper.start(task)
      assert.isUndefined(yield* runs.deliver(task))
      yield* memory.change(task.runId, { delivery: "failed" })
      assert.isUndefined(yield* runs.deliver(task))
      assert.strictEqual((yield* memory.keeper.describe(task.runId))?.delivery, "pushed")
    })
  )

  it.effect("record a run when its audit was read", () =>
    Effect.gen(function* () {
      const { memory, runs } = yield* world
      yield* memory.keeper.start(task)
      yield* memory.change(task.runId, { status: "succeeded", isSettled: false })
      const recording = yield* Effect.forkChild(runs.record({ ...task, host: "host-1" }))
      yield* TestClock.adjust("5 seconds")
      assert.isUndefined(recording.pollUnsafe())
      yield* memory.change(task.runId, { isSettled: true, spend: { calls: 1, costUsd: 0.5, isFinal: true } })
      const report = yield* Await.play(Fiber.join(recording))
      assert.strictEqual(report?.spend.costUsd, 0.5)
    })
  )

  it.effect("report a complete record with the end of a run, and free its place at once", () =>
    Effect.gen(function* () {
      const { isStarted, memory, runs, watch } = yield* world
      const one = { ...task, request: Runs.onRepository }
      const running = yield* Effect.forkChild(runs.execute(one, watch()))
      yield* isStarted
      yield* memory.change(task.runId, { status: "succeeded", delivery: "pushed", isSettled: false })
      // Its audit is read soon.
      yield* TestClock.adjust("1 second")
      assert.isUndefined(running.pollUnsafe())
      yield* memory.change(task.runId, { isSettled: true, spend: { calls: 1, costUsd: 0.5, isFinal: true } })
      const ended = yield* Await.play(Fiber.join(running))
      assert.deepInclude(ended, { _tag: "Ended", isComplete: true })
      assert.strictEqual(ended._tag === "Ended" && ended.report.spend.costUsd, 0.5)
      yield* Await.play(runs.drain)
    })
  )

  for (const [why, change] of [
    ["its commits are kept", { status: "succeeded", delivery: "failed" }],
    ["its commits are not delivered yet", { status: "succeeded" }],
    ["its audit is not read in time", { status: "succeeded", delivery: "pushed", isSettled: false }],
    ["its keeper ended during the run", { status: "abandoned" }]
  ] as const)
    it.effect(`leave the rest to later steps if ${why}`, () =>
      Effect.gen(function* () {
        const { isStarted, memory, runs, watch } = yield* world
        const one = { ...task, request: Runs.onRepository }
        const running = yield* Effect.forkChild(runs.execute(one, watch()))
        yield* isStarted
        yield* memory.change(task.runId, change)
        const ended = yield* Await.play(Fiber.join(running))
        assert.strictEqual(ended._tag, "Ended")
        assert.notProperty(ended, "isComplete")
      })
    )

  it.effect("place a run without asking other hosts only if no run waits for a place", () =>
    Effect.gen(function* () {
      const { runs } = yield* world
      assert.strictEqual(yield* Effect.flip(runs.placeHere(asked)), "NotIdle")
      yield* runs.waiting(true)
      assert.strictEqual(yield* Effect.flip(runs.placeHere(asked)), "NotIdle", "the queue may answer")
      yield* TestClock.adjust("200 millis")
      assert.deepStrictEqual(yield* runs.placeHere(asked), { host: "host-1" })
      yield* runs.waiting(false)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(yield* Effect.flip(runs.placeHere(asked)), "NotIdle")
    })
  )

  it.effect("ask for runs to place only while there is room", () =>
    Effect.gen(function* () {
      const { runs } = yield* world
      yield* Await.play(runs.room)
      yield* runs.place(asked)
      yield* runs.place({ ...asked, runId: "run-other" })
      const waiting = yield* Effect.forkChild(runs.room)
      yield* TestClock.adjust("59 seconds")
      assert.isUndefined(waiting.pollUnsafe())
      // No run has arrived.
      yield* TestClock.adjust("2 seconds")
      yield* Await.play(Fiber.join(waiting))
      const draining = yield* Effect.forkChild(runs.drain)
      yield* TestClock.adjust("1 second")
      const never = yield* Effect.forkChild(runs.room)
      yield* TestClock.adjust("1 hour")
      assert.isUndefined(never.pollUnsafe())
      yield* Fiber.join(draining)
    })
  )

  it.effect("drain: take no more runs, and wait until the last one has been recorded", () =>
    Effect.gen(function* () {
      const { isStarted, memory, runs, watch } = yield* world
      yield* runs.place(asked)
      const running = yield* Effect.forkChild(runs.execute(task, watch()))
      yield* isStarted
      const draining = yield* Effect.forkChild(runs.drain)
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(yield* Effect.flip(runs.place({ ...asked, runId: "run-other" })), "Draining")
      assert.isUndefined(draining.pollUnsafe())
      yield* memory.change(task.runId, { status: "succeeded", isSettled: false })
      yield* TestClock.adjust("5 seconds")
      yield* Await.until(
        "the run has ended",
        Effect.sync(() => running.pollUnsafe() !== undefined)
      )
      assert.isUndefined(draining.pollUnsafe(), "its record is missing")
      yield* memory.change(task.runId, { isSettled: true })
      yield* runs.record({ ...task, host: "host-1" })
      yield* Await.play(Fiber.join(draining))
    })
  )
})
