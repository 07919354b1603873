/**
 * `./dev bench server`: the cost of the server's answers with a database, and of the events of one run.
 *
 *     --seconds N     duration of each row of reads in each round (default 2)
 *     --events N      pieces of the long run (default 200000)
 *     --sqlite        SQLite instead of PostgreSQL
 *     --output DIR    directory for server.json and server.md (default test/bench/results)
 *
 * The server is a separate process. This process sends requests over 16 persistent connections, each as soon as the
 * last one on its connection is answered. Events travel from the lines of an agent through its reader, the provider and
 * the stream to this process, which counts them. No engine is involved.
 *
 * Rows that are compared are measured in rounds, in an order that rotates, so that neither a slow moment of the machine
 * nor the position decides. The median of the rounds counts, and the results have the smallest and the largest, too.
 *
 * The bar for the record of a run holds for requests at the same time for the same run, as those of the readers of a
 * run: they share its reading. Without sharing, PostgreSQL is the limit: each answer needs three questions to it, which
 * take processor time of both processes. The row of different runs has a bar of its own for that.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Effect } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { Agent, type IncomingMessage, request } from "node:http"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as PostgresServer from "../harness/PostgresServer.ts"
import * as Followers from "./Followers.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"
import { type Served, serve, told } from "./ServerChild.ts"
import type { Ready } from "./ServerProcess.ts"

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "2" },
    events: { type: "string", default: "200000" },
    sqlite: { type: "boolean", default: false },
    output: { type: "string" }
  }
})
const seconds = Number(options.seconds)
const eventsTotal = Number(options.events)
const load = Math.round((loadavg()[0] ?? 0) * 10) / 10

const connections = 16

/** Recorded runs in the database, requests of each latency, lines of a followed run, and its readers. */
const recordedRuns = 10_000
const latencySamples = 200
const pacedLines = 300
const readersTotal = 200

/** Measurements of each row that is compared. Odd, so that the median is one of them. */
const rounds = 5

const agent = new Agent({ keepAlive: true, maxSockets: connections + 1 })

const ask = ({ token, url }: Ready, path: string, body?: object): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const method = body === undefined ? "GET" : "POST"
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
    const asked = request(`${url}${path}`, { agent, method, headers }, resolve)
    asked.on("error", reject)
    asked.end(body === undefined ? undefined : JSON.stringify(body))
  })

const drained = (answer: IncomingMessage): Promise<number> =>
  new Promise((resolve, reject) => {
    let bytes = 0
    answer.on("data", (piece: Buffer) => (bytes += piece.length))
    answer.on("error", reject)
    answer.on("end", () => resolve(bytes))
  })

/** The median of the rounds, and the smallest and the largest. */
interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
}

const spreadOf = (values: ReadonlyArray<number>, digits: number): Spread => {
  const sorted = values
    .map((value) => Math.round(value * 10 ** digits) / 10 ** digits)
    .toSorted((one, other) => one - other)
  return { median: Samples.percentile(sorted, 0.5), min: sorted[0]!, max: sorted.at(-1)! }
}

const between = ({ max, min }: Spread) => `${min}–${max}`

/** Measures each of some works once in a round, in an order that rotates. Returns what was found of each. */
const inRounds = async <A>(
  works: ReadonlyArray<() => Promise<A>>
): Promise<ReadonlyArray<ReadonlyArray<A>>> => {
  const found = works.map((): Array<A> => [])
  const positions = works.map((_, position) => position)
  for (let round = 0; round < rounds; round++)
    for (const position of Samples.rotate(positions, round)) found[position]!.push(await works[position]!())
  return found
}

/** A kind of request. `path` returns the path of the next one. */
interface Asked {
  readonly name: string
  readonly path: () => string
}

interface ReadRound {
  readonly samples: ReadonlyArray<number>
  readonly perSecond: number
  readonly bytes: number
  readonly cpuMillis: number
}

interface Reads {
  readonly name: string
  readonly perSecond: Spread
  readonly p50: number
  readonly p99: number
  readonly bytes: number
  /** CPU time of the server's process for each request. It is valid on a busy machine, too. */
  readonly cpuMillis: number
}

/** Sends as many requests as the connections allow, for some time. */
const reads = async (server: Served, path: () => string, forSeconds = seconds): Promise<ReadRound> => {
  const samples: Array<number> = []
  const { cpuMillis: before } = await told(server)
  const until = performance.now() + forSeconds * 1000
  let bytes = 0
  const one = async (): Promise<void> => {
    while (performance.now() < until) {
      const before = performance.now()
      const asked = path()
      const answer = await ask(server, asked)
      bytes = await drained(answer)
      if (answer.statusCode !== 200) throw new Error(`${asked}: ${answer.statusCode}`)
      samples.push(performance.now() - before)
    }
  }
  await Promise.all(Array.from({ length: connections }, one))
  const { cpuMillis: after } = await told(server)
  const cpuMillis = (after - before) / samples.length
  return { samples, perSecond: samples.length / forSeconds, bytes, cpuMillis }
}

