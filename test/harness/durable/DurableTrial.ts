/**
 * Many durable runs over three hosts. In the middle, one host is drained, a worker is killed, a whole host is killed,
 * and one is cut off from the Temporal server. Each run must end once, be paid once, and be delivered once.
 */
import type { DurableOutcome, AttemptReport } from "@cogni/sandbox-temporal/DurableRun"
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import { assert } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber, Schema } from "effect"
import * as Await from "../Await.ts"
import { CliProcess } from "../CliProcess.ts"
import * as PostgresServer from "../PostgresServer.ts"
import * as TemporalDevServer from "../TemporalDevServer.ts"
import * as DurableHost from "./DurableHost.ts"
import * as DurableWorld from "./DurableWorld.ts"

export interface TrialOptions {
  readonly runs: number
  /** Concurrent runs of each host. */
  readonly runsMax: number
  readonly say: (text: string) => void
}

/** The only host whose runs may be lost: it is killed with its keeper. */
const lostHost = "host-2"

/** The part of the runs that end between two disturbances. */
const share = 0.1

/** The exit code after SIGTERM. */
const drainedCodeWanted = 143

/** Attempts of a run whose host is killed. */
const attemptsMax = 3

/** When a record says that the sandbox of a run was there. */
const Listed = Schema.fromJsonString(
  Schema.Array(
    Schema.Struct({
      runId: Schema.String,
      startedAt: Schema.String,
      endedAt: Schema.optional(Schema.String)
    })
  )
)

/** The most of these intervals that overlap at one time. */
const overlap = (intervals: ReadonlyArray<readonly [from: number, to: number]>): number => {
  const changes = intervals.flatMap(([from, to]) => [[from, 1] as const, [to, -1] as const])
  let most = 0
  let now = 0
  for (const [, change] of changes.toSorted(([one, a], [other, b]) => one - other || a - b)) {
    now += change
    most = Math.max(most, now)
  }
  return most
}

export const run = Effect.fnUntraced(function* ({ runs, runsMax, say }: TrialOptions) {
  const cli = yield* CliProcess
  const postgres = yield* PostgresServer.acquire
  yield* postgres.database("runs")
  const shared = { COGNI_DATABASE_URL: postgres.url("runs") }
  const world = yield* DurableWorld.make(cli, shared)
  const temporal = yield* TemporalDevServer.acquire
  const hosts = yield* Effect.forEach(
    ["host-1", lostHost, "host-3"],
    (name) =>
      DurableHost.acquire(cli, world, { name, temporal, runsMax, database: shared.COGNI_DATABASE_URL }),
    { concurrency: 3 }
  )
  const [drained, killed, cut] = hosts as [
    DurableHost.DurableHost,
    DurableHost.DurableHost,
    DurableHost.DurableHost
  ]
  say("three hosts take runs")

  const client = yield* DurableRuns.make({
    address: temporal,
    namespace: "default",
    taskQueue: "cogni-sandbox",
    isSearchable: true
  })
  const runIds = Array.from({ length: runs }, (_, index) => `run-hosts-${index}`)
  const outcomes = new Map<string, DurableOutcome>()
  const begun = performance.now()
  yield* Effect.forEach(runIds, (runId) => client.submit({ ...world.run(runId), attemptsMax }), {
    concurrency: 8,
    discard: true
  })
  const ending = yield* Effect.forkChild(
    Effect.forEach(
      runIds,
      (runId) => Effect.map(client.wait(runId), (outcome) => void outcomes.set(runId, outcome)),
      { concurrency: "unbounded", discard: true }
    )
  )
  /** Waits until some more runs have ended and a host has one, and tells what is done to it now. */
  const disturbed = Effect.fnUntraced(function* (host: DurableHost.DurableHost, what: string) {
    const wanted = Math.min(runs, outcomes.size + Math.ceil(runs * share))
    yield* Await.until(
      `${wanted} runs have ended`,
      Effect.sync(() => outcomes.size >= wanted)
    )
    yield* Await.until(
      `${host.name} has a run`,
      Effect.map(host.labelled, ({ length }) => length > 0 || outcomes.size === runs)
    )
    say(`${outcomes.size} have ended: ${host.name} ${what}`)
  })

  yield* disturbed(drained, "is drained")
  const { code: drainedCode } = yield* drained.drain
  yield* drained.startWorker
  yield* disturbed(killed, "loses its worker")
  yield* killed.killWorker
  yield* killed.startWorker
  yield* disturbed(cut, "is cut off")
  yield* cut.cutOff
  yield* disturbed(drained, `goes on, and ${cut.name} is connected again`)
  yield* cut.reconnect
  yield* disturbed(killed, "is killed with its keeper")
  yield* killed.kill
  yield* killed.start
  yield* Fiber.join(ending)
  const seconds = (performance.now() - begun) / 1000
  say(`all have ended`)

  const attempts = [...outcomes.values()].flatMap((outcome) => outcome.attempts)
  const listed = yield* cli.run(["ps", "--all", "--output", "json"], { env: shared })
  const records = yield* Schema.decodeUnknownEffect(Listed)(listed.stdout.toString("utf8")).pipe(Effect.orDie)
  const left = yield* Effect.forEach(hosts, ({ labelled }) => labelled)
  return {
    world,
    outcomes,
    attempts,
    drainedCode,
    seconds,
    left: left.flat(),
    /** The most runs that each host had at one time. */
    atOnce: new Map(hosts.map(({ name }) => [name, atOnce(name, attempts, records)]))
  }
})

