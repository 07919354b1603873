/**
 * `./dev bench`: the cost of a sealed run, measured side by side with the engine's own cost.
 *
 *     --samples N     samples of each row, at least 20 (default 30)
 *     --quick         5 samples and 20 sustained runs, to check that it works; not for measurements
 *     --output DIR    directory for latest.json and latest.md (default test/bench/results; none with --quick)
 *
 * Exits with 1 if a bar is missed.
 */
import { NodeRuntime } from "@effect/platform-node"
import Docker from "dockerode"
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir, totalmem } from "node:os"
import { join } from "node:path"
import { parseArgs, promisify } from "node:util"
import * as Contenders from "./Contenders.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"
import * as Upstreams from "./Upstreams.ts"

const { values: options } = parseArgs({
  options: {
    samples: { type: "string" },
    quick: { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const samples = options.quick ? 5 : Math.max(20, Number(options.samples ?? 30) || 30)
const sustainedRuns = options.quick ? 20 : 200
const sustainedAtOnce = 4
const loads = [1, 4, 16]
const warmUps = 2

const images = {
  runtime: process.env["COGNI_RUNTIME_IMAGE"] ?? "cogni-sandbox/runtime:latest",
  proxy: process.env["COGNI_PROXY_IMAGE"] ?? "cogni-sandbox/proxy:latest",
  gateway: process.env["COGNI_GATEWAY_IMAGE"] ?? "cogni-sandbox/gateway:latest"
}

const names = {
  cli: "docker run --rm, by the CLI",
  bare: "bare Engine API: create, attach, start, wait, remove",
  sealed: "sealed run",
  gateway: "sealed run with a model (gateway in process)",
  carried: "sealed run with a model (gateway, sockets in a container)",
  host: "sealed run with a model (nginx, upstream on the host)",
  container: "sealed run with a model (nginx, upstream in a container)"
} as const

const say = (text: string) => process.stderr.write(`${text}\n`)

const timed = async (contender: Contenders.Contender) => {
  const before = performance.now()
  const phases = await contender()
  return { millis: performance.now() - before, phases }
}

type Measured = Awaited<ReturnType<typeof timed>>

/** Measures each contender once in every round. */
const oneAtATime = async (contenders: ReadonlyMap<string, Contenders.Contender>) => {
  const measured = new Map<string, Array<Measured>>([...contenders.keys()].map((name) => [name, []]))
  for (let round = -warmUps; round < samples; round++) {
    for (const [name, contender] of Samples.rotate([...contenders], round + warmUps)) {
      const one = await timed(contender)
      if (round >= 0) measured.get(name)!.push(one)
    }
  }
  return measured
}

/** Measures batches of runs that start together, with the sizes and the contenders in turns. */
const atOnce = async (
  contenders: ReadonlyMap<string, Contenders.Contender>
): Promise<ReadonlyArray<Report.LoadRow>> => {
  const cells = loads.flatMap((size) =>
    [...contenders].map(([name, contender]) => ({ name, contender, size }))
  )
  const millis = cells.map((): Array<number> => [])
  const walls = cells.map(() => 0)
  for (let round = 0; millis.some((own) => own.length < samples); round++) {
    for (const [index, { contender, size }] of Samples.rotate([...cells.entries()], round)) {
      if (millis[index]!.length >= samples) continue
      const before = performance.now()
      const batch = await Promise.all(Array.from({ length: size }, () => timed(contender)))
      walls[index]! += performance.now() - before
      millis[index]!.push(...batch.map((one) => one.millis))
    }
  }
  return cells.map(({ name, size }, index) => ({
    name,
    atOnce: size,
    ...Samples.summarize(millis[index]!),
    runsPerSecond: Math.round((millis[index]!.length / walls[index]!) * 10_000) / 10
  }))
}

const sustained = async (contender: Contenders.Contender): Promise<Report.Report["sustained"]> => {
  let begun = 0
  let succeeded = 0
  const before = performance.now()
  const worker = async () => {
    while (begun++ < sustainedRuns) {
      await contender().then(
        () => succeeded++,
        (cause) => say(`  a run failed: ${String(cause)}`)
      )
    }
  }
  await Promise.all(Array.from({ length: sustainedAtOnce }, worker))
  const seconds = (performance.now() - before) / 1000
  return {
    runs: sustainedRuns,
    succeeded,
    seconds: Math.round(seconds * 10) / 10,
    runsPerSecond: Math.round((sustainedRuns / seconds) * 10) / 10
  }
}

const git = (...argv: ReadonlyArray<string>) =>
  promisify(execFile)("git", argv, { cwd: import.meta.dirname }).then(
    ({ stdout }) => stdout.trim(),
    () => ""
  )

const machine = async (docker: Docker): Promise<Report.Report["machine"]> => {
  const [info, version] = await Promise.all([docker.info(), docker.version()])
  return {
    cores: availableParallelism(),
    "memory (GiB)": Math.round(totalmem() / 1024 ** 3),
    kernel: release(),
    engine: `${version.Version} (API ${version.ApiVersion})`,
    "default runtime": info.DefaultRuntime,
    storage: info.Driver,
    cgroups: `v${(info as { CgroupVersion?: string }).CgroupVersion ?? "1"}`,
    node: process.version,
    // A load near the number of cores is from other programs, and makes the ratios unreliable.
    "load before": Math.round(loadavg()[0]! * 10) / 10,
    commit: `${(await git("rev-parse", "--short", "HEAD")) || "unknown"}${(await git("status", "--porcelain", "--", ":/packages")) && " and changes"}`
  }
}

const median = (all: ReadonlyArray<Measured>) =>
  Object.fromEntries(
    [...new Set(all.flatMap(({ phases }) => Object.keys(phases)))].map((phase) => [
      phase,
      Samples.summarize(all.flatMap(({ phases }) => phases[phase] ?? [])).p50
    ])
  )

const main = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-bench-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const docker = new Docker()
  const place = { directory, host: process.env["DOCKER_HOST"] }
  const inContainer = yield* Upstreams.inContainer(docker, images.runtime)
  const onHost = yield* Upstreams.onHost
  const own = new Map([
    [names.sealed, yield* Contenders.sealed(place, images.runtime)],
    [names.gateway, yield* Contenders.sealedWithGateway(place, images, onHost.url, "directory")],
    [names.carried, yield* Contenders.sealedWithGateway(place, images, onHost.url, "container")],
    [names.host, yield* Contenders.sealedWithModel(place, images, onHost)],
    [names.container, yield* Contenders.sealedWithModel(place, images, inContainer)]
  ])
  const all = new Map<string, Contenders.Contender>([
    [names.cli, Contenders.cli(images.runtime)],
    [names.bare, Contenders.bareApi(new Docker(), images.runtime)],
    ...own
  ])
  const facts = yield* Effect.promise(() => machine(docker))

  say(`one at a time: ${samples} rounds of ${all.size}`)
  const measured = yield* Effect.promise(() => oneAtATime(all))
  say(`several at once: ${loads.join(", ")}`)
  const load = yield* Effect.promise(() => atOnce(own))
  say(`sustained: ${sustainedRuns} runs, ${sustainedAtOnce} at once`)
  const held = yield* Effect.promise(() => sustained(own.get(names.sealed)!))

  const summaries = new Map(
    [...measured].map(([name, row]) => [name, Samples.summarize(row.map(({ millis }) => millis))])
  )
  const ratio = (over: string, under: string) =>
    Math.round((summaries.get(over)!.p50 / summaries.get(under)!.p50) * 100) / 100
  const report: Report.Report = {
    takenAt: new Date().toISOString(),
    machine: facts,
    rows: [...summaries].map(([name, summary]) => ({ name, ...summary })),
    phases: Object.fromEntries([...own.keys()].map((name) => [name, median(measured.get(name)!)])),
    load,
    sustained: held,
    bars: [
      { name: "sealed run / bare Engine API, p50", value: ratio(names.sealed, names.bare), atMost: 1.15 },
      { name: "sealed run / docker run, p50", value: ratio(names.sealed, names.cli) },
      {
        name: "with a model (gateway in process) / without, p50",
        value: ratio(names.gateway, names.sealed),
        atMost: 1.25
      },
      {
        name: "with a model (gateway, sockets in a container) / without, p50",
        value: ratio(names.carried, names.sealed)
      },
      {
        name: "with a model (nginx, host) / bare Engine API, p50",
        value: ratio(names.host, names.bare),
        atMost: 2.2
      },
      {
        name: "with a model (nginx, container) / bare Engine API, p50",
        value: ratio(names.container, names.bare)
      },
      {
        name: "sustained success, %",
        value: Math.round((held.succeeded / held.runs) * 1000) / 10,
        atLeast: 100
      }
    ]
  }
  Report.publish({
    name: "latest",
    title: "Latest measurements",
    text: Report.format(report),
    data: report,
    bars: report.bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
}).pipe(Effect.scoped)

NodeRuntime.runMain(main)