const readsOf = async (server: Served, all: ReadonlyArray<Asked>): Promise<ReadonlyArray<Reads>> => {
  const found = await inRounds(
    all.map(
      ({ path }) =>
        () =>
          reads(server, path)
    )
  )
  return found.map((of, position) => {
    const { p50, p99 } = Samples.summarize(of.flatMap(({ samples }) => samples))
    const perSecond = spreadOf(
      of.map((round) => round.perSecond),
      0
    )
    const { median: cpuMillis } = spreadOf(
      of.map((round) => round.cpuMillis),
      3
    )
    return { name: all[position]!.name, perSecond, p50, p99, bytes: of.at(-1)!.bytes, cpuMillis }
  })
}

interface Latency {
  readonly name: string
  readonly p50: number
  readonly p95: number
}

/** Sends requests one after another. */
const latency = async (server: Served, name: string, path: string): Promise<Latency> => {
  const samples: Array<number> = []
  for (let sent = 0; sent < latencySamples + 20; sent++) {
    const before = performance.now()
    const answer = await ask(server, path)
    await drained(answer)
    if (answer.statusCode !== 200) throw new Error(`${path}: ${answer.statusCode}`)
    if (sent >= 20) samples.push(performance.now() - before)
  }
  const { p50, p95 } = Samples.summarize(samples)
  return { name, p50, p95 }
}

interface FollowedRound {
  readonly seconds: number
  readonly cpuMillis: number
  readonly events: number
}

interface Followed {
  readonly readers: number
  readonly seconds: Spread
  readonly cpuMillis: Spread
  readonly events: number
}

/** Runs an agent that writes a line every 10 ms, with readers who follow it to its end. */
const followed = async (server: Served, readers: number): Promise<FollowedRound> => {
  const { cpuMillis: before } = await told(server)
  const start = performance.now()
  const answer = await ask(server, "/api/v1/ai/chat", {
    ...ofPieces(1),
    model: `paced-${pacedLines}`
  })
  const runId = String(answer.headers["x-cogni-run-id"])
  const following = Followers.follow(server, runId, readers)
  await drained(answer)
  const elapsed = (performance.now() - start) / 1000
  const seen = Followers.same(await following)
  const { cpuMillis: after } = await told(server)
  return { seconds: elapsed, cpuMillis: after - before, events: seen }
}

const followsOf = async (server: Served, counts: ReadonlyArray<number>): Promise<ReadonlyArray<Followed>> => {
  const found = await inRounds(counts.map((readers) => () => followed(server, readers)))
  return found.map((of, position) => ({
    readers: counts[position]!,
    seconds: spreadOf(
      of.map((round) => round.seconds),
      2
    ),
    cpuMillis: spreadOf(
      of.map((round) => round.cpuMillis),
      0
    ),
    events: of.at(-1)!.events
  }))
}

interface Events {
  readonly events: number
  readonly perSecond: number
  readonly megabytes: number
  readonly growthMegabytes: number
}

const ofPieces = (count: number) => ({
  graphId: "sandbox:claude-code",
  model: `bench-${count}`,
  messages: [{ role: "user", content: "say something" }]
})

/** Starts one run with this number of pieces, and counts its events as they arrive. */
const events = async (server: Served, count: number): Promise<Events & { readonly runId: string }> => {
  const { memoryBytes: before } = await told(server)
  const start = performance.now()
  const answer = await ask(server, "/api/v1/ai/chat", ofPieces(count))
  let seen = 0
  let bytes = 0
  let rest = Buffer.alloc(0)
  const mark = Buffer.from("\nevent: ")
  answer.on("data", (piece: Buffer) => {
    bytes += piece.length
    const text = Buffer.concat([rest, piece])
    for (let at = text.indexOf(mark); at !== -1; at = text.indexOf(mark, at + 1)) seen += 1
    // A mark that is split is found with the next piece.
    rest = text.subarray(-(mark.length - 1))
  })
  await new Promise((resolve) => answer.once("end", resolve))
  const elapsed = (performance.now() - start) / 1000
  if (seen < count) throw new Error(`${seen} events of ${count}`)
  const { memoryBytes: after } = await told(server)
  return {
    events: seen,
    perSecond: Math.round(seen / elapsed),
    megabytes: Math.round(bytes / 1e6),
    growthMegabytes: Math.round((after - before) / 1e6),
    runId: String(answer.headers["x-cogni-run-id"])
  }
}