export type Trial = Effect.Success<ReturnType<typeof run>>

/** The message of a failed assertion. */
const complaintOf = <R>(
  check: Effect.Effect<unknown, unknown, R>
): Effect.Effect<ReadonlyArray<string>, never, R> =>
  Effect.map(Effect.exit(check), (exit) =>
    Exit.isSuccess(exit) ? [] : [(Cause.squash(exit.cause) as Error).message]
  )

/** Judges one run: it ended, and its commits were delivered once. */
const judgeRun = ({ world }: Trial, { attempts, reason, runId, status }: DurableOutcome) =>
  Effect.gen(function* () {
    assert.include(["succeeded", "lost"], status, `${runId}: ${reason}`)
    for (const { host, status: its } of attempts)
      if (its !== "succeeded") assert.strictEqual(host, lostHost, `${runId} was lost on a host that lives`)
    if (status === "succeeded") yield* world.isDelivered(attempts.map((one) => one.runId))
  })

/** Judges one attempt: its cost is what the upstream was asked for. */
const judgeAttempt = (paid: ReadonlyMap<string, number>, { runId, spend }: AttemptReport) =>
  Effect.sync(() => {
    if (spend.isFinal) assert.strictEqual(spend.calls, paid.get(runId) ?? 0, `calls of ${runId}`)
  })

/** Returns what is wrong: each run must end once, be paid once and be delivered once, and no host have too many. */
export const judge = Effect.fnUntraced(function* (
  trial: Trial,
  { runs, runsMax }: TrialOptions
): Effect.fn.Return<ReadonlyArray<string>> {
  const { atOnce: hosts, attempts, drainedCode, left, outcomes, world } = trial
  const paid = yield* world.callsByRun
  const ids = attempts.map(({ runId }) => runId)
  const whole = Effect.sync(() => {
    assert.strictEqual(outcomes.size, runs)
    assert.strictEqual(drainedCode, drainedCodeWanted, "the drained worker failed")
    assert.lengthOf(new Set(ids), ids.length, "an attempt is in two outcomes")
    assert.includeMembers(ids, [...paid.keys()], "a run asked the model, and is in no outcome")
    assert.deepStrictEqual(left, [], "left behind")
  })
  const capacity = [...hosts].map(([name, most]) =>
    Effect.sync(() => {
      assert.isAbove(most, 0, `${name} had no run`)
      assert.isAtMost(most, runsMax, `${name} had too many runs at one time`)
    })
  )
  const checks: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
    whole,
    ...capacity,
    world.isPaidOnce,
    world.isAskedOnce,
    ...attempts.map((attempt) => judgeAttempt(paid, attempt)),
    ...[...outcomes.values()].map((outcome) => judgeRun(trial, outcome))
  ]
  return (yield* Effect.forEach(checks, complaintOf)).flat()
})

const atOnce = (
  name: string,
  attempts: ReadonlyArray<AttemptReport>,
  records: typeof Listed.Type
): number => {
  const own = new Set(attempts.filter(({ host }) => host === name).map(({ runId }) => runId))
  return overlap(
    records
      .filter(({ runId }) => own.has(runId))
      .map(({ endedAt, startedAt }) => [
        Date.parse(startedAt),
        endedAt === undefined ? Infinity : Date.parse(endedAt)
      ])
  )
}
