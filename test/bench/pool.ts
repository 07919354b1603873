/**
 * `./dev bench pool`: runs in sandboxes that waited for them, next to cold runs and to plain Docker.
 *
 *     --samples N     samples of each row, at least 20 (default 40)
 *     --runs N        runs through the pool while waiting sandboxes are killed (default 200)
 *     --quick         5 samples and 20 runs, to check that it works; not for measurements
 *     --output DIR    directory for pool.json and pool.md (default test/bench/results; none with --quick)
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
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostSandboxPool from "@cogni/sandbox-docker/HostSandboxPool"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import Docker from "dockerode"
import { Effect, Layer, Redacted, Stream } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { loadavg, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as Contenders from "./Contenders.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"
import * as Upstreams from "./Upstreams.ts"

const { values: options } = parseArgs({
  options: {
    samples: { type: "string" },
    runs: { type: "string" },
    quick: { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const samples = options.quick ? 5 : Math.max(20, Number(options.samples ?? 40) || 40)
const runsTotal = options.quick ? 20 : Math.max(20, Number(options.runs ?? 200) || 200)
const warmUps = 2
const atOnce = 16
const bursts = options.quick ? 1 : 5
const image = process.env["COGNI_RUNTIME_IMAGE"] ?? "cogni-sandbox/runtime:latest"

const names = {
  cli: "docker run --rm, by the CLI",
  cold: "sealed run, cold",
  coldModel: "sealed run with a model, cold",
  pooled: "sealed run from the pool",
  pooledModel: "sealed run with a model, from the pool",
  claim: "claim of a sandbox until the first byte of its program"
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

/** Milliseconds of each part of the claims, and of the exits that follow. */
const parts = new Map<string, Array<number>>()

/** Claims a sandbox as a run does, and measures until the first byte of output. */
const claim = Effect.gen(function* () {
  yield* ready(1)
  const pool = yield* SandboxPool.SandboxPool
  const { capabilities } = yield* LlmProxy.LlmProxy
  const decoded = yield* SpecDecoder.decode(spec("x"))
  const runId = yield* RunId.generate
  const before = performance.now()
  let last = before
  const mark = (part: string) => {
    const now = performance.now()
    parts.set(part, [...(parts.get(part) ?? []), now - last])
    last = now
  }
  const taken = yield* pool.claim({ spec: decoded, supervised: false, proxy: capabilities })
  mark("ask the pool")
  if (taken._tag === "Cold") return yield* Effect.die(new Error(taken.use ?? "there is no pool"))
  const { mounts, user } = taken.prepared
  const { argv, env, limits, network } = decoded
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
}).pipe(Effect.scoped)

/** Runs per second of a burst, at the median of some bursts. */
const burst = Effect.fnUntraced(function* <R>(
  one: Effect.Effect<unknown, unknown, R>,
  prepared: Effect.Effect<void>
) {
  const seconds: Array<number> = []
  for (let round = 0; round < bursts; round++) {
    yield* prepared
    const all = Effect.all(
      Array.from({ length: atOnce }, () => one),
      { concurrency: "unbounded" }
    )
    seconds.push((yield* millisOf(all)) / 1000)
  }
  const median = Samples.percentile(
    seconds.toSorted((a, b) => a - b),
    0.5
  )
  return Math.round((atOnce / median) * 10) / 10
})

/** Runs per second in a burst: of the bare engine, of cold runs, and of runs from a pool that is full. */
const measuredBursts = Effect.fnUntraced(function* (
  cold: Effect.Effect<unknown, unknown>,
  directory: string,
  url: string
) {
  const bareApi = Contenders.bareApi(new Docker(), image)
  const bare = yield* burst(
    Effect.promise(() => bareApi()),
    Effect.void
  )
  const coldRuns = yield* burst(cold, Effect.void)
  const full = yield* Layer.build(layerOf(directory, url, atOnce))
  const pooled = yield* burst(
    Effect.provide(run(spec("x")), full),
    Effect.provide(Effect.andThen(ready(atOnce), idle), full)
  )
  return { bare, cold: coldRuns, pooled }
})

/** Waits until nothing of earlier runs is being removed. */
const idle = Effect.gen(function* () {
  const pool = yield* SandboxPool.SandboxPool
  while ((yield* pool.report).removing > 0) yield* Effect.sleep("5 millis")
})