const measured = async (server: Served) => {
  // The first run and the first reads warm up the compiler.
  const large = await events(server, 2000)
  const small = await events(server, 20)
  await reads(server, () => "/api/v1/ai/agents", 1)
  await events(server, 20_000)
  let next = 0
  const rows = await readsOf(server, [
    { name: "health", path: () => "/health" },
    { name: "catalog", path: () => "/api/v1/ai/agents" },
    { name: "record of a run", path: () => `/api/v1/runs/${small.runId}` },
    { name: "record of a run that wrote 350 KB", path: () => `/api/v1/runs/${large.runId}` },
    {
      name: "records of different runs",
      path: () => `/api/v1/runs/${server.recorded[next++ % server.recorded.length]}`
    },
    { name: "list of runs", path: () => "/api/v1/runs" }
  ])
  const lists = [
    await latency(server, "list of 20 of 10,000 runs", "/api/v1/runs"),
    await latency(server, "list of 100", "/api/v1/runs?limit=100"),
    await latency(server, "list of the failed ones", "/api/v1/runs?status=failed&reason=OomKilled"),
    await latency(server, "list of an agent and a model", "/api/v1/runs?agent=codex&model=bench-3")
  ]
  await followed(server, readersTotal)
  const follows = await followsOf(server, [0, readersTotal])
  const short = await events(server, Math.round(eventsTotal / 4))
  const long = await events(server, eventsTotal)
  return { follows, lists, rows, short, long }
}

const report = Effect.fnUntraced(function* (database: string, found: Awaited<ReturnType<typeof measured>>) {
  const { follows, lists, long, rows, short } = found
  const of = (name: string) => rows.find((row) => row.name === name)?.perSecond.median ?? 0
  const bars: ReadonlyArray<Report.Bar> = [
    { name: "catalog, requests a second", value: of("catalog"), atLeast: 2000 },
    { name: "record of a run, requests a second", value: of("record of a run"), atLeast: 2000 },
    {
      name: "records of different runs, requests a second",
      value: of("records of different runs"),
      atLeast: 500
    },
    { name: "slowest list of runs, p95 in ms", value: Math.max(...lists.map(({ p95 }) => p95)), atMost: 50 },
    {
      name: `duration of a run with ${readersTotal} readers, compared with none`,
      value: Math.round((follows[1]!.seconds.median / follows[0]!.seconds.median) * 100) / 100,
      atMost: 1.1
    },
    { name: "events a second of one run", value: long.perSecond, atLeast: 20_000 },
    {
      name: "memory after four times the events, MB more",
      value: long.growthMegabytes - short.growthMegabytes,
      atMost: 64
    }
  ]
  const machine = {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    "load before": load,
    rounds,
    database,
    connections
  }
  const takenAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const text = [
    `One server process and one client process. Times in milliseconds. Every request presents a grant, which is looked up in the database. ${rounds} rounds, of which the median counts.`,
    Report.table(
      ["read", "requests/s", "in the rounds", "p50", "p99", "CPU, ms each", "bytes"],
      rows.map(({ bytes, cpuMillis, name, p50, p99, perSecond }) => [
        name,
        perSecond.median,
        between(perSecond),
        p50,
        p99,
        cpuMillis,
        bytes
      ])
    ),
    `Lists of an account with two thirds of ${recordedRuns} recorded runs, one request after another.`,
    Report.table(
      ["list", "p50", "p95"],
      lists.map(({ name, p50, p95 }) => [name, p50, p95])
    ),
    `A run that writes ${pacedLines} lines, one every 10 ms, and readers that follow its events to the end. They share a process with the run.`,
    Report.table(
      [
        "readers",
        "duration of the run, s",
        "in the rounds",
        "CPU of the server, ms",
        "in the rounds",
        "events each"
      ],
      follows.map(({ cpuMillis, events: seen, readers, seconds: took }) => [
        readers,
        took.median,
        between(took),
        cpuMillis.median,
        between(cpuMillis),
        seen
      ])
    ),
    "Events of one run, from the lines of its agent to the process that reads the stream. Memory is the growth of the server's resident memory, after a garbage collection.",
    Report.table(
      ["events", "events/s", "MB of stream", "memory, MB more"],
      [short, long].map((one) => [one.events, one.perSecond, one.megabytes, one.growthMegabytes])
    ),
    Report.barTable(bars),
    Report.taken({ takenAt, machine })
  ].join("\n\n")
  const { runId: _short, ...shortTold } = short
  const { runId: _long, ...longTold } = long
  const data = { takenAt, machine, rows, lists, follows, events: [shortTold, longTold], bars }
  Report.publish({
    name: "server",
    title: "The server, measured",
    text,
    data,
    bars,
    directory: options.output ?? join(import.meta.dirname, "results")
  })
})

const main = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-bench-server-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const postgres = options.sqlite ? undefined : yield* PostgresServer.acquire
  if (postgres !== undefined) yield* postgres.database("bench")
  const database = postgres?.url("bench") ?? join(directory, "cogni.db")
  const server = yield* serve({ database, directory, recorded: recordedRuns })
  const found = yield* Effect.promise(() => measured(server))
  yield* report(postgres === undefined ? "SQLite" : "PostgreSQL", found)
})

NodeRuntime.runMain(Effect.scoped(main))
