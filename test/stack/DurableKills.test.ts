/**
 * A worker that is killed at any point of a run, and a Temporal server that is: each run ends once, each model call is
 * paid once, and each branch and pull request is delivered once.
 *
 * The server and the keeper are real. Doors between them and the worker stop its time at a point, where it is killed.
 */
import { assert, layer } from "@effect/vitest"
import { Cause, Context, Effect, Exit, Layer, Queue, Semaphore } from "effect"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import * as DurableLane from "../harness/durable/DurableLane.ts"
import * as DurableWorld from "../harness/durable/DurableWorld.ts"
import * as Moment from "../harness/durable/Moment.ts"
import * as Pace from "../harness/Pace.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

const { event, keeper, late, temporal } = Moment

/** A decision of the workflow, by a text in its commands. */
const decided = (text: string) => [
  temporal("RespondWorkflowTaskCompleted", "asked", text),
  temporal("RespondWorkflowTaskCompleted", "answered", text)
]

/** The result of an activity, by its type or by a text in its result. */
const done = (text: string) => [
  temporal("RespondActivityTaskCompleted", "asked", text),
  temporal("RespondActivityTaskCompleted", "answered", text)
]

/** A task that Temporal gave to the worker, which has not received it. */
const givenTo = (kind: "Activity" | "Workflow", text: string) =>
  temporal(`Poll${kind}TaskQueue`, "answered", text)

/** A request to the keeper. */
const asked = (call: string, index = 1) => [keeper(call, "asked", index), keeper(call, "answered", index)]

const starting: ReadonlyArray<Moment.Point> = [
  givenTo("Workflow", "sandboxAgentRun"),
  ...decided("validateGrantActivity"),
  ...asked("GET /sign-in"),
  givenTo("Workflow", "validateGrantActivity"),
  givenTo("Workflow", '"Placed"'),
  ...decided("executeGraphActivity"),
  givenTo("Activity", "executeGraphActivity"),
  temporal("RecordActivityTaskHeartbeat", "asked"),
  temporal("RecordActivityTaskHeartbeat", "answered"),
  ...asked("POST /runs"),
  late(keeper("POST /runs", "asked"))
]

const following: ReadonlyArray<Moment.Point> = [
  ...asked("GET /runs/ID/events"),
  event("run.started"),
  // A worker only counts the events of phases, so that those in between show nothing else.
  ...[1, 6].map((index) => event("phase.ended", index)),
  event("posture.verified"),
  event("tool.started"),
  event("tool.ended"),
  ...[1, 2, 3].map((index) => event("message.written", index)),
  event("run.ended"),
  ...asked("GET /runs/ID"),
  ...done("executeGraphActivity")
]

const ending: ReadonlyArray<Moment.Point> = [
  givenTo("Workflow", "executeGraphActivity"),
  ...asked("GET /runs/ID", 2),
  ...asked("GET /runs/ID", 3),
  ...asked("GET /runs/ID", 4),
  ...decided("succeeded")
]

/** Points of a run whose first push the origin refuses, so that its delivery and its record are steps of their own. */
const redelivering: ReadonlyArray<Moment.Point> = [
  ...decided("pushBranchActivity"),
  givenTo("Activity", "pushBranchActivity"),
  ...asked("POST /runs/ID/relay/retry"),
  ...done("pushBranchActivity"),
  givenTo("Workflow", "pushBranchActivity"),
  ...decided("recordRunCompleteActivity"),
  givenTo("Activity", "recordRunCompleteActivity"),
  ...done("recordRunCompleteActivity"),
  givenTo("Workflow", "recordRunCompleteActivity")
]

/** Points of a run that is cancelled. */
const cancelling = [...asked("DELETE /runs/ID"), ...done("executeGraphActivity"), ...decided("Cancelled")]

/** Points at which one worker after another is killed, in one run. */
const again: ReadonlyArray<Moment.Point> = [
  givenTo("Workflow", "sandboxAgentRun"),
  keeper("POST /runs", "answered"),
  keeper("GET /runs/ID", "asked"),
  event("message.written"),
  ...done("executeGraphActivity").slice(0, 1)
]

