/**
 * `./dev bench computesdk`: the sequence of ComputeSDK's public benchmark over our provider, next to its published
 * table.
 *
 *     --count N       sandboxes of each mode, at least 20 (default 100)
 *     --quick         10 sandboxes of each mode, to check that it works; not for measurements
 *     --output DIR    directory for computesdk.json and computesdk.md (default test/bench/results; none with --quick)
 *
 * Each sandbox: create, one command that reads where it runs and leaves a mark, `node -v`, destroy. Its time is that
 * from the call of `create` to the answer of `node -v`. Exits with 1 if a sandbox fails, or has the mark of another.
 */
import { NodeRuntime } from "@effect/platform-node"
import Docker from "dockerode"
import { Data, Effect, Result } from "effect"
import { type ChildProcess, fork } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { loadavg, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { cogniSandbox } from "../../examples/computesdk/provider.ts"
import { type Mode, published, source } from "./ComputeSdkFigures.ts"
import type { Ready, Start, Told } from "./ComputeSdkServer.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: {
    count: { type: "string" },
    quick: { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const count = options.quick ? 10 : Math.max(20, Number(options.count ?? 100) || 100)
const image = "cogni-sandbox/runtime:latest"
const modes: ReadonlyArray<Mode> = ["sequential", "staggered", "burst"]

/** Time between two launches of the mode `staggered`. */
const staggerMillis = 200
const createSecondsMax = 120
const commandSecondsMax = 30
/** Longest wait for a pool. One sandbox is started after the other. */
const fillSecondsMax = 180

/** Part of the samples that is left out at each end. */
const trimmedShare = 0.05

const say = (text: string) => process.stderr.write(`${text}\n`)

type Provider = ReturnType<typeof cogniSandbox>

/** Reads what tells one sandbox from another, and leaves a mark that no other sandbox may see. */
const identify = [
  "test ! -e /tmp/.mark || exit 77",
  "echo mark >/tmp/.mark",
  "readlink /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/uts",
  "sha256sum </proc/self/cgroup | cut -d' ' -f1",
  "cat /proc/sys/kernel/random/boot_id /proc/uptime",
  "tr '\\0' ' ' </proc/1/cmdline"
].join("\n")

class Failed extends Data.TaggedError("Failed")<{ readonly message: string }> {}

const within = <A>(what: string, secondsMax: number, call: () => Promise<A>) =>
  Effect.tryPromise({
    try: call,
    catch: (error) => new Failed({ message: `${what}: ${String(error)}` })
  }).pipe(Effect.timeout(`${secondsMax} seconds`))

/** Runs one sandbox, and returns the milliseconds until its `node -v` has answered. */
const one = ({ sandbox: sandboxes }: Provider) =>
  Effect.scoped(
    Effect.gen(function* () {
      const before = performance.now()
      const sandbox = yield* Effect.acquireRelease(
        within("create", createSecondsMax, () => sandboxes.create()),
        (made) => Effect.promise(() => made.destroy())
      )
      for (const command of [identify, "node -v"]) {
        const { exitCode, stderr } = yield* within(command, commandSecondsMax, () =>
          sandbox.runCommand(command)
        )
        if (exitCode !== 0) return yield* new Failed({ message: `${command}: ${exitCode} ${stderr}` })
      }
      return performance.now() - before
    })
  )

const all = (provider: Provider, mode: Mode) => {
  const waitMillis = mode === "staggered" ? staggerMillis : 0
  return Effect.forEach(
    Array.from({ length: count }, (_, index) => index),
    (index) => Effect.result(Effect.andThen(Effect.sleep(`${index * waitMillis} millis`), one(provider))),
    { concurrency: mode === "sequential" ? 1 : "unbounded" }
  )
}

/** Median, p95 and p99 as ComputeSDK computes them, of the samples without the trimmed ones. */
const figuresOf = (samples: ReadonlyArray<number>) => {
  const sorted = samples.toSorted((a, b) => a - b)
  const trimmed = Math.floor(sorted.length * trimmedShare)
  const kept = sorted.slice(trimmed, sorted.length - trimmed)
  const [low, high] = [kept[Math.ceil(kept.length / 2) - 1], kept[Math.floor(kept.length / 2)]]
  const at = (share: number) => Math.round(Samples.percentile(kept, share))
  return {
    median: Math.round(((low ?? Number.NaN) + (high ?? Number.NaN)) / 2),
    p95: at(0.95),
    p99: at(0.99)
  }
}

const once = <A>(child: ChildProcess) =>
  new Promise<A>((resolve, reject) => {
    const ended = (code: number | null) => reject(new Error(`the server ended with ${code}`))
    child.once("exit", ended)
    child.once("message", (message) => {
      child.off("exit", ended)
      resolve(message as A)
    })
  })

/** Starts a server that keeps this many sandboxes, and ends it when the scope closes. */
const serve = Effect.fnUntraced(function* (keep: number) {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-bench-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const token = randomBytes(32).toString("base64url")
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => fork(join(import.meta.dirname, "ComputeSdkServer.ts"))),
    (started) =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            started.once("exit", () => resolve())
            started.kill("SIGTERM")
          })
      )
  )
  child.send({ directory, image, token, keep, sandboxesMax: 2 * count } satisfies Start)
  const { url } = yield* Effect.promise(() => once<Ready>(child))
  const told = Effect.promise(() => {
    child.send("how are you")
    return once<Told>(child)
  })
  /** Waits until the pool is full, and nothing of earlier sandboxes is being removed. */
  const ready = Effect.repeat(Effect.delay(told, "100 millis"), {
    until: ({ removing, waiting }) => removing === 0 && waiting >= keep
  }).pipe(Effect.timeout(`${fillSecondsMax} seconds`))
  return { provider: cogniSandbox({ url, token }), ready, told }
})

