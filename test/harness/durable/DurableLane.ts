/**
 * One host as Temporal sees it, with a queue of its own, so that it has one run at a time. Its worker can be stopped at
 * a moment of that run, killed there, and started again.
 */
import type { DurableRun } from "@cogni/sandbox-temporal/DurableRun"
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import type { TemporalFailed } from "@cogni/sandbox-temporal/TemporalServer"
import { Effect, Scope } from "effect"
import type { CliProcess } from "../CliProcess.ts"
import * as Pace from "../Pace.ts"
import * as KeeperDoor from "./KeeperDoor.ts"
import * as Moment from "./Moment.ts"
import * as TemporalDoor from "./TemporalDoor.ts"

export interface LaneOptions {
  readonly name: string
  /** Address of the Temporal server. */
  readonly temporal: string
  /** URL of the keeper. */
  readonly keeper: string
  readonly tokenFile: string
}

/** Calls a server again that did not answer in time, because the machine is busy. */
const patiently = <A>(call: Effect.Effect<A, TemporalFailed>) =>
  Effect.retry(call, { while: ({ isRetryable }) => isRetryable, times: 5 })

export const acquire = Effect.fnUntraced(function* (
  cli: CliProcess["Service"],
  { keeper, name, temporal, tokenFile }: LaneOptions
) {
  const watcher = Moment.watcher()
  const door = yield* TemporalDoor.acquire(temporal, watcher.watch)
  const url = yield* KeeperDoor.acquire(keeper, watcher.watch)
  const runs = yield* DurableRuns.make({
    address: temporal,
    namespace: "default",
    taskQueue: name,
    isSearchable: true
  })
  const argv = ["--name", name, "--queue", name, "--keeper", url, "--token-file", tokenFile]
  // A worker that follows a killed one outlives the test that killed it.
  const scope = yield* Effect.scope
  const start = Effect.gen(function* () {
    const started = yield* cli.start(["worker", ...argv, "--temporal", door.address])
    yield* started.said(/ takes runs$/mu)
    return started
  }).pipe(Scope.provide(scope))
  let worker = yield* start

  /** Waits until the worker is at a point. */
  const at = (point: Moment.Point, reached: Promise<void>) =>
    Effect.promise(() => reached).pipe(
      Effect.timeoutOrElse({
        duration: Pace.hangMillis / 4,
        orElse: () => Effect.die(new Error(`the worker of ${name} never reached: ${point.name}`))
      })
    )

  return {
    door,
    wait: (runId: string) => patiently(runs.wait(runId)),
    cancel: (runId: string) => patiently(runs.cancel(runId)),
    // A submission without an answer may have started the run.
    submit: (run: DurableRun) =>
      patiently(runs.submit(run)).pipe(
        Effect.catchIf(
          ({ reason }) => reason === "RunIdInUse",
          () => Effect.void
        )
      ),
    /** Does something, and settles when the worker is at a point. It stays there until `release`. */
    stopAt: <A, E>(point: Moment.Point, cause: Effect.Effect<A, E>) =>
      Effect.suspend(() => {
        const reached = watcher.stop(point)
        return Effect.andThen(cause, at(point, reached))
      }),
    release: Effect.sync(watcher.release),
    /** Kills the worker where it is, and starts the next one. */
    kill: Effect.gen(function* () {
      yield* worker.kill("SIGKILL")
      yield* worker.ended
      yield* Effect.sync(watcher.release)
      worker = yield* start
    })
  }
})

export type DurableLane = Effect.Success<ReturnType<typeof acquire>>