/** IDs of the sandboxes that wait now, and of those that runs got, by run. */
const waitingIds = new Set<string>()
const boundIds = new Map<string, string>()

/** Notes which sandboxes wait. The engine knows it later, because it learns the name of a run after its start. */
const noted = Layer.effect(
  ContainerRuntime,
  Effect.map(ContainerRuntime, (runtime) => {
    const { prepare } = runtime
    return ContainerRuntime.of({
      ...runtime,
      prepare:
        prepare &&
        ((waitingSpec) =>
          Effect.map(prepare(waitingSpec), (waiting) => {
            waitingIds.add(waiting.id)
            return {
              ...waiting,
              bind: (bound) => {
                waitingIds.delete(waiting.id)
                boundIds.set(bound.runId, waiting.id)
                return waiting.bind(bound)
              }
            }
          }))
    })
  })
)

/**
 * Runs through the pool while a waiting sandbox is killed now and then. A run that gets a sandbox while it is being
 * killed is right too if it fails.
 */
const underKills = Effect.gen(function* () {
  const pool = yield* SandboxPool.SandboxPool
  const runtime = yield* ContainerRuntime
  const api = yield* DockerApi.DockerApi
  const before = yield* pool.report
  let right = 0
  const runIds: Array<RunId.RunId> = []
  const killed = new Set<string>()
  let failed = 0
  const one = (number: number) =>
    Effect.gen(function* () {
      if (number % 5 === 0) {
        const victim = [...waitingIds][number % Math.max(1, waitingIds.size)]
        if (victim !== undefined) {
          killed.add(victim)
          waitingIds.delete(victim)
          yield* Effect.ignore(api.kill(victim, "SIGKILL"))
        }
      }
      const runId = yield* RunId.generate
      runIds.push(runId)
      const result = yield* run({
        runId,
        ...spec("x"),
        argv: ["sh", "-c", `ls -A /workspace | wc -l; echo ${number} > f; echo ${number}`]
      }).pipe(
        Effect.catch((error) => {
          if (!killed.has(boundIds.get(runId) ?? "")) return Effect.fail(error)
          failed += 1
          right += 1
          return Effect.undefined
        })
      )
      if (result === undefined) return
      const [files, own] = result.output.stdout.text.split("\n")
      if (files === "1" && own === String(number)) right += 1
    })
  yield* Effect.forEach(
    Array.from({ length: runsTotal }, (_, number) => number),
    one,
    { concurrency: 4 }
  )
  const after = yield* pool.report
  yield* idle
  const left = yield* Effect.forEach(runIds, runtime.leftovers)
  return {
    right,
    left: left.flat().length,
    shared: boundIds.size - new Set(boundIds.values()).size,
    killed: killed.size,
    failed,
    hits: after.hits - before.hits,
    discarded: after.discarded - before.discarded
  }
})

/** Sandboxes that wait in the measurements of one run at a time. */
const keptCount = 2

const layerOf = (directory: string, url: string, count: number) =>
  SandboxRunner.layer.pipe(
    Layer.provideMerge(
      count === 0
        ? Layer.empty
        : HostSandboxPool.layer({ keep: [{ image, count }], limits: { sandboxesMax: Math.max(8, count) } })
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
        Layer.provide(noted, DockerContainerRuntime.layerApi())
      )
    ),
    Layer.provideMerge(DockerApi.layer({ host: process.env["DOCKER_HOST"] }))
  )