/** Points at which the Temporal server is killed. */
const outages: ReadonlyArray<Moment.Point> = [
  ...decided("validateGrantActivity"),
  ...decided("executeGraphActivity").slice(0, 1),
  givenTo("Activity", "executeGraphActivity"),
  keeper("POST /runs", "answered"),
  temporal("RecordActivityTaskHeartbeat", "answered"),
  ...done("executeGraphActivity"),
  givenTo("Workflow", "executeGraphActivity"),
  temporal("RespondWorkflowTaskCompleted", "answered", "succeeded")
]

const lanesAtOnce = 10

/** A run after a kill: it waits for Temporal to notice the death, which takes 10 seconds. */
const survivedMillis = 60_000

const make = Effect.gen(function* () {
  const cli = yield* CliProcess.CliProcess
  const world = yield* DurableWorld.make(cli)
  const server = yield* TemporalDevServer.acquireKept
  const { url } = yield* world.keeper({})
  const free = yield* Queue.unbounded<DurableLane.DurableLane>()
  const options = { temporal: server.address, keeper: url, tokenFile: world.tokenFile }
  yield* Effect.forEach(
    Array.from({ length: lanesAtOnce }, (_, index) => `lane-${index}`),
    (name) =>
      Effect.flatMap(DurableLane.acquire(cli, { name, ...options }), (lane) => Queue.offer(free, lane)),
    { concurrency: lanesAtOnce, discard: true }
  )
  /** Model calls by run. */
  const calls = new Map<string, number>()
  const killing = Semaphore.makeUnsafe(1)
  return {
    cli,
    world,
    calls,
    /** Uses a lane that has no other run, and a new run. */
    inLane: <A, E, R>(use: (lane: DurableLane.DurableLane, runId: string) => Effect.Effect<A, E, R>) =>
      Effect.acquireUseRelease(
        Queue.take(free),
        (lane) =>
          Effect.suspend(() => {
            const runId = `run-killed-${calls.size}`
            calls.set(runId, DurableWorld.callsOfRun)
            return use(lane, runId)
          }),
        (lane) => Queue.offer(free, lane)
      ),
    /** Kills the server, and starts it again. All connections to it are lost. */
    outage: killing.withPermits(1)(Effect.andThen(server.kill, server.restart))
  }
}).pipe(Effect.orDie)

class Stage extends Context.Service<Stage, Effect.Success<typeof make>>()("test/Stage") {
  static readonly layer = Layer.effect(Stage, make).pipe(Layer.provideMerge(CliProcess.layer))
}

/** Runs each case, some at once, and fails with all that failed. */
const each = Effect.fnUntraced(function* <R>(
  cases: ReadonlyArray<readonly [name: string, effect: Effect.Effect<void, unknown, R>]>
) {
  const failed = yield* Effect.forEach(
    cases,
    ([name, effect]) =>
      Effect.map(Effect.exit(effect), (exit) =>
        Exit.isSuccess(exit) ? [] : [`${name}: ${Cause.pretty(exit.cause)}`]
      ),
    { concurrency: lanesAtOnce }
  )
  assert.deepStrictEqual(failed.flat(), [])
})

/** Waits for the end of a run, which must have succeeded once. */
const succeeded = Effect.fnUntraced(function* (
  { world }: Stage["Service"],
  lane: DurableLane.DurableLane,
  runId: string,
  path?: string
) {
  const begun = performance.now()
  const { attempts, reason, status } = yield* lane.wait(runId)
  assert.isBelow(performance.now() - begun, Pace.allowed(survivedMillis), "the death was noticed late")
  assert.strictEqual(status, "succeeded", reason)
  const facts = attempts.map(({ delivery, spend, status: its }) => [
    its,
    delivery,
    spend.calls,
    spend.isFinal
  ])
  assert.deepStrictEqual(facts, [["succeeded", "pushed", DurableWorld.callsOfRun, true]])
  yield* world.isDelivered([runId], path)
})

