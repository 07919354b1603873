/**
 * `./dev bench pool`: runs in sandboxes that waited for them, next to cold runs, with and without a network that was
 * ready, and to plain Docker.
 *
 *     PART…           only these parts: rows, claims (the rows of claims), trial, burst (default: all but claims)
 *     --samples N     samples of each row, at least 20 (default 40)
 *     --runs N        runs through the pool under kills, refusals and changes of the image (default 1000)
 *     --seed TEXT     seed of the plan of these runs (default pool-1)
 *     --quick         5 samples and 20 runs, to check that it works; not for measurements
 *     --output DIR    directory for pool.json and pool.md (default test/bench/results; none with --quick or a PART)
 *
 * Exits with 1 if a bar is missed.
 */
import { NodeRuntime } from "@effect/platform-node"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Workspace } from "@cogni/sandbox-core/Workspace"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostSandboxPool from "@cogni/sandbox-docker/HostSandboxPool"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import Docker from "dockerode"
import { type Context, Duration, Effect, Exit, Layer, Redacted, Scope, Stream } from "effect"
import { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { loadavg, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as PoolTrial from "../harness/pool/PoolTrial.ts"
import * as Contenders from "./Contenders.ts"
import * as Idle from "./Idle.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"
import * as Upstreams from "./Upstreams.ts"

const { positionals, values: options } = parseArgs({
  allowPositionals: true,
  options: {
    samples: { type: "string" },
    runs: { type: "string" },
    seed: { type: "string", default: "pool-1" },
    quick: { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const partNames = ["rows", "claims", "trial", "burst"] as const
const unknownPart = positionals.find((name) => !partNames.some((known) => known === name))
if (unknownPart !== undefined)
  throw new Error(`bench pool: ${unknownPart} is not one of ${partNames.join(", ")}`)

const includes = (part: (typeof partNames)[number]) =>
  positionals.length === 0 ? part !== "claims" : positionals.includes(part)

const samples = options.quick ? 5 : Math.max(20, Number(options.samples ?? 40) || 40)
const runsTotal = options.quick ? 20 : Math.max(20, Number(options.runs ?? 1000) || 1000)
/** Seconds within which the runs must have ended: far more than they take. */
const trialSecondsMax = 120 + 2 * runsTotal
const warmUps = 2
const atOnce = 16
const bursts = options.quick ? 1 : 10
/** OCI runtime of our runs; plain Docker keeps the engine's default. */
const engineRuntime = process.env["COGNI_ENGINE_RUNTIME"] || undefined
const image = process.env["COGNI_RUNTIME_IMAGE"] ?? "cogni-sandbox/runtime:latest"

const names = {
  cli: "docker run --rm, by the CLI",
  cold: "sealed run, cold",
  coldModel: "sealed run with a model, cold",
  joined: "sealed run, cold, in a ready network",
  joinedModel: "sealed run with a model, cold, in a ready network",
  pooled: "sealed run from the pool",
  pooledModel: "sealed run with a model, from the pool",
  coldDirectory: "sealed run in a directory of the caller's, cold",
  pooledDirectory: "sealed run in a directory of the caller's, from the pool",
  claim: "claim of a sandbox until the first byte of its program",
  claimDirectory: "claim of a sandbox with a directory until the first byte of its program"
} as const

const say = (text: string) => process.stderr.write(`${text}\n`)

const spec = (text: string): SandboxSpec.SandboxSpecInput => ({ image, argv: ["echo", text] })

const withModel: SandboxSpec.SandboxSpecInput = {
  ...spec("x"),
  llm: { model: "demo", identity: { billingAccountId: "bench" } }
}

/** Waits until sandboxes are ready. */
const ready = Effect.fnUntraced(function* (count: number) {
  const pool = yield* SandboxPool.SandboxPool
  while ((yield* pool.report).waiting.length < count) yield* Effect.sleep("5 millis")
  // The rest of a start must not be measured.
  yield* Effect.sleep("50 millis")
})

const millisOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = performance.now()
    yield* effect
    return performance.now() - before
  })

/** Seconds for which an interrupted benchmark waits for a run of plain Docker, which removes its own container. */
const lastRunSecondsMax = 10

/** Runs to the end also if the benchmark is interrupted. */
const toItsEnd = <A>(run: () => Promise<A>) =>
  Effect.suspend(() => {
    const running = run()
    const ended = Effect.promise(() => running)
    return Effect.onInterrupt(ended, () =>
      Effect.timeoutOption(Effect.interruptible(ended), Duration.seconds(lastRunSecondsMax))
    )
  })

const run = (input: SandboxSpec.SandboxSpecInput) =>
  SandboxRunner.SandboxRunner.use((runner) => runner.run(input))

const warm = (input: SandboxSpec.SandboxSpecInput) =>
  Effect.gen(function* () {
    yield* ready(1)
    const pool = yield* SandboxPool.SandboxPool
    const { hits } = yield* pool.report
    const millis = yield* millisOf(run(input))
    if ((yield* pool.report).hits !== hits + 1) return yield* Effect.die(new Error("the run started cold"))
    return millis
  })

/** Waits until networks are ready for cold runs. */
const networksReady = Effect.fnUntraced(function* (count: number) {
  const pool = yield* SandboxPool.SandboxPool
  while (((yield* pool.report).networks?.ready ?? 0) < count) yield* Effect.sleep("5 millis")
  yield* Effect.sleep("50 millis")
})

/** Measures a cold run in a network that was ready. */
const joined = (input: SandboxSpec.SandboxSpecInput) =>
  Effect.gen(function* () {
    yield* networksReady(1)
    const pool = yield* SandboxPool.SandboxPool
    const before = (yield* pool.report).networks?.hits ?? 0
    const millis = yield* coldMillis(input)
    if ((yield* pool.report).networks?.hits !== before + 1)
      return yield* Effect.die(new Error("no network was ready"))
    return millis
  })

/** Measures a cold run. The next measurement waits until its container is removed. */
const coldMillis = (input: SandboxSpec.SandboxSpecInput) =>
  Effect.gen(function* () {
    const runtime = yield* ContainerRuntime
    const runId = yield* RunId.generate
    const millis = yield* millisOf(run({ ...input, runId }))
    yield* runtime.leftovers(runId)
    return millis
  })

/** Milliseconds of each part of the claims, and of the exits that follow. */
const parts = new Map<string, Array<number>>()

/** A run in a directory, with a file in it. */
const inDirectory = (path: string): SandboxSpec.SandboxSpecInput => ({
  ...spec("x"),
  workspace: { type: "directory", path }
})

/**
 * Claims a sandbox as a run does, and measures until the first byte of output. With a directory, from before that is
 * examined.
 */
const claim = Effect.fnUntraced(function* (input: SandboxSpec.SandboxSpecInput) {
  yield* ready(1)
  const pool = yield* SandboxPool.SandboxPool
  const { capabilities } = yield* LlmProxy.LlmProxy
  const workspaces = yield* Workspace
  const decoded = yield* SpecDecoder.decode(input)
  const runId = yield* RunId.generate
  const before = performance.now()
  let last = before
  const mark = (part: string) => {
    const now = performance.now()
    const name = source.type === "directory" ? `with a directory: ${part}` : part
    parts.set(name, [...(parts.get(name) ?? []), now - last])
    last = now
  }
  const { limits, workspace: source } = decoded
  const directory = source.type === "directory" ? yield* workspaces.examine!(source.path) : undefined
  if (directory !== undefined) mark("examine it")
  const taken = yield* pool.claim({ spec: decoded, supervised: false, proxy: capabilities, directory })
  mark("ask the pool")
  if (taken._tag === "Cold") return yield* Effect.die(new Error(taken.use ?? "there is no pool"))
  const { mounts, user } =
    directory === undefined
      ? taken.prepared
      : yield* workspaces.acquire({
          runId,
          source,
          inputs: [],
          planted: [],
          memory: false,
          workspaceBytesMax: limits.workspaceBytesMax,
          examined: directory,
          prepared: taken.prepared
        })
  if (directory !== undefined) mark("hold it for the run")
  const { argv, env, network } = decoded
  const container = yield* taken.bind({
    runId,
    role: "agent",
    image,
    argv,
    env,
    user,
    mounts,
    network,
    limits
  })
  yield* container.start
  mark("bind, report, verify")
  yield* container.proceed
  mark("go, until the program starts")
  yield* Stream.runHead(container.output)
  mark("first byte")
  const millis = performance.now() - before
  yield* container.exit
  mark("exit of the program")
  return millis
}, Effect.scoped)

/** A row of the bursts: what must be ready before each burst, and one of its runs. */
interface Burst {
  readonly prepared: Effect.Effect<void>
  readonly one: Effect.Effect<unknown, unknown>
}

/** Measures runs per second of each row, at the median of some bursts. The rows take turns. */
const inBursts = Effect.fnUntraced(function* <Name extends string>(rows: Readonly<Record<Name, Burst>>) {
  const all = Object.entries<Burst>(rows)
  const seconds = new Map<string, Array<number>>(all.map(([name]) => [name, []]))
  for (let round = -1; round < bursts; round++)
    for (const [name, { one, prepared }] of Samples.rotate(all, round + 1)) {
      yield* prepared
      // Removals and refills after a burst must not be measured with the next.
      yield* Effect.andThen(Effect.sleep("1 second"), Idle.machine)
      const together = Effect.all(
        Array.from({ length: atOnce }, () => one),
        { concurrency: "unbounded" }
      )
      const millis = yield* millisOf(together)
      if (round >= 0) seconds.get(name)!.push(millis / 1000)
    }
  const rates = [...seconds].map(([name, taken]) => {
    const median = Samples.percentile(
      taken.toSorted((a, b) => a - b),
      0.5
    )
    return [name, Math.round((atOnce / median) * 10) / 10] as const
  })
  return Object.fromEntries(rates) as Record<Name, number>
})

/**
 * Runs per second in a burst: of the bare engine, of cold runs without and with networks that are ready, and of runs
 * from a pool that is full.
 */
const measuredBursts = Effect.fnUntraced(function* (
  cold: Effect.Effect<unknown, unknown>,
  directory: string,
  url: string
) {
  say(`${bursts} bursts of ${atOnce} runs each, in turns: bare engine, cold, from a full pool`)
  const bareApi = Contenders.bareApi(new Docker(), image)
  const bareApiKept = Contenders.bareApiKept(new Docker(), image)
  const kept: Array<Awaited<ReturnType<typeof bareApiKept>>> = []
  const networks = yield* Layer.build(layerOf(directory, url, { networks: atOnce }))
  const full = yield* Layer.build(layerOf(directory, url, { sandboxes: atOnce }))
  const joined = Effect.provide(run(spec("x")), networks)
  const pooled = Effect.provide(run(spec("x")), full)
  // These only show the demand for networks.
  yield* Effect.all(
    Array.from({ length: atOnce }, () => joined),
    { concurrency: "unbounded" }
  )
  const removeKept = Effect.promise(() => Promise.all(kept.splice(0).map((container) => container.remove())))
  const prepared = removeKept.pipe(
    Effect.andThen(Effect.provide(Effect.andThen(ready(atOnce), idle), full)),
    Effect.andThen(Effect.provide(networksReady(atOnce), networks))
  )
  return yield* inBursts({
    bare: { prepared, one: toItsEnd(bareApi) },
    bareKept: { prepared, one: toItsEnd(async () => kept.push(await bareApiKept())) },
    cold: { prepared, one: cold },
    joined: { prepared, one: joined },
    pooled: { prepared, one: pooled }
  }).pipe(Effect.ensuring(removeKept))
})

/** Waits until nothing of earlier runs is being removed. */
const idle = Effect.gen(function* () {
  const pool = yield* SandboxPool.SandboxPool
  while ((yield* pool.report).removing > 0) yield* Effect.sleep("5 millis")
})

/** Runs through a pool of their own while its sandboxes are killed, its image changes, and other runs are refused. */
const underTrouble = Effect.fnUntraced(function* (parent: string) {
  say(`${runsTotal} runs through a pool, four at once, under kills, refusals and changes of its image`)
  const directory = join(parent, "trial")
  mkdirSync(directory)
  const secondsMax = trialSecondsMax
  const before = performance.now()
  const outcome = yield* PoolTrial.run({
    seed: options.seed,
    runs: runsTotal,
    directory,
    base: image,
    secondsMax
  }).pipe(Effect.provide(DockerApi.layer({ host: process.env["DOCKER_HOST"] })))
  const lines = [...outcome.wrong, ...outcome.left.map((name) => `left behind: ${name}`)]
  for (const line of lines) say(line)
  return { ...outcome, seconds: Math.round((performance.now() - before) / 1000) }
})

/** Sandboxes that wait in the measurements of one run at a time. */
const keptCount = 2

const layerOf = (
  directory: string,
  url: string,
  { networks = 0, sandboxes: count = 0 }: { readonly networks?: number; readonly sandboxes?: number }
) =>
  SandboxRunner.layer.pipe(
    Layer.provideMerge(
      count + networks === 0
        ? Layer.empty
        : HostSandboxPool.layer({
            keep: [{ image, count }],
            limits: { sandboxesMax: count === 0 ? 0 : Math.max(8, count) },
            networksMax: networks
          })
    ),
    Layer.provideMerge(
      GatewayLlmProxy.layer({ url, key: Redacted.make("no-key-of-anybody"), carrier: "directory" }).pipe(
        Layer.provide(UsageObserver.layerNone)
      )
    ),
    Layer.provideMerge(
      Layer.mergeAll(
        HostWorkspace.layer({ waiting: join(directory, "waiting") }),
        FileRunStore.layer({ directory, trafficOf: "unknown" }),
        DockerContainerRuntime.layerApi({ engineRuntime })
      )
    ),
    Layer.provideMerge(DockerApi.layer({ host: process.env["DOCKER_HOST"] }))
  )

type Runs = Layer.Success<ReturnType<typeof layerOf>>

/** Measures rows one at a time, in turns. */
const measuredRows = Effect.fnUntraced(function* (
  rows: ReadonlyArray<readonly [string, Effect.Effect<number, unknown>]>,
  { networks, pooled }: Record<"networks" | "pooled", Context.Context<Runs>>
) {
  const measured = new Map<string, Array<number>>(rows.map(([name]) => [name, []]))
  if (rows.length === 0) return measured
  // They only show the demand.
  yield* Effect.provide(
    Effect.all([run(spec("x")), run(spec("x"))], { concurrency: keptCount, discard: true }),
    networks
  )
  say(`one at a time: ${samples} rounds of ${rows.length}`)
  for (let round = -warmUps; round < samples; round++) {
    for (const [name, measure] of Samples.rotate(rows, round + warmUps)) {
      // A refill or a removal that is under way must not be measured with the others.
      yield* Effect.provide(Effect.andThen(ready(keptCount), idle), pooled)
      yield* Effect.provide(networksReady(keptCount), networks)
      yield* Idle.machine
      const millis = yield* measure
      if (round >= 0) measured.get(name)!.push(millis)
    }
  }
  return measured
})

const main = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-bench-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const { url } = yield* Upstreams.onHost
  const waiting = yield* Effect.acquireRelease(Scope.make(), Scope.close)
  const pooled = yield* Scope.provide(Layer.build(layerOf(directory, url, { sandboxes: keptCount })), waiting)
  const cold = yield* Layer.build(layerOf(directory, url, {}))
  const networks = yield* Layer.build(layerOf(directory, url, { networks: keptCount }))
  const cli = Contenders.cli(image)
  const own = join(directory, "own")
  mkdirSync(own)
  writeFileSync(join(own, "own.txt"), "x")
  chownSync(own, 1000, 1000)
  const all = new Map<string, Effect.Effect<number, unknown>>([
    [names.cli, millisOf(toItsEnd(cli))],
    [names.cold, Effect.provide(coldMillis(spec("x")), cold)],
    [names.coldModel, Effect.provide(coldMillis(withModel), cold)],
    [names.joined, Effect.provide(joined(spec("x")), networks)],
    [names.joinedModel, Effect.provide(joined(withModel), networks)],
    [names.pooled, Effect.provide(warm(spec("x")), pooled)],
    [names.pooledModel, Effect.provide(warm(withModel), pooled)],
    [names.coldDirectory, Effect.provide(coldMillis(inDirectory(own)), cold)],
    [names.pooledDirectory, Effect.provide(warm(inDirectory(own)), pooled)],
    [names.claim, Effect.provide(claim(spec("x")), pooled)],
    [names.claimDirectory, Effect.provide(claim(inDirectory(own)), pooled)]
  ])
  const load = loadavg()[0]!
  const claims = new Set<string>([names.claim, names.claimDirectory])
  const rows = [...all].filter(([name]) => includes("rows") || (includes("claims") && claims.has(name)))
  const measured = yield* measuredRows(rows, { pooled, networks })
  // Its sandboxes must not be replaced while the others are counted.
  yield* Scope.close(waiting, Exit.void)
  const trial = includes("trial") ? yield* underTrouble(directory) : undefined
  const burstRates = includes("burst")
    ? yield* measuredBursts(Effect.provide(run(spec("x")), cold), directory, url)
    : undefined
  publish(measured, { trial, burstRates }, yield* Effect.promise(() => machine(load)))
}).pipe(Effect.scoped)

const machine = async (load: number): Promise<Report.Report["machine"]> => {
  const docker = new Docker()
  const [info, version] = await Promise.all([docker.info(), docker.version()])
  return {
    processors: info.NCPU,
    engine: version.Version,
    runtime: engineRuntime ?? info.DefaultRuntime,
    node: process.version,
    "load before": Math.round(load * 10) / 10
  }
}

const trialText = ({
  imageChanges,
  killed,
  lost,
  pool: { cold, discarded, hits, misses },
  refused,
  runs,
  seconds
}: Trial) => {
  const colds = Object.values(cold).reduce((sum, count) => sum + count, 0)
  const counted = hits + colds + misses
  return (
    `Under kills, refusals and image changes: ${runs} runs, four at once, in ${seconds} s (seed ${options.seed}). ` +
    `The pool counted ${counted}: ${hits} ran in a waiting sandbox, ${colds} could use none, and for ${misses} none ` +
    `was ready. The other ${runs - counted} ended before that. ${refused} runs were refused as they must be. Some of ` +
    "these the pool had counted. " +
    `${killed} waiting sandboxes were killed, ${lost} of them as a run got them, which failed. The image was replaced ` +
    `${imageChanges} times. ${discarded} sandboxes were taken and not used, because they had been killed or had an ` +
    "old image. Their runs got another one, or are among those for which none was ready."
  )
}

type Trial = Effect.Success<ReturnType<typeof underTrouble>>
type BurstRates = Effect.Success<ReturnType<typeof measuredBursts>>

/** The bars of the rows that were measured. */
const rowBars = (
  rows: ReadonlyArray<Samples.Summary & { readonly name: string }>
): ReadonlyArray<Report.Bar> => {
  const of = (name: string) => rows.find((row) => row.name === name)
  const claim = of(names.claim)
  const ratio = (name: string, [other, base]: readonly [string, string], atMost?: number) => {
    const [over, under] = [of(name), of(other)]
    if (over === undefined || under === undefined) return []
    const value = Math.round((over.p50 / under.p50) * 100) / 100
    return [{ name: `${name} / ${base}, p50`, value, ...(atMost === undefined ? {} : { atMost }) }]
  }
  const run = [names.cli, "docker run"] as const
  return [
    ...(claim === undefined
      ? []
      : [
          { name: `${names.claim}, p50 ms`, value: claim.p50, atMost: 10 },
          { name: `${names.claim}, p99 ms`, value: claim.p99, atMost: 30 }
        ]),
    ...ratio(names.pooledModel, run, 0.15),
    ...ratio(names.pooled, run),
    ...ratio(names.cold, run),
    ...ratio(names.pooledDirectory, [names.coldDirectory, "cold"], 0.3),
    ...ratio(names.joined, run, 0.65)
  ]
}

const burstBars = (rates: BurstRates): ReadonlyArray<Report.Bar> => {
  const over = (what: string, base: string, [rate, bare]: readonly [number, number], atLeast?: number) => ({
    name: `runs/s of ${atOnce} at once, ${what} / ${base}`,
    value: Math.round((rate / bare) * 100) / 100,
    ...(atLeast === undefined ? {} : { atLeast })
  })
  const { bare, bareKept, cold, joined, pooled } = rates
  return [
    over("from the pool", "bare engine", [pooled, bare], 3),
    over("cold", "bare engine", [cold, bare]),
    over("cold, in ready networks", "bare engine", [joined, bare], 1.8),
    over("cold, in ready networks", "bare engine that removes later", [joined, bareKept])
  ]
}

const trialBars = (trial: Trial): ReadonlyArray<Report.Bar> => [
  {
    name: `right of ${trial.runs} runs under kills, refusals and image changes, %`,
    value: (100 * trial.right) / trial.runs,
    atLeast: 100
  },
  { name: "containers and directories left by them", value: trial.left.length, atMost: 0 },
  { name: "sandboxes that two of them had", value: trial.shared, atMost: 0 }
]

const rowTexts = (rows: ReadonlyArray<Samples.Summary & { readonly name: string }>) => [
  "Milliseconds from the call until the result. Plain Docker has removed its container by then. Our runs have ended all of their processes, and their empty sandbox is removed in the background; the next measurement waits for that, and until the machine is idle. All rows are measured in turns.",
  Report.table(
    ["one at a time", "n", "min", "p50", "p95", "p99"],
    rows.map(({ count, min, name, p50, p95, p99 }) => [name, count, min, p50, p95, p99])
  ),
  Report.table(
    ["parts of a claim, and the exit", "n", "min", "p50", "p95", "p99"],
    [...parts].map(([name, millis]) => {
      const { count, min, p50, p95, p99 } = Samples.summarize(millis)
      return [name, count, min, p50, p95, p99]
    })
  )
]

const burstTable = ({ bare, bareKept, cold, joined, pooled }: BurstRates) =>
  Report.table(
    [`${atOnce} at once`, "runs/s"],
    [
      ["bare Engine API", bare],
      ["bare Engine API, containers removed after the burst, as ours are", bareKept],
      [names.cold, cold],
      [names.joined, joined],
      [names.pooled, pooled]
    ]
  )

const publish = (
  measured: ReadonlyMap<string, ReadonlyArray<number>>,
  { burstRates, trial }: { readonly trial: Trial | undefined; readonly burstRates: BurstRates | undefined },
  facts: Report.Report["machine"]
) => {
  const rows = [...measured].map(([name, millis]) => ({ name, ...Samples.summarize(millis) }))
  const bars: ReadonlyArray<Report.Bar> = [
    ...rowBars(rows),
    ...(burstRates === undefined ? [] : burstBars(burstRates)),
    ...(trial === undefined ? [] : trialBars(trial))
  ]
  const takenAt = new Date().toISOString()
  Report.publish({
    name: "pool",
    title: "Runs from the pool",
    text: [
      ...(rows.length === 0 ? [] : rowTexts(rows)),
      ...(burstRates === undefined ? [] : [burstTable(burstRates)]),
      ...(trial === undefined ? [] : [trialText(trial)]),
      Report.barTable(bars),
      Report.taken({ machine: facts, takenAt })
    ].join("\n\n"),
    data: {
      takenAt,
      machine: facts,
      rows,
      trial: trial && { seed: options.seed, ...trial },
      burstRates,
      bars
    },
    bars,
    directory:
      options.output ??
      (options.quick || positionals.length > 0 ? undefined : join(import.meta.dirname, "results"))
  })
}

NodeRuntime.runMain(main)