const main = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-bench-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const { url } = yield* Upstreams.onHost
  const pooled = yield* Layer.build(layerOf(directory, url, keptCount))
  const cold = yield* Layer.build(layerOf(directory, url, 0))
  const cli = Contenders.cli(image)
  const rows = new Map<string, Effect.Effect<number, unknown>>([
    [names.cli, millisOf(Effect.promise(cli))],
    [names.cold, Effect.provide(millisOf(run(spec("x"))), cold)],
    [names.coldModel, Effect.provide(millisOf(run(withModel)), cold)],
    [names.pooled, Effect.provide(warm(spec("x")), pooled)],
    [names.pooledModel, Effect.provide(warm(withModel), pooled)],
    [names.claim, Effect.provide(claim, pooled)]
  ])
  const load = loadavg()[0]!
  const measured = new Map<string, Array<number>>([...rows.keys()].map((name) => [name, []]))
  say(`one at a time: ${samples} rounds of ${rows.size}`)
  for (let round = -warmUps; round < samples; round++) {
    for (const [name, measure] of Samples.rotate([...rows], round + warmUps)) {
      // A refill or a removal that is under way must not be measured with the others.
      yield* Effect.provide(Effect.andThen(ready(keptCount), idle), pooled)
      const millis = yield* measure
      if (round >= 0) measured.get(name)!.push(millis)
    }
  }
  say(`${runsTotal} runs through the pool, four at once, while waiting sandboxes are killed`)
  const kills = yield* Effect.provide(underKills, pooled)
  say(`${bursts} bursts of ${atOnce} runs each: bare engine, cold, from a full pool`)
  const burstRates = yield* measuredBursts(Effect.provide(run(spec("x")), cold), directory, url)
  publish(measured, { kills, burstRates }, yield* Effect.promise(() => machine(load)))
}).pipe(Effect.scoped)

const machine = async (load: number): Promise<Report.Report["machine"]> => {
  const docker = new Docker()
  const [info, version] = await Promise.all([docker.info(), docker.version()])
  return {
    processors: info.NCPU,
    engine: version.Version,
    node: process.version,
    "load before": Math.round(load * 10) / 10
  }
}

const publish = (
  measured: ReadonlyMap<string, ReadonlyArray<number>>,
  {
    burstRates,
    kills
  }: {
    readonly kills: Effect.Success<typeof underKills>
    readonly burstRates: Effect.Success<ReturnType<typeof measuredBursts>>
  },
  facts: Report.Report["machine"]
) => {
  const rows = [...measured].map(([name, millis]) => ({ name, ...Samples.summarize(millis) }))
  const of = (name: string) => rows.find((row) => row.name === name)!
  const ratio = (over: string) => Math.round((of(over).p50 / of(names.cli).p50) * 100) / 100
  const bars: ReadonlyArray<Report.Bar> = [
    { name: `${names.claim}, p50 ms`, value: of(names.claim).p50, atMost: 10 },
    { name: `${names.claim}, p99 ms`, value: of(names.claim).p99, atMost: 30 },
    { name: `${names.pooledModel} / docker run, p50`, value: ratio(names.pooledModel), atMost: 0.15 },
    { name: `${names.pooled} / docker run, p50`, value: ratio(names.pooled) },
    { name: `${names.cold} / docker run, p50`, value: ratio(names.cold) },
    {
      name: `runs/s of ${atOnce} at once, from the pool / bare engine`,
      value: Math.round((burstRates.pooled / burstRates.bare) * 100) / 100,
      atLeast: 3
    },
    {
      name: `runs/s of ${atOnce} at once, cold / bare engine`,
      value: Math.round((burstRates.cold / burstRates.bare) * 100) / 100
    },
    { name: "right runs under kills, %", value: (100 * kills.right) / runsTotal, atLeast: 100 },
    { name: "containers left by them", value: kills.left, atMost: 0 },
    { name: "sandboxes that two runs had", value: kills.shared, atMost: 0 }
  ]
  const takenAt = new Date().toISOString()
  Report.publish({
    name: "pool",
    title: "Runs from the pool",
    text: [
      "Milliseconds from the call until the result. A cold run and plain Docker have removed their container by then. A run from the pool has ended all of its processes, and its empty sandbox is removed in the background; the next measurement waits for that. All rows are measured in turns.",
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
      ),
      Report.table(
        [`${atOnce} at once`, "runs/s"],
        [
          ["bare Engine API", burstRates.bare],
          [names.cold, burstRates.cold],
          [names.pooled, burstRates.pooled]
        ]
      ),
      `Under kills: ${runsTotal} runs, four at once; ${kills.hits} got a waiting sandbox, ${kills.killed} waiting sandboxes were killed, ${kills.failed} of them while a run got them, which failed; ${kills.discarded} were taken and not used.`,
      Report.barTable(bars),
      Report.taken({ machine: facts, takenAt })
    ].join("\n\n"),
    data: { takenAt, machine: facts, rows, kills: { runs: runsTotal, ...kills }, burstRates, bars },
    bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
}

NodeRuntime.runMain(main)