interface Row extends ReturnType<typeof figuresOf> {
  readonly name: string
  readonly mode: Mode
  readonly succeededPercent: number
  readonly fromPool: number
}

/** Measures all modes over one server. */
const measured = (name: string, keep: number) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { provider, ready, told } = yield* serve(keep)
      // Loads the modules of both processes, and the image.
      yield* one(provider)
      const rows: Array<Row> = []
      for (const mode of modes) {
        const { hits } = yield* ready
        say(`${name}, ${mode}: ${count} sandboxes`)
        const results = yield* all(provider, mode)
        const samples = results.filter(Result.isSuccess).map(({ success }) => success)
        const failure = results.find(Result.isFailure)
        if (failure !== undefined) say(`failed: ${String(failure.failure)}`)
        rows.push({
          name,
          mode,
          ...figuresOf(samples),
          succeededPercent: Math.round((100 * samples.length) / count),
          fromPool: (yield* told).hits - hits
        })
      }
      return rows
    })
  )

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

const tableOf = (mode: Mode, rows: ReadonlyArray<Row>): string => {
  const ours = rows
    .filter((row) => row.mode === mode)
    .map(
      ({ median, name, p95, p99, succeededPercent }) => [name, median, p95, p99, succeededPercent] as const
    )
  const theirs = Object.entries(published)
    .map(([name, figures]) => [`${name} (published)`, ...figures[mode]] as const)
    .toSorted(([, a], [, b]) => a - b)
  return Report.table([mode, "median", "p95", "p99", "succeeded, %"], [...ours, ...theirs])
}

const publish = (rows: ReadonlyArray<Row>, facts: Report.Report["machine"]) => {
  const takenAt = new Date().toISOString()
  const bars = rows.map(({ mode, name, succeededPercent }) => ({
    name: `${name}, ${mode}: sandboxes that succeeded, %`,
    value: succeededPercent,
    atLeast: 100
  }))
  const hits = rows.filter(({ name }) => name === names.warm)
  Report.publish({
    name: "computesdk",
    title: "ComputeSDK's benchmark",
    text: [
      `Milliseconds from the call of \`create\` to the answer of \`node -v\`, of ${count} sandboxes in each mode, without the fastest and the slowest 5 %. Sequential: one after the other. Staggered: one every ${staggerMillis} ms. Burst: all at once.`,
      `**The published rows include a network, and ours do not.** They are from a client on GitHub Actions and the clouds of their vendors (${source.takenAt}, [source](${source.url}/tree/${source.commit})). Ours are from a client and a server that share one machine, over its loopback interface. Nor is the hardware the same: this machine has ${String(facts["processors"])} processors for everything, and a vendor has a fleet. So these tables show the order of magnitude, and not which sandbox is faster.`,
      `A row from the pool begins with ${count} sandboxes that wait: ${hits.map(({ fromPool, mode }) => `${fromPool} of ${count} got one in the mode ${mode}`).join(", ")}. The published table does not tell who keeps a pool.`,
      ...modes.map((mode) => tableOf(mode, rows)),
      Report.barTable(bars),
      Report.taken({ machine: facts, takenAt })
    ].join("\n\n"),
    data: { takenAt, machine: facts, count, rows, source, bars },
    bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
}

const names = { cold: "Cogni Sandbox, cold", warm: "Cogni Sandbox, from the pool" }

const main = Effect.gen(function* () {
  const load = loadavg()[0]!
  const cold = yield* measured(names.cold, 0)
  const warm = yield* measured(names.warm, count)
  publish([...cold, ...warm], yield* Effect.promise(() => machine(load)))
})

NodeRuntime.runMain(main)
