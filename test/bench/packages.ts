/**
 * `./dev bench packages`: a project with about 100 packages, installed by npm on the host and through the mirror.
 *
 *     --samples N     rounds (default 3)
 *     --output DIR    directory for packages.json and packages.md (default test/bench/results)
 *
 * The registry is the one that `npm config get registry` names, so the results depend on the network. Each installation
 * has an empty cache of npm's own. `direct` is npm on this host, `alone` npm in a sealed sandbox with an empty cache of
 * the mirror, and `again` the same with the files that another run has fetched.
 */
import { NodeRuntime } from "@effect/platform-node"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { Effect, Layer } from "effect"
import { execFileSync } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, rmSync, statSync, readdirSync, writeFileSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as Images from "../harness/Images.ts"
import * as Npm from "../harness/Npm.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: { samples: { type: "string" }, output: { type: "string" } }
})

const samples = Math.max(1, Number(options.samples ?? 3) || 3)

/** About 100 packages with their dependencies. */
const project = {
  name: "project",
  version: "1.0.0",
  dependencies: { express: "4.21.2", jsdom: "24.1.3", "@types/node": "22.10.0" }
}

const registry = execFileSync("npm", ["config", "get", "registry"], {
  encoding: "utf8",
  stdio: ["ignore", "pipe", "ignore"]
}).trim()

const directory = mkdtempSync(join(tmpdir(), "cogni-bench-"))

const say = (text: string) => process.stderr.write(`${text}\n`)

const flags = ["--no-audit", "--no-fund", "--ignore-scripts"]

const empty = (name: string): string => {
  const path = join(directory, name)
  rmSync(path, { recursive: true, force: true })
  mkdirSync(path)
  writeFileSync(join(path, "package.json"), JSON.stringify(project))
  return path
}

/** Packages that were installed, counted by their directories. */
const installed = (path: string): number => {
  const modules = join(path, "node_modules")
  return readdirSync(modules)
    .filter((name) => !name.startsWith("."))
    .reduce((sum, name) => sum + (name.startsWith("@") ? readdirSync(join(modules, name)).length : 1), 0)
}

interface Measured {
  readonly seconds: number
  readonly packages: number
}

const direct = (): Measured => {
  const path = empty("direct")
  const began = performance.now()
  execFileSync(
    "node",
    [
      join(Npm.directory, "bin", "npm-cli.js"),
      "install",
      ...flags,
      "--registry",
      registry,
      "--cache",
      join(path, ".npm")
    ],
    {
      cwd: path,
      stdio: "ignore"
    }
  )
  return { seconds: (performance.now() - began) / 1000, packages: installed(path) }
}

/** Measured inside, so without the start of the sandbox, which `./dev bench` measures. */
const sealed = Effect.fnUntraced(function* () {
  const path = empty("sealed")
  cpSync(Npm.directory, join(path, "npm"), { recursive: true })
  execFileSync("chown", ["-R", "1000:1000", path])
  const runner = yield* SandboxRunner.SandboxRunner
  const result = yield* runner.run({
    image: Images.runtime,
    argv: [
      "bash",
      "-ec",
      `echo "$EPOCHREALTIME"; node npm/bin/npm-cli.js install ${flags.join(" ")} --cache .npm >&2; echo "$EPOCHREALTIME"`
    ],
    packages: ["npm:*", "npm:@*/*"],
    workspace: { type: "directory", path },
    limits: { runtimeSecondsMax: 1200, memoryBytesMax: 2 * 1024 ** 3 }
  })
  if (result.exitCode !== 0) throw new Error(`npm failed in the sandbox: ${result.output.stderr.text}`)
  const [began = 0, ended = 0] = result.output.stdout.text.trim().split("\n").map(Number)
  return { seconds: ended - began, packages: installed(path), requests: result.llm?.packagesTotal ?? 0 }
})

const cacheDirectory = join(directory, "cache")

const world = SandboxRunner.layer.pipe(
  Layer.provide(
    GatewayLlmProxy.layerPackages({
      packages: { npm: { url: registry, allowPrivateAddresses: true }, cacheDirectory }
    })
  ),
  Layer.provide([
    DockerContainerRuntime.layer({}),
    FileRunStore.layer({ directory: join(directory, "state"), trafficOf: "unknown" }),
    HostWorkspace.layer()
  ])
)

const bytesOf = (path: string): number =>
  readdirSync(path).reduce((sum, name) => sum + statSync(join(path, name)).size, 0)

const measure = Effect.gen(function* () {
  const seconds: Record<"direct" | "alone" | "again", Array<number>> = { direct: [], alone: [], again: [] }
  let last: Effect.Success<ReturnType<typeof sealed>> | undefined
  let keptBytes = 0
  for (let round = 0; round < samples; round++) {
    say(`round ${round + 1} of ${samples}`)
    rmSync(cacheDirectory, { recursive: true, force: true })
    const one = direct()
    // A gateway of its own, so that it remembers no metadata of the round before.
    const [alone, again] = yield* Effect.gen(function* () {
      return [yield* sealed(), yield* sealed()] as const
    }).pipe(Effect.provide(world, { local: true }))
    for (const other of [alone, again])
      if (other.packages !== one.packages)
        throw new Error(
          `${one.packages} packages were installed directly, and ${other.packages} in a sandbox`
        )
    seconds.direct.push(one.seconds)
    seconds.alone.push(alone.seconds)
    seconds.again.push(again.seconds)
    last = again
    keptBytes = bytesOf(cacheDirectory)
  }
  const rows = Object.entries(seconds).map(([name, all]) => ({
    name,
    ...Samples.summarize(all.map((one) => one * 1000))
  }))
  const p50 = (name: string) => rows.find((row) => row.name === name)?.p50 ?? Number.NaN
  const ratio = (name: string) => Math.round((100 * p50(name)) / p50("direct")) / 100
  const bars: ReadonlyArray<Report.Bar> = [
    { name: "empty mirror, times the direct installation", value: ratio("alone"), atMost: 3 },
    { name: "filled mirror, times the direct installation", value: ratio("again"), atMost: 3 }
  ]
  const data = {
    takenAt: new Date().toISOString(),
    machine: {
      cores: availableParallelism(),
      kernel: release(),
      node: process.version,
      "load before": Math.round(loadBefore * 10) / 10,
      samples
    },
    packages: last?.packages ?? 0,
    requests: last?.requests ?? 0,
    keptBytes,
    rows,
    bars
  }
  const text = [
    `npm installs ${data.packages} packages with an empty cache of its own. In the sandbox, it sends ${data.requests} requests to the mirror, which keeps ${Math.round(keptBytes / 1e5) / 10} MB of files.`,
    Report.table(
      ["ms", "n", "min", "p50"],
      rows.map(({ count, min, name, p50: median }) => [
        titles[name as keyof typeof titles],
        count,
        min,
        median
      ])
    ),
    Report.barTable(bars),
    Report.taken(data)
  ].join("\n\n")
  Report.publish({
    name: "packages",
    title: "Packages through the mirror, measured",
    text,
    data,
    bars,
    directory: options.output ?? join(import.meta.dirname, "results")
  })
})

const titles = {
  direct: "npm on the host",
  alone: "npm in a sealed sandbox, empty mirror",
  again: "npm in a sealed sandbox, filled mirror"
} as const

const loadBefore = loadavg()[0] ?? 0

NodeRuntime.runMain(
  Effect.ensuring(
    measure,
    Effect.sync(() => rmSync(directory, { recursive: true, force: true }))
  )
)
