/**
 * `./dev bench durable`: the cost of a run through Temporal next to the same run by its keeper, runs that wait for a
 * place, and a model of many hosts.
 *
 *     --samples N     samples of each row, at least 30 (default 30)
 *     --queued N      runs that wait for a place, at least 100 (default 1000)
 *     --quick         5 samples and 100 waiting runs, to check that it works; not for measurements
 *     --output DIR    directory for durable.json and durable.md (default test/bench/results; none with --quick)
 *
 * The client stays connected. A plain run is started by its keeper's HTTP API, followed by its events to the end, and
 * then its record is read. A durable run is submitted, and its outcome awaited. Both take turns. Temporal's server for
 * development, the keeper and the worker are processes of this machine. Exits with 1 if a bar is missed.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Effect } from "effect"
import { availableParallelism, loadavg, release } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as DurableFleet from "./DurableFleet.ts"
import * as DurableServer from "./DurableServer.ts"
import * as DurableTurns from "./DurableTurns.ts"
import * as World from "./DurableWorld.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: {
    samples: { type: "string" },
    queued: { type: "string" },
    quick: { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const samples = options.quick ? 5 : Math.max(30, Number(options.samples ?? 30) || 30)
const queuedTotal = options.quick ? 100 : Math.max(100, Number(options.queued ?? 1000) || 1000)
const load = Math.round((loadavg()[0] ?? 0) * 10) / 10

/** Lines of a paced run, one every 10 ms: in turns with plain runs, and beside runs that wait. */
const shortLines = 20
const longLines = 150

/** Runs beside which others wait, and as many alone. */
const besideTotal = options.quick ? 3 : 10

/** Runs whose heartbeats are measured. */
const beatingTotal = options.quick ? 20 : 200

const overheadMillisMax = 150

const sealed = "sealed run with a model"
const paced = "run without an engine"

/** Rows of one kind of run, and what the way over Temporal adds at its median. */
const compared = (name: string, { durable, plain, workerMillis }: DurableTurns.Turns) => {
  const parts = {
    "whole run": ({ total }: World.Timed) => total,
    "request to start": ({ started }: World.Timed) => started,
    "end to outcome": ({ ended, total }: World.Timed) => total - ended
  }
  const rows = Object.entries(parts).flatMap(([part, of]) =>
    Object.entries({ plain, durable }).map(([way, runs]) => ({
      name: `${name}: ${part}`,
      way,
      ...Samples.summarize(runs.map(of))
    }))
  )
  const added = (part: keyof typeof parts): number => {
    const [before, after] = rows.filter((one) => one.name === `${name}: ${part}`)
    return Math.round((after!.p50 - before!.p50) * 10) / 10
  }
  const [start, end, whole] = [added("request to start"), added("end to outcome"), added("whole run")]
  return { name, rows, start, end, whole, workerMillis: Math.round(workerMillis) }
}

/** The first is how the server is installed. See the docs. */
const limits = {
  "one process of the frontend": DurableFleet.frontendLimits,
  "a namespace of Temporal Cloud": DurableFleet.cloudLimits
} satisfies Readonly<Record<string, DurableFleet.Limits>>

const fleet: DurableFleet.Fleet = { hosts: 10_000, runsMax: 8, utilization: 0.7, runSeconds: 600 }

/** How busy hosts are, and how many runs wait. */
const rushes = [
  { utilization: 0.7, queued: 0 },
  { utilization: 0.95, queued: 0 },
  { utilization: 0.98, queued: 10_000 }
]

/** The model of many hosts. */
const modelled = () => ({
  fleet,
  load: DurableFleet.load(fleet, DurableFleet.costs),
  breaks: Object.entries(limits).flatMap(([server, its]) =>
    DurableFleet.breaks(fleet, DurableFleet.costs, its).map((one) => ({ server, ...one }))
  ),
  placements: rushes.flatMap(({ queued, utilization }) =>
    (["any", "withRoom"] as const).map((policy) => ({
      policy,
      utilization,
      queued,
      ...DurableFleet.place({ ...fleet, utilization, queued, policy, seconds: 600, seed: 1 })
    }))
  )
})

const measured = Effect.gen(function* () {
  const say = (text: string) => Effect.sync(() => process.stderr.write(`${text}\n`))
  const makePaced = (lines: number) => (place: string) => World.pacedKeeper(place, lines)
  yield* say("plain and durable runs in turns")
  const turns = [
    compared(paced, yield* DurableTurns.inTurns(makePaced(shortLines), samples)),
    compared(sealed, yield* DurableTurns.inTurns(World.sealedKeeper, samples))
  ]
  yield* say(`${queuedTotal} runs wait`)
  const waiting = [
    { name: paced, rows: yield* DurableTurns.beside(makePaced(longLines), besideTotal, queuedTotal) },
    { name: sealed, rows: yield* DurableTurns.beside(World.sealedKeeper, besideTotal, queuedTotal) }
  ]
  yield* say("the cost of heartbeats")
  const server = yield* DurableServer.measure(beatingTotal)
  return { turns, waiting, server, model: modelled() }
})

type Measured = Effect.Success<typeof measured>

