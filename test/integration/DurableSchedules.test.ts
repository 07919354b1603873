/** Schedules of durable runs, on a real Temporal server. */
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import * as HostKeeper from "@cogni/sandbox-temporal/HostKeeper"
import * as RunSchedule from "@cogni/sandbox-temporal/RunSchedule"
import * as RunSchedules from "@cogni/sandbox-temporal/RunSchedules"
import * as RunWorker from "@cogni/sandbox-temporal/RunWorker"
import * as TemporalServer from "@cogni/sandbox-temporal/TemporalServer"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { addOther } from "../../packages/temporal/test/OtherSchedule.ts"
import * as Runs from "../../packages/temporal/test/Runs.ts"
import * as Await from "../harness/Await.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

const { runId: _, ...run } = Runs.run("run-scheduled")

const scheduleOf = (name: string, over: Partial<RunSchedule.RunSchedule> = {}): RunSchedule.RunSchedule => ({
  ...RunSchedule.defaults,
  name,
  times: { everySeconds: 1 },
  run,
  ...over
})

const world = Effect.gen(function* () {
  const server = { ...TemporalServer.defaults, address: yield* TemporalDevServer.acquire, isSearchable: true }
  const memory = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
  yield* RunWorker.serve({
    ...server,
    host: "host-1",
    keepers: [memory.keeper],
    capacity: { runsMax: 4, labels: [] }
  }).pipe(Effect.forkScoped)
  const runs = yield* DurableRuns.make(server)
  const schedules = yield* RunSchedules.make(server)
  /** Waits until a schedule has started some runs, and returns their IDs. */
  const started = (name: string, count: number) =>
    Await.until(
      `${name} has started ${count} runs`,
      Effect.map(memory.started, (all) => all.filter((id) => id.startsWith(`${name}-`)).length >= count)
    ).pipe(
      Effect.andThen(memory.started),
      Effect.map((all) => all.filter((id) => id.startsWith(`${name}-`)))
    )
  return { address: server.address, memory, runs, schedules, started }
})

describe("a schedule", () => {
  it.live("starts runs whose workflow has the run ID, one after the other, until it is paused", () =>
    Effect.gen(function* () {
      const { memory, runs, schedules, started } = yield* world
      yield* schedules.add(scheduleOf("nightly"))
      const [first] = yield* started("nightly", 1)
      assert.match(first!, /^nightly-[0-9a-z]{6}-\d{8}t\d{6}z$/u)
      // The first run is under way for more than one interval, so firings are skipped.
      const dueMillis = Effect.map(schedules.show("nightly"), ({ nextAt }) => nextAt[0]?.getTime() ?? 0)
      const before = yield* dueMillis
      yield* Await.until(
        "two firings were skipped",
        Effect.map(dueMillis, (now) => now >= before + 2000)
      )
      assert.deepStrictEqual(yield* started("nightly", 1), [first!])
      yield* memory.change(first!, { status: "succeeded" })
      // Others wait for it and cancel it by its ID, as for any run.
      assert.strictEqual((yield* runs.wait(first!)).status, "succeeded")
      const [, second] = yield* started("nightly", 2)
      assert.notStrictEqual(second, first)
      yield* schedules.pause("nightly", "holiday")
      yield* runs.cancel(second!)
      assert.deepInclude(yield* runs.wait(second!), { status: "stopped", reason: "Cancelled" })
      const { schedule, ...state } = yield* schedules.show("nightly")
      assert.deepInclude(state, { isPaused: true, note: "holiday", nextAt: [], times: "every 1 s" })
      yield* schedules.pause("nightly")
      assert.strictEqual((yield* schedules.show("nightly")).note, "holiday", "its note was lost")
      assert.deepStrictEqual(
        state.recent.map(({ runId }) => runId).filter((id) => id === first || id === second),
        [first!, second!]
      )
      assert.deepStrictEqual(schedule, scheduleOf("nightly"))
      yield* schedules.resume("nightly")
      yield* schedules.pause("nightly")
      assert.notProperty(yield* schedules.show("nightly"), "note")
      yield* schedules.resume("nightly")
      const [, , third] = yield* started("nightly", 3)
      yield* schedules.remove("nightly")
      assert.strictEqual((yield* Effect.flip(schedules.show("nightly"))).reason, "ScheduleNotFound")
      // A removed schedule leaves its run alone.
      yield* memory.change(third!, { status: "succeeded" })
      assert.strictEqual((yield* runs.wait(third!)).status, "succeeded")
    })
  )

  it.live("checks the grant at each firing", () =>
    Effect.gen(function* () {
      const { memory, runs, schedules, started } = yield* world
      yield* schedules.add(scheduleOf("granted", { overlap: "allow" }))
      yield* started("granted", 1)
      yield* memory.fault(
        new HostKeeper.KeeperRefused({ status: 401, reason: "GrantRevoked", detail: "the grant is revoked" })
      )
      const before = yield* memory.started
      const later = Effect.map(schedules.show("granted"), ({ recent }) =>
        recent.map(({ runId }) => runId).filter((id) => !before.includes(id))
      )
      yield* Await.until(
        "it has fired again",
        Effect.map(later, (all) => all.length > 1)
      )
      const [, refused] = yield* later
      // A firing is listed a moment before its run is there.
      const outcome = yield* Effect.retry(runs.wait(refused!), {
        schedule: Schedule.spaced("200 millis").pipe(Schedule.upTo({ duration: "20 seconds" })),
        while: ({ reason }) => reason === "RunNotFound"
      })
      assert.deepInclude(outcome, { status: "refused", reason: "GrantRevoked" })
      assert.deepStrictEqual(yield* memory.started, before, "a run was started without a grant")
    })
  )

  it.live(
    "is refused if its times or its name are not usable, and others in the namespace are not seen",
    () =>
      Effect.gen(function* () {
        const { address, schedules } = yield* world
        yield* Effect.promise(() => addOther(address))
        const paris = scheduleOf("berlin", { times: { cron: ["0 3 * * MON"], timeZone: "Europe/Berlin" } })
        yield* schedules.add(paris)
        assert.strictEqual((yield* Effect.flip(schedules.add(paris))).reason, "ScheduleInUse")
        for (const times of [{ cron: ["61 * * * *"] }, { cron: ["0 3 * * *"], timeZone: "Europe/Atlantis" }])
          assert.strictEqual(
            (yield* Effect.flip(schedules.add(scheduleOf("wrong", { times })))).reason,
            "ScheduleInvalid"
          )
        for (const use of [schedules.show, schedules.pause, schedules.remove])
          assert.strictEqual((yield* Effect.flip(use("other"))).reason, "ScheduleNotFound")
        yield* Await.until(
          "it is listed",
          Effect.map(schedules.list, (all) => all.length === 1)
        )
        const [listed] = yield* schedules.list
        assert.deepInclude(listed, {
          name: "berlin",
          grantId: "grant-1",
          graphId: "sandbox:agent",
          times: "0 3 * * MON (Europe/Berlin)",
          isPaused: false
        })
        const [next] = listed!.nextAt
        assert.strictEqual(
          next?.toLocaleString("en-GB", { timeZone: "Europe/Berlin", weekday: "short", hour: "2-digit" }),
          "Mon, 03"
        )
      })
  )
})
