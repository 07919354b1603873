/** Measurements of durable runs: in turns with plain ones, and beside runs that wait for a place. */
import { Effect, Schedule } from "effect"
import { cpus } from "node:os"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"
import * as World from "./DurableWorld.ts"
import * as Samples from "./Samples.ts"

const warmUps = 3

/** Time for the first steps of 1,000 runs. On a busy machine, they took 24 seconds. */
const firstStepsSeconds = 30

/** Concurrent submissions of the runs that wait. */
const submittersTotal = 20

export interface Turns {
  readonly plain: ReadonlyArray<World.Timed>
  readonly durable: ReadonlyArray<World.Timed>
  /** Time until the worker takes runs, in milliseconds. */
  readonly workerMillis: number
}

/** Measures plain and durable runs in turns. */
export const inTurns = Effect.fnUntraced(function* (makeKeeper: World.MakeKeeper, samples: number) {
  const place = yield* World.directory
  const keeper = yield* makeKeeper(place)
  const address = yield* TemporalDevServer.acquire
  const client = yield* World.client(address, keeper)
  const { millis: workerMillis } = yield* World.worker(address, keeper, place, 4)
  const ways = {
    plain: (id: string) => World.plain(keeper, id),
    durable: (id: string) => World.durable(client, keeper, id)
  }
  const found = { plain: new Array<World.Timed>(), durable: new Array<World.Timed>() }
  for (let round = -warmUps; round < samples; round++) {
    for (const way of Samples.rotate(["plain", "durable"] as const, round + warmUps)) {
      const one = yield* Effect.promise(() => ways[way](`bench-${way}-${round + warmUps}`))
      if (round >= 0) found[way].push(one)
    }
  }
  return { ...found, workerMillis } satisfies Turns
}, Effect.scoped)

export interface Beside {
  readonly queued: number
  /** Durations of the runs, by their records. */
  readonly runs: Samples.Summary
  /** From the end of a run to the start of the next, if others wait. */
  readonly turnaround?: Samples.Summary
  /** Busy cores of this machine meanwhile. */
  readonly cores: number
}

/** Measures runs of a host with one place, one after another: alone, and while others wait for that place. */
export const beside = Effect.fnUntraced(function* (
  makeKeeper: World.MakeKeeper,
  runsTotal: number,
  queuedTotal: number
) {
  const place = yield* World.directory
  const keeper = yield* makeKeeper(place)
  const address = yield* TemporalDevServer.acquire
  const client = yield* World.client(address, keeper)
  yield* World.worker(address, keeper, place, 1)
  for (let index = 0; index < warmUps; index++)
    yield* Effect.promise(() => World.durable(client, keeper, `bench-warm-${index}`))
  const aloneCores = yield* measuredCores
  const alone: Array<World.Timed> = []
  for (let index = 0; index < runsTotal; index++)
    alone.push(yield* Effect.promise(() => World.durable(client, keeper, `bench-alone-${index}`)))
  const cores = yield* aloneCores
  const ids = Array.from({ length: queuedTotal + runsTotal }, (_, index) => `bench-queued-${index}`)
  yield* Effect.forEach(ids, (id) => Effect.orDie(client.runs.submit(client.run(id, keeper.request))), {
    concurrency: submittersTotal,
    discard: true
  })
  // Not measured: the first steps of these runs, which find that there is no room.
  yield* Effect.sleep(`${firstStepsSeconds} seconds`)
  const before = (yield* endedAfter(keeper, (yield* endedRuns(keeper)).length + 1)).length
  const queuedCores = yield* measuredCores
  const queued = (yield* endedAfter(keeper, before + runsTotal)).slice(before, before + runsTotal)
  const gaps = queued.slice(1).map(({ started }, index) => started - queued[index]!.ended)
  return [
    { queued: 0, runs: Samples.summarize(alone.map(({ ended, started }) => ended - started)), cores },
    {
      queued: queuedTotal,
      runs: Samples.summarize(queued.map(({ ended, started }) => ended - started)),
      turnaround: Samples.summarize(gaps),
      cores: yield* queuedCores
    }
  ] satisfies ReadonlyArray<Beside>
}, Effect.scoped)

const endedRuns = (keeper: World.Keeper) => Effect.promise(() => World.endedRuns(keeper))

/** The runs of a keeper, when at least this many have ended. */
const endedAfter = (keeper: World.Keeper, atLeast: number) =>
  endedRuns(keeper).pipe(
    Effect.repeat({ schedule: Schedule.spaced("1 second"), while: (all) => all.length < atLeast }),
    Effect.andThen(endedRuns(keeper))
  )

/** Processor time of this machine so far, in milliseconds. */
const busyMillis = (): number =>
  cpus().reduce((sum, { times: { irq, nice, sys, user } }) => sum + irq + nice + sys + user, 0)

/** Begins to measure, and returns how to know the busy cores since. */
const measuredCores = Effect.sync(() => {
  const before = { busy: busyMillis(), at: performance.now() }
  return Effect.sync(
    () => Math.round(((busyMillis() - before.busy) / (performance.now() - before.at)) * 100) / 100
  )
})
