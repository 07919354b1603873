/**
 * Records the histories that `Replay.test.ts` replays:
 * `node packages/temporal/test/recordHistories.ts PREFIX`, or `… PREFIX NAME` for those whose name begins so.
 *
 * Run it when the workflow was changed on purpose, under a new prefix: histories of released versions stay as they are.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Client, Connection, type WorkflowClient } from "@temporalio/client"
import { historyToJSON } from "@temporalio/common/lib/proto-utils.js"
import { Effect, Fiber } from "effect"
import { writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Await from "../../../test/harness/Await.ts"
import * as TemporalDevServer from "../../../test/harness/TemporalDevServer.ts"
import * as DurableRuns from "../src/DurableRuns.ts"
import * as HostKeeper from "../src/HostKeeper.ts"
import * as RunSchedule from "../src/RunSchedule.ts"
import * as RunSchedules from "../src/RunSchedules.ts"
import * as RunWorker from "../src/RunWorker.ts"
import * as Runs from "./Runs.ts"

const prefix = process.argv[2] ?? "v2"

/** Beginning of the names of the histories to record. Default: all of them. */
const only = process.argv[3] ?? ""

/** How often the keeper is full for the run of that name. */
const fullCount = 2

/** Time after which a host knows that no run waits. */
const idleMillis = 500

/** Removes what differs from machine to machine. */
const anonymous = (history: string): unknown =>
  JSON.parse(history, (key, value: unknown) =>
    key === "stackTrace" ? "" : key === "identity" ? "recorded" : value
  )

/** Whether a run is in the queue of placements. */
const isWaiting = (workflow: WorkflowClient, runId: string) =>
  Effect.promise(async () => {
    const { events } = await workflow.getHandle(runId).fetchHistory()
    return (events ?? []).some(
      ({ activityTaskScheduledEventAttributes: scheduled }) => scheduled?.activityType?.name === "place"
    )
  })

/** Writes the history of a workflow that has ended. */
const write = (workflow: WorkflowClient, workflowId: string, name: string, status: string) =>
  Effect.promise(async () => {
    const history = await workflow.getHandle(workflowId).fetchHistory()
    const file = fileURLToPath(new URL(`histories/${prefix}-${name}.json`, import.meta.url))
    writeFileSync(file, `${JSON.stringify(anonymous(historyToJSON(history)))}\n`)
    console.log(`${file}: ${status}`)
  })

/** Records the workflow that a schedule starts, by the ends of its run, and if the run exists already. */
const recordScheduled = Effect.fnUntraced(function* (
  { schedule, workflow }: Client,
  memory: HostKeeper.MemoryKeeper,
  schedules: RunSchedules.RunSchedules["Service"]
) {
  const { runId: _, ...run } = Runs.run("recorded-scheduled")
  for (const name of ["succeeded", "failed", "stopped"] as const) {
    const times = { everySeconds: 86_400 }
    yield* schedules.add({ ...RunSchedule.defaults, name, times, run })
    const handle = schedule.getHandle(name)
    yield* Effect.promise(() => handle.trigger())
    const [runId = ""] = yield* Await.until(
      `the run of ${name} has started`,
      Effect.map(memory.started, (all) => all.some((id) => id.startsWith(`${name}-`)))
    ).pipe(
      Effect.andThen(memory.started),
      Effect.map((all) => all.filter((id) => id.startsWith(`${name}-`)))
    )
    const { action, info } = yield* Effect.promise(() => handle.describe())
    const { workflowId = "" } = info.recentActions.at(-1)?.action.workflow ?? {}
    const firing = workflow.getHandle(workflowId)
    if (name === "stopped") yield* Effect.promise(() => firing.cancel())
    else yield* memory.change(runId, { status: name })
    const ended = Effect.promise(() => firing.result().then(() => "completed", String))
    yield* write(workflow, workflowId, `scheduled-${name}`, yield* ended)
    if (name !== "succeeded") continue
    // Like a firing that Temporal repeats: its run exists.
    yield* Effect.promise(() =>
      workflow.start("scheduledAgentRun", {
        workflowId,
        taskQueue: "cogni-sandbox",
        args: [...(action.args ?? [])]
      })
    )
    yield* write(workflow, workflowId, "scheduled-repeated", yield* ended)
  }
})

const record = Effect.gen(function* () {
  const address = yield* TemporalDevServer.acquire
  const server = { address, namespace: "default", taskQueue: "cogni-sandbox" }
  const memory = yield* HostKeeper.makeMemory(Runs.grant, [Runs.graphId])
  let refusals = 0
  const start = (task: HostKeeper.StartedTask) =>
    task.runId === "recorded-full" && refusals++ < fullCount
      ? Effect.fail(
          new HostKeeper.KeeperRefused({ status: 503, reason: "ServerFull", detail: "full", retrySeconds: 1 })
        )
      : memory.keeper.start(task)
  const worker = yield* RunWorker.serve({
    ...server,
    host: "host-1",
    keepers: [{ ...memory.keeper, start }],
    capacity: { runsMax: 1, labels: [] }
  }).pipe(Effect.forkScoped)
  const runs = yield* DurableRuns.make({ ...server, isSearchable: true })
  const started = (runId: string) =>
    Await.until(
      `${runId} has started`,
      Effect.map(memory.started, (all) => all.includes(runId))
    )
  const ends = {
    succeeded: (runId: string) =>
      memory.change(runId, { status: "succeeded", delivery: "pushed", branch: `sandbox/${runId}` }),
    kept: (runId: string) => memory.change(runId, { status: "succeeded", delivery: "failed" }),
    failed: (runId: string) => memory.change(runId, { status: "failed", reason: "OomKilled", exitCode: 137 }),
    stopped: runs.cancel,
    lost: (runId: string) => memory.change(runId, { status: "abandoned" }),
    waited: (runId: string) => memory.change(runId, { status: "succeeded", delivery: "pushed" }),
    full: (runId: string) => memory.change(runId, { status: "succeeded", delivery: "pushed" })
  }
  const connection = yield* Effect.promise(() => Connection.connect({ address }))
  const { workflow } = new Client({ connection })
  for (const [name, end] of Object.entries(ends)) {
    if (!name.startsWith(only)) continue
    const runId = `recorded-${name}`
    // It waits in the queue of placements, because this run has the only place.
    const before = `recorded-before-${name}`
    // Only a host without waiting runs places one itself.
    yield* Effect.sleep(`${idleMillis} millis`)
    if (name === "waited") {
      yield* runs.submit(Runs.run(before))
      yield* started(before)
    }
    yield* runs.submit(Runs.run(runId, { attemptsMax: 2, request: Runs.onRepository }))
    if (name === "waited") {
      yield* Await.until("it waits", isWaiting(workflow, runId))
      yield* memory.change(before, { status: "succeeded" })
    }
    yield* started(runId)
    yield* end(runId)
    if (name === "lost") {
      yield* started(`${runId}-a1`)
      yield* memory.change(`${runId}-a1`, { status: "succeeded" })
    }
    const { status } = yield* runs.wait(runId)
    yield* write(workflow, runId, name, status)
  }
  if ("scheduled".startsWith(only) || only.startsWith("scheduled"))
    yield* recordScheduled(
      new Client({ connection }),
      memory,
      yield* RunSchedules.make({ ...server, isSearchable: true })
    )
  yield* Effect.promise(() => connection.close())
  yield* Fiber.interrupt(worker)
}).pipe(Effect.scoped)

NodeRuntime.runMain(record)
