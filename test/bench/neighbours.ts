/**
 * `./dev bench neighbours`: a run that makes model calls, beside a run that floods its gateway in every known way.
 *
 *     --rounds N      rounds of all floods (default 3)
 *     --floods A,B    only these floods; writes nothing
 *     --quick         one round; writes nothing
 *     --output DIR    directory for neighbours.json and neighbours.md (default test/bench/results)
 *
 * Both are real sealed runs of one host process, with one processor each. Quiet time and floods alternate. The victim
 * starts a call every 20 ms, whatever happens to earlier calls: a blocked gateway is measured, not waited for. Exits
 * with 1 if a bar is missed.
 */
import { NodeRuntime } from "@effect/platform-node"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import Docker from "dockerode"
import { Deferred, Effect, Fiber, Layer, Redacted, Stream } from "effect"
import { execFileSync, fork } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as Floods from "./Floods.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string" },
    floods: { type: "string" },
    quick: { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const rounds = options.quick ? 1 : Math.max(1, Number(options.rounds ?? 3) || 3)

/** Lifetime of an attacker, unless its flood sets another. */
const attackSeconds = 5

const floods = Floods.floods.filter(({ name }) => options.floods?.split(",").includes(name) ?? true)

const secondsOf = ({ seconds }: Floods.Flood): number => seconds ?? attackSeconds

const quietSeconds = 4

/** Pause between a flood and quiet time. */
const settleSeconds = 1

/** Time after which a flood is abandoned. */
const floodSecondsMax = 90

const cpusMax = 1

const image = process.env["COGNI_RUNTIME_IMAGE"] ?? "cogni-sandbox/runtime:latest"

const say = (text: string) => process.stderr.write(`${text}\n`)

const upstream = Effect.acquireRelease(
  Effect.promise(async () => {
    const child = fork(new URL("./UpstreamProcess.ts", import.meta.url))
    const url = await new Promise<string>((resolve) =>
      child.once("message", (told) => resolve((told as { readonly url: string }).url))
    )
    return { child, url }
  }),
  ({ child }) => Effect.sync(() => void child.disconnect())
)

const spec = (account: string, program: string, runtimeSecondsMax: number): SandboxSpecInput => ({
  image,
  argv: ["node", "-e", program],
  limits: { cpusMax, runtimeSecondsMax, stopGraceSecondsMax: 0, processesMax: 64 },
  llm: {
    model: "m",
    models: { [Floods.slowModel]: Floods.slowModel },
    identity: { billingAccountId: account }
  }
})

/** Runs a spec, and passes on each line of its output. Returns how it ended, and never fails. */
const live = (input: SandboxSpecInput, onStart: Effect.Effect<unknown>, onLine: (line: string) => void) =>
  Effect.gen(function* () {
    const runner = yield* SandboxRunner.SandboxRunner
    let rest = ""
    return yield* runner.stream(input).pipe(
      Stream.runForEach((event) => {
        if (event._tag === "PostureVerified") return onStart
        if (event._tag === "OutputReceived" && event.channel === "stdout") {
          const lines = `${rest}${Buffer.from(event.bytes).toString("latin1")}`.split("\n")
          rest = lines.pop()!
          for (const line of lines) onLine(line)
        }
        return Effect.void
      }),
      Effect.match({
        onFailure: ({ message, reason }) => (reason._tag === "TimedOut" ? reason._tag : message),
        onSuccess: () => "ended"
      })
    )
  })

interface Call {
  readonly atMillis: number
  readonly millis: number
  readonly status: number
  readonly number: number
}

interface Window {
  readonly flood: string | undefined
  readonly fromMillis: number
  readonly toMillis: number
}

interface Life {
  readonly flood: string
  /** Measured by the sandbox's own beats. */
  readonly seconds: number
  /** Time until all resources of the run were removed. */
  readonly removedSeconds: number
  readonly end: string
}

const attack = Effect.fnUntraced(function* (flood: Floods.Flood) {
  const beats: Array<number> = []
  const cpus: Array<number> = []
  const before = Date.now()
  const end = yield* live(spec("attacker", Floods.attacker(flood), secondsOf(flood)), Effect.void, (line) => {
    const [word, value] = line.split(" ")
    if (word === "beat") beats.push(Number(value))
    if (word === "cpus") cpus.push(Number(value))
  }).pipe(
    Effect.timeoutOption(`${floodSecondsMax} seconds`),
    Effect.map((told) => (told._tag === "Some" ? told.value : "given up"))
  )
  const first = beats[0] ?? before
  const last = beats.at(-1) ?? Date.now()
  return {
    cpus,
    window: { flood: flood.name, fromMillis: first, toMillis: last } satisfies Window,
    life: {
      flood: flood.name,
      seconds: (last - first) / 1000,
      removedSeconds: (Date.now() - first) / 1000,
      end
    } satisfies Life
  }
})

interface Row extends Samples.Summary {
  readonly name: string
  readonly status503: number
  readonly otherFailures: number
  /** As multiples of the quiet values. */
  readonly p50Ratio: number
  readonly p99Ratio: number
  /** The longest lifetime of the attacker. */
  readonly attackerSeconds: number
  readonly removedSeconds: number
}

const hundredths = (value: number) => Math.round(value * 100) / 100

const rowsOf = (
  calls: ReadonlyArray<Call>,
  windows: ReadonlyArray<Window>,
  lives: ReadonlyArray<Life>
): ReadonlyArray<Row> => {
  const during = (flood: string | undefined) =>
    calls.filter(({ atMillis }) =>
      windows.some(
        (window) => window.flood === flood && atMillis >= window.fromMillis && atMillis <= window.toMillis
      )
    )
  const quiet = fine(during(undefined))
  return [undefined, ...floods.map(({ name }) => name)].map((flood) => {
    const own = during(flood)
    const summary = fine(own)
    const lived = lives.filter((life) => life.flood === flood)
    return {
      name: flood ?? "quiet",
      ...summary,
      p50Ratio: hundredths(summary.p50 / quiet.p50),
      p99Ratio: hundredths(summary.p99 / quiet.p99),
      status503: own.filter(({ status }) => status === 503).length,
      otherFailures: own.filter(({ status }) => status !== 200 && status !== 503).length,
      attackerSeconds: hundredths(Math.max(0, ...lived.map(({ seconds }) => seconds))),
      removedSeconds: hundredths(Math.max(0, ...lived.map(({ removedSeconds }) => removedSeconds)))
    }
  })
}

/** Rounds to a hundredth of a millisecond: a quiet call takes one or two. */
const fine = (calls: ReadonlyArray<Call>): Samples.Summary => {
  const sorted = calls.map(({ millis }) => millis).toSorted((a, b) => a - b)
  const at = (share: number) => hundredths(Samples.percentile(sorted, share))
  return {
    count: sorted.length,
    min: hundredths(sorted[0] ?? Number.NaN),
    p50: at(0.5),
    p95: at(0.95),
    p99: at(0.99)
  }
}

const barsOf = (
  rows: ReadonlyArray<Row>,
  cpus: ReadonlyArray<number>,
  unheard: number
): ReadonlyArray<Report.Bar> => {
  const attacked = rows.slice(1)
  return [
    ...attacked.flatMap(({ name, p50Ratio, p99Ratio }): ReadonlyArray<Report.Bar> => [
      { name: `${name}: p50, of quiet`, value: p50Ratio, atMost: 2 },
      { name: `${name}: p99, of quiet`, value: p99Ratio, atMost: 5 }
    ]),
    { name: "calls answered 503", value: rows.reduce((sum, row) => sum + row.status503, 0), atMost: 0 },
    {
      name: "calls that failed otherwise",
      value: rows.reduce((sum, row) => sum + row.otherFailures, 0),
      atMost: 0
    },
    { name: "calls never answered", value: unheard, atMost: 0 },
    ...floods.map((flood) => ({
      name: `${flood.name}: life of the attacker, beyond its limit, s`,
      value: hundredths(attacked.find(({ name }) => name === flood.name)!.attackerSeconds - secondsOf(flood)),
      atMost: 1
    })),
    { name: "processors of each side, at most", value: Math.max(...cpus), atMost: cpusMax },
    { name: "processors of each side, at least", value: Math.min(...cpus), atLeast: cpusMax }
  ]
}

const format = (
  machine: Readonly<Record<string, string | number>>,
  rows: ReadonlyArray<Row>,
  bars: ReadonlyArray<Report.Bar>
): string =>
  [
    `A sealed run starts a model call every ${Floods.callEveryMillis} ms, alone and beside a run of the same host process that floods its gateway. Each run has ${cpusMax} processor. The attacker's time limit is ${attackSeconds} s, or 10 s with stalled bodies.`,
    Report.table(
      [
        "ms",
        "n",
        "p50",
        "p95",
        "p99",
        "p50, of quiet",
        "p99, of quiet",
        "503",
        "failed",
        "attacker, s",
        "until removed, s"
      ],
      rows.map((row) => [
        row.name,
        row.count,
        row.p50,
        row.p95,
        row.p99,
        row.p50Ratio,
        row.p99Ratio,
        row.status503,
        row.otherFailures,
        ...(row.name === "quiet" ? ["", ""] : [row.attackerSeconds, row.removedSeconds])
      ])
    ),
    Report.barTable(bars),
    Report.taken({ takenAt: new Date().toISOString(), machine })
  ].join("\n\n")

const git = (...argv: ReadonlyArray<string>) => {
  try {
    return execFileSync("git", argv, { cwd: import.meta.dirname, encoding: "utf8" }).trim()
  } catch {
    return ""
  }
}

const machineOf = Effect.promise(async () => {
  const { Version: engine } = await new Docker().version()
  return {
    cores: availableParallelism(),
    kernel: release(),
    engine,
    node: process.version,
    "load before": Math.round(loadavg()[0]! * 10) / 10,
    rounds,
    commit: `${git("rev-parse", "--short", "HEAD") || "unknown"}${git("status", "--porcelain", "--", ":/packages") && " and changes"}`
  }
})

const measure = Effect.gen(function* () {
  const calls: Array<Call> = []
  const windows: Array<Window> = []
  const lives: Array<Life> = []
  const cpus: Array<number> = []
  const victimSecondsMax = 60 + rounds * floods.length * (quietSeconds + settleSeconds + floodSecondsMax)
  const started = yield* Deferred.make<void>()
  const victim = yield* live(
    spec("victim", Floods.victim(victimSecondsMax), victimSecondsMax + 60),
    Deferred.succeed(started, undefined),
    (line) => {
      const [word, at, millis, status, number] = line.split(" ")
      if (word === "cpus") cpus.push(Number(at))
      if (word === "call")
        calls.push({
          atMillis: Number(at),
          millis: Number(millis),
          status: Number(status),
          number: Number(number)
        })
    }
  ).pipe(Effect.forkScoped)
  yield* Effect.raceFirst(
    Deferred.await(started),
    Effect.andThen(Fiber.join(victim), (end) => Effect.die(new Error(`the victim did not start: ${end}`)))
  )
  yield* Effect.sleep("3 seconds")
  for (let round = 0; round < rounds; round++)
    for (const flood of Samples.rotate(floods, round)) {
      const fromMillis = Date.now()
      yield* Effect.sleep(`${quietSeconds} seconds`)
      windows.push({ flood: undefined, fromMillis, toMillis: Date.now() })
      const attacked = yield* attack(flood)
      windows.push(attacked.window)
      lives.push(attacked.life)
      cpus.push(...attacked.cpus)
      say(
        `${flood.name}: ${attacked.life.end} after ${attacked.life.seconds.toFixed(1)} s, removed after ${attacked.life.removedSeconds.toFixed(1)} s, ${calls.length} calls of the victim`
      )
      yield* Effect.sleep(`${settleSeconds} seconds`)
    }
  const lastMillis = Date.now()
  // Calls that have started are answered in this time, or never.
  yield* Effect.sleep("5 seconds")
  yield* Fiber.interrupt(victim)
  const heard = calls.filter(({ atMillis }) => atMillis <= lastMillis)
  const begun = 1 + Math.max(...heard.map(({ number }) => number))
  return { calls: heard, windows, lives, cpus, unheard: begun - heard.length }
})

const main = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-neighbours-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const machine = yield* machineOf
  const { url } = yield* upstream
  const runner = yield* Layer.build(
    SandboxRunner.layer.pipe(
      Layer.provide([
        HostWorkspace.layer(),
        FileRunStore.layer({ directory, trafficOf: "unknown" }),
        GatewayLlmProxy.layer({ url, key: Redacted.make("no-key-of-anybody"), carrier: "directory" }).pipe(
          Layer.provide(UsageObserver.layerNone)
        )
      ]),
      Layer.provide(DockerContainerRuntime.layer({ host: process.env["DOCKER_HOST"] }))
    )
  )
  const measured = yield* measure.pipe(Effect.provide(runner))
  const rows = rowsOf(measured.calls, measured.windows, measured.lives)
  const bars = barsOf(rows, measured.cpus, measured.unheard)
  const text = format(machine, rows, bars)
  Report.publish({
    name: "neighbours",
    title: "Neighbours, measured",
    text,
    data: { takenAt: new Date().toISOString(), machine, rows, lives: measured.lives, bars },
    bars,
    directory:
      options.output ??
      (options.quick || options.floods !== undefined ? undefined : join(import.meta.dirname, "results"))
  })
}).pipe(Effect.scoped)

NodeRuntime.runMain(main)