const barsOf = ({ turns, waiting }: Measured): ReadonlyArray<Report.Bar> => [
  ...turns.flatMap(({ end, name, start, whole: all }) => [
    {
      name: `${name}: durable over plain, both parts, p50 in ms`,
      value: Math.round((start + end) * 10) / 10,
      atMost: overheadMillisMax
    },
    { name: `${name}: durable over plain, whole run, p50 in ms`, value: all, atMost: overheadMillisMax }
  ]),
  ...waiting.map(({ name, rows: [alone, queued] }) => ({
    name: `${name}: duration beside ${queuedTotal} waiting runs, compared with none, p50`,
    value: Math.round((queued!.runs.p50 / alone!.runs.p50) * 100) / 100,
    atMost: 1.1
  }))
]

const whole = (value: number): string => Math.round(value).toLocaleString("en-US")

const loadWords: Readonly<Record<keyof DurableFleet.ServerLoad, string>> = {
  running: "runs under way",
  runs: "runs that start, in a second",
  activityPolls: "open polls for activities",
  workflowPolls: "open polls for workflow tasks",
  partitionPolls: "of these, on each partition of the shared queue",
  workflowTasks: "workflow tasks a second",
  historyEvents: "history events a second",
  heartbeats: "heartbeats a second",
  steps: "writes of workflow states a second, without heartbeats",
  writes: "writes of workflow states a second",
  visibilityWrites: "writes of search attributes a second",
  requests: "requests a second",
  gigabytesOfDay: "GB of histories a day"
}

const modelTables = ({ model, server }: Measured) => [
  `Model of ${whole(fleet.hosts)} hosts with ${fleet.runsMax} places, of which ${fleet.utilization * 100} % are taken, by runs of ${fleet.runSeconds / 60} minutes.`,
  Report.table(
    ["load on Temporal's server", ""],
    Object.entries(model.load).map(([name, value]) => [
      loadWords[name as keyof DurableFleet.ServerLoad],
      whole(value)
    ])
  ),
  `Measured on ${server.runs} runs: a heartbeat takes ${server.heartbeatMillis} ms of a core of the server for development, and a run ${server.runMillis} ms. At this size, heartbeats alone would keep ${whole((model.load.heartbeats * server.heartbeatMillis) / 1000)} cores busy, and runs ${whole((model.load.runs * server.runMillis) / 1000)}.`,
  Report.table(
    ["limit of its default configuration", "of", "is", "reached with hosts"],
    model.breaks.map(({ hosts, limit, name, server: of }) => [
      loadWords[name],
      of,
      whole(limit),
      whole(hosts)
    ])
  ),
  "Placement, in a simulation of ten minutes. `any`: each run asks hosts again and again. `withRoom`: only hosts with room ask for runs.",
  Report.table(
    [
      "policy",
      "places taken",
      "waiting",
      "p50, s",
      "p99, s",
      "max load, tasks/s",
      "placed before an older run"
    ],
    model.placements.map((one) => [
      one.policy,
      `${Math.round(one.utilization * 100)} %`,
      whole(one.queued),
      one.waitSeconds.p50,
      one.waitSeconds.p99,
      whole(one.tasksPerSecond),
      `${Math.round(one.overtaken * 100)} %`
    ])
  )
]

const textOf = (found: Measured, bars: ReadonlyArray<Report.Bar>): ReadonlyArray<string> => [
  "Milliseconds. Plain and durable runs take turns. The client stays connected.",
  Report.table(
    ["", "way", "n", "min", "p50", "p95", "p99"],
    found.turns.flatMap(({ rows }) =>
      rows.map(({ count, min, name, p50, p95, p99, way }) => [name, way, count, min, p50, p95, p99])
    )
  ),
  Report.table(
    ["durable over plain, p50", "request to start", "end to outcome", "both", "whole run"],
    found.turns.map(({ end, name, start, whole: all }) => [
      name,
      start,
      end,
      Math.round((start + end) * 10) / 10,
      all
    ])
  ),
  "A host with one place runs one after another, alone and while others wait for that place. The turnaround is the time from the end of one to the start of the next.",
  Report.table(
    ["", "waiting", "n", "duration p50", "p95", "turnaround p50", "busy cores"],
    found.waiting.flatMap(({ name, rows }) =>
      rows.map(({ cores, queued, runs, turnaround }) => [
        name,
        queued,
        runs.count,
        runs.p50,
        runs.p95,
        turnaround?.p50 ?? "",
        cores
      ])
    )
  ),
  `A worker takes runs ${found.turns.map(({ workerMillis }) => workerMillis).join(" and ")} ms after its start, from its sources.`,
  Report.barTable(bars),
  ...modelTables(found)
]

const main = Effect.gen(function* () {
  const found = yield* measured
  const bars = barsOf(found)
  const takenAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const machine = {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    "load before": load
  }
  Report.publish({
    name: "durable",
    title: "Durable runs, measured",
    text: [...textOf(found, bars), Report.taken({ takenAt, machine })].join("\n\n"),
    data: { takenAt, machine, ...found, bars },
    bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
})

NodeRuntime.runMain(main)