/** Kills the worker at each of these points of one run. */
const survives = (stage: Stage["Service"], points: ReadonlyArray<Moment.Point>) =>
  stage.inLane(
    Effect.fnUntraced(function* (lane, runId) {
      let cause: Effect.Effect<void, unknown> = lane.submit(stage.world.run(runId))
      for (const point of points) {
        yield* lane.stopAt(point, cause)
        cause = lane.kill
      }
      yield* cause
      yield* succeeded(stage, lane, runId)
    }, Effect.orDie)
  )

/** Kills the worker at a point of a run whose first push is refused. */
const redelivers = (stage: Stage["Service"], point: Moment.Point) =>
  stage.inLane(
    Effect.fnUntraced(function* (lane, runId) {
      const { path, url } = yield* stage.world.repository(`${DurableWorld.refusing}-${runId}`)
      yield* lane.stopAt(point, lane.submit(stage.world.run(runId, { url })))
      yield* lane.kill
      yield* succeeded(stage, lane, runId, path)
    }, Effect.orDie)
  )

/** Cancels a run, and kills the worker at a point afterwards. */
const stops = (stage: Stage["Service"], point: Moment.Point) =>
  stage.inLane(
    Effect.fnUntraced(function* (lane, runId) {
      stage.calls.set(runId, 1)
      yield* lane.stopAt(
        event("run.started"),
        lane.submit(stage.world.run(runId, { prompt: DurableWorld.unanswered }))
      )
      yield* lane.release
      yield* stage.world.isAsked(runId)
      yield* lane.stopAt(point, lane.cancel(runId))
      yield* lane.kill
      const { attempts, reason, status } = yield* lane.wait(runId)
      assert.deepStrictEqual([status, reason], ["stopped", "Cancelled"])
      assert.deepStrictEqual(
        attempts.map(({ spend }) => spend.calls),
        [1]
      )
    }, Effect.orDie)
  )

/** Kills the Temporal server while a worker is at a point. */
const outlasts = (stage: Stage["Service"], point: Moment.Point) =>
  stage.inLane(
    Effect.fnUntraced(function* (lane, runId) {
      yield* lane.stopAt(point, lane.submit(stage.world.run(runId)))
      yield* lane.door.close
      yield* stage.outage
      yield* lane.door.open
      yield* lane.release
      yield* succeeded(stage, lane, runId)
    }, Effect.orDie)
  )

layer(Stage.layer, { excludeTestServices: true })("durable runs", (it) => {
  it.effect(
    "outlive a worker that is killed at any point of them",
    () =>
      Effect.gen(function* () {
        const stage = yield* Stage
        yield* each([
          ["after each other", survives(stage, again)] as const,
          ...redelivering.map((at) => [at.name, redelivers(stage, at)] as const),
          ...cancelling.map((at) => [`cancelled, ${at.name}`, stops(stage, at)] as const),
          ...[...starting, ...following, ...ending].map((at) => [at.name, survives(stage, [at])] as const)
        ])
      }),
    { timeout: 2 * Pace.hangMillis }
  )

  it.effect(
    "outlive a Temporal server that is killed at any point of them",
    () =>
      Effect.gen(function* () {
        const stage = yield* Stage
        yield* each(outages.map((at) => [at.name, outlasts(stage, at)] as const))
      }),
    { timeout: 2 * Pace.hangMillis }
  )

  it.effect("were paid once, were delivered once, and left nothing behind", () =>
    Effect.gen(function* () {
      const { calls, cli, world } = yield* Stage
      assert.isAtLeast([starting, following, ending, redelivering, cancelling].flat().length, 60)
      assert.isAtLeast(outages.length, 10)
      assert.deepStrictEqual(yield* world.callsByRun, calls)
      yield* world.isPaidOnce
      yield* world.isAskedOnce
      const listed = yield* cli.run(["ps", "--all", "--output", "json"])
      assert.lengthOf(JSON.parse(listed.stdout.toString("utf8")), calls.size)
      yield* Await.until(
        "nothing is left",
        Effect.map(cli.leftovers, (left) => left.length === 0)
      )
    })
  )
})
