/**
 * `./dev bench sessions`: the cost of a command in an open session, measured side by side with the engine's own exec.
 *
 *     --samples N     samples of each short command, at least 20 (default 200)
 *     --quick         20 samples and few sessions, to check that it works; not for measurements
 *     --output DIR    directory for sessions.json and sessions.md (default test/bench/results; none with --quick)
 *
 * The engine's exec, by its command line and by its bare API, runs in a container with the same isolation as ours: the
 * container of another session. All rows are measured in turns. Exits with 1 if a bar is missed.
 */
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as DockerSocket from "@cogni/sandbox-docker/DockerSocket"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as DockerSandbox from "@cogni/sandbox-sessions/sandbox/DockerSandbox"
import * as SandboxManager from "@cogni/sandbox-sessions/sandbox/SandboxManager"
import * as SessionWorkspaces from "@cogni/sandbox-sessions/sandbox/SessionWorkspaces"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Effect, Exit, Layer, Scope } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import * as Images from "../harness/Images.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"
import * as Contenders from "./SessionContenders.ts"
import * as SessionMemory from "./SessionMemory.ts"

const { values: options } = parseArgs({
  options: {
    samples: { type: "string" },
    quick: { type: "boolean", default: false },
    output: { type: "string" }
  }
})

const samples = options.quick ? 20 : Math.max(20, Number(options.samples ?? 200) || 200)
const opened = options.quick ? 3 : 30
const idle = options.quick ? 4 : 20
const many = { sessions: options.quick ? 6 : 50, commands: 20 }
const some = { sessions: options.quick ? 3 : 10, commands: 20 }
const warmUps = 3
const outputBytes = 1_000_000
const file = new Uint8Array(4096).fill(97)
const load = Math.round((loadavg()[0] ?? 0) * 10) / 10

const MiB = 1024 ** 2

const settings: DockerSandbox.SandboxSettings = {
  image: Images.runtime,
  limits: { runtimeSecondsMax: 3600, memoryBytesMax: 128 * MiB, processesMax: 64, stopGraceSecondsMax: 1 }
}

const say = (text: string) => process.stderr.write(`${text}\n`)

/** Milliseconds, rounded to a hundredth: a command takes two or three. */
interface Summary {
  readonly count: number
  readonly p50: number
  readonly p90: number
  readonly p99: number
}

const summarize = (millis: ReadonlyArray<number>): Summary => {
  const sorted = millis.toSorted((one, other) => one - other)
  const at = (share: number) => Math.round(Samples.percentile(sorted, share) * 100) / 100
  return { count: sorted.length, p50: at(0.5), p90: at(0.9), p99: at(0.99) }
}

type Row = Summary & { readonly name: string }

const timed = async (contender: Contenders.Contender): Promise<number> => {
  const before = performance.now()
  await contender()
  return performance.now() - before
}

/** Measures each contender once in every round. */
const inTurns = async (
  contenders: Readonly<Record<string, Contenders.Contender>>,
  count: number
): Promise<ReadonlyArray<Row>> => {
  const all = Object.entries(contenders)
  const millis = new Map<string, Array<number>>(all.map(([name]) => [name, []]))
  for (let round = -warmUps; round < count; round++) {
    for (const [name, contender] of Samples.rotate(all, round + warmUps)) {
      const one = await timed(contender)
      if (round >= 0) millis.get(name)!.push(one)
    }
  }
  return all.map(([name]) => ({ name, ...summarize(millis.get(name)!) }))
}

interface Load extends Row {
  readonly sessions: number
  readonly perSecond: number
  readonly succeeded: number
}

/** Runs commands in all sessions at the same time, one after the other in each. */
const atOnce = async (
  name: string,
  contenders: ReadonlyArray<Contenders.Contender>,
  commands: number
): Promise<Load> => {
  const millis: Array<number> = []
  let succeeded = 0
  const before = performance.now()
  await Promise.all(
    contenders.map(async (contender) => {
      for (let index = 0; index < commands; index++) {
        const begun = performance.now()
        await contender().then(
          () => succeeded++,
          (cause) => say(`  a command failed: ${String(cause)}`)
        )
        millis.push(performance.now() - begun)
      }
    })
  )
  const seconds = (performance.now() - before) / 1000
  return {
    name,
    sessions: contenders.length,
    ...summarize(millis),
    succeeded,
    perSecond: Math.round((contenders.length * commands) / seconds)
  }
}

const names = {
  ours: "true, in a session",
  api: "true, by the engine's bare API",
  cli: "true, by docker exec",
  oursOutput: "1 MB of output, in a session",
  apiOutput: "1 MB of output, by the bare API",
  write: "4 KiB written, in a session",
  read: "4 KiB read, in a session",
  first: "a new session and its first command",
  bareFirst: "create, start and exec, by the bare API"
} as const

const nameOf = ({ runId }: DockerSandbox.SessionSandbox) => `cogni-${runId}-agent`

type Manager = SandboxManager.SandboxManager["Service"]

/** Opens sessions at the same time, and returns them in order. */
const sessions = (manager: Manager, prefix: string, count: number) =>
  Effect.forEach(
    Array.from({ length: count }, (_, index) => `${prefix}-${index}`),
    (id) => manager.getOrCreate(id),
    { concurrency: "unbounded" }
  )

const shortCommands = Effect.fnUntraced(function* (manager: Manager, api: Contenders.BareApi) {
  const [own, other] = yield* sessions(manager, "short", 2)
  const container = nameOf(other!)
  const output = ["head", "-c", String(outputBytes), "/dev/zero"] as const
  const run = <A, E>(effect: Effect.Effect<A, E>) => Effect.runPromise(effect)
  return yield* Effect.promise(() =>
    inTurns(
      {
        [names.ours]: Contenders.ours(own!, ["true"]),
        [names.api]: () => api.exec(container, ["true"]),
        [names.cli]: Contenders.cli(container),
        [names.oursOutput]: Contenders.ours(own!, [...output], outputBytes),
        [names.apiOutput]: () => api.exec(container, output, outputBytes),
        [names.write]: () => run(own!.files.write("file", file)),
        [names.read]: () => run(own!.files.read("file"))
      },
      samples
    )
  )
}, Effect.scoped)

/** Measures the time up to the end of the first command. */
const firstCommands = Effect.fnUntraced(function* (manager: Manager, api: Contenders.BareApi) {
  let count = 0
  const millis = { [names.first]: [] as Array<number>, [names.bareFirst]: [] as Array<number> }
  const one = Effect.gen(function* () {
    const scope = yield* Scope.make()
    const id = `first-${count++}`
    const before = performance.now()
    const sandbox = yield* Scope.provide(manager.getOrCreate(id), scope)
    yield* sandbox.exec(["true"])
    millis[names.first].push(performance.now() - before)
    yield* Scope.close(scope, Exit.void)
    yield* manager.destroy(id)
  })
  const bare = Effect.promise(async () => {
    const before = performance.now()
    const container = await api.create(Images.runtime)
    try {
      await api.start(container)
      await api.exec(container, ["true"])
      millis[names.bareFirst].push(performance.now() - before)
    } finally {
      await api.remove(container)
    }
  })
  for (let round = 0; round < opened + 1; round++) {
    yield* Effect.forEach(Samples.rotate([one, bare], round), (next) => next)
    // The first round warms up the compiler and the page cache.
    if (round === 0) for (const all of Object.values(millis)) all.length = 0
  }
  return Object.entries(millis).map(([name, all]) => ({ name, ...summarize(all) }))
})

const underLoad = Effect.fnUntraced(function* (manager: Manager, api: Contenders.BareApi) {
  const before = performance.now()
  const all = yield* sessions(manager, "load", many.sessions)
  const openSeconds = Math.round((performance.now() - before) / 100) / 10
  const ours = (count: number) => all.slice(0, count).map((sandbox) => Contenders.ours(sandbox, ["true"]))
  const bare = (count: number) =>
    all.slice(0, count).map((sandbox) => () => api.exec(nameOf(sandbox), ["true"]))
  return yield* Effect.promise(async () => ({
    openSeconds,
    rows: [
      await atOnce("sessions", ours(many.sessions), many.commands),
      await atOnce("sessions", ours(some.sessions), some.commands),
      await atOnce("bare API", bare(some.sessions), some.commands)
    ]
  }))
}, Effect.scoped)

const memory = Effect.fnUntraced(function* (manager: Manager) {
  // The first session loads what all sessions share.
  yield* Effect.scoped(Effect.flatMap(manager.getOrCreate("warm"), (sandbox) => sandbox.exec(["true"])))
  yield* manager.destroyAll
  const before = SessionMemory.ofThisProcess()
  const all = yield* sessions(manager, "idle", idle)
  yield* Effect.forEach(all, (sandbox) => sandbox.exec(["true"]))
  yield* Effect.sleep("1 second")
  const each = yield* Effect.forEach(all, (sandbox) =>
    Effect.promise(() => SessionMemory.ofContainer(nameOf(sandbox)))
  )
  const host = (SessionMemory.ofThisProcess() - before) / idle
  const mean = (of: (one: SessionMemory.Memory) => number) =>
    Math.round((each.reduce((sum, one) => sum + of(one), 0) / each.length / MiB) * 100) / 100
  return {
    "in the container, PSS of its processes": mean((one) => one.proportional),
    "in the container, anonymous": mean((one) => one.anonymous),
    "in the container, all but the page cache": mean((one) => one.withoutCache),
    "in this process, resident": Math.round((host / MiB) * 100) / 100,
    "the engine's (containerd-shim), resident": mean((one) => one.shim)
  }
}, Effect.scoped)

interface Found {
  readonly rows: ReadonlyArray<Row>
  readonly load: { readonly openSeconds: number; readonly rows: ReadonlyArray<Load> }
  readonly memory: Readonly<Record<string, number>>
}

const barsOf = ({ load: { rows: loads }, rows }: Found): ReadonlyArray<Report.Bar> => {
  const p50 = (name: string) => rows.find((row) => row.name === name)!.p50
  const ratio = (over: string, under: string) => Math.round((p50(over) / p50(under)) * 1000) / 1000
  const [all, ours, bare] = loads as [Load, Load, Load]
  return [
    { name: "true: session / bare API, p50", value: ratio(names.ours, names.api), atMost: 1.2 },
    { name: "true: session / docker exec, p50", value: ratio(names.ours, names.cli) },
    { name: "1 MB of output: session / bare API, p50", value: ratio(names.oursOutput, names.apiOutput) },
    { name: "first command: session / bare API, p50", value: ratio(names.first, names.bareFirst) },
    {
      name: `commands a second, ${ours.sessions} at once: session / bare API`,
      value: Math.round((ours.perSecond / bare.perSecond) * 10) / 10
    },
    {
      name: `commands of ${all.sessions} sessions at once that succeeded, %`,
      value: Math.round((all.succeeded / all.count) * 1000) / 10,
      atLeast: 100
    }
  ]
}

const format = (
  found: Found,
  bars: ReadonlyArray<Report.Bar>,
  machine: Report.Report["machine"],
  takenAt: string
): string =>
  [
    "Milliseconds from the call to its answer. All rows are measured in turns; the engine's container has the same isolation as a session's.",
    Report.table(
      ["one at a time", "n", "p50", "p90", "p99"],
      found.rows.map(({ count, name, p50, p90, p99 }) => [name, count, p50, p90, p99])
    ),
    Report.table(
      ["at once", "how many", "commands", "succeeded", "commands/s", "p50", "p90", "p99"],
      found.load.rows.map((row) => [
        row.name,
        row.sessions,
        row.count,
        row.succeeded,
        row.perSecond,
        row.p50,
        row.p90,
        row.p99
      ])
    ),
    `${many.sessions} sessions requested at once were open after ${found.load.openSeconds} s.`,
    Report.table(["an idle session takes", "MiB"], Object.entries(found.memory)),
    Report.barTable(bars),
    Report.taken({ takenAt, machine })
  ].join("\n\n")

const main = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-bench-sessions-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const runner = SandboxRunner.layer.pipe(
    Layer.provide([
      HostWorkspace.layer(),
      FileRunStore.layer({ directory, trafficOf: "unknown" }),
      LlmProxy.layerNoop
    ]),
    Layer.provide(DockerContainerRuntime.layer())
  )
  const services = Layer.merge(
    DockerSandbox.layer.pipe(Layer.provide(runner)),
    SessionWorkspaces.layerTemporary
  )
  const manager = yield* SandboxManager.make({ settings, sessionsMax: many.sessions }).pipe(
    Effect.provide(services)
  )
  const api = Contenders.bareApi(DockerSocket.defaultPath)

  // First, because a process seldom returns memory to the system.
  say(`memory of ${idle} idle sessions`)
  const taken = yield* memory(manager)
  yield* manager.destroyAll
  say(`one at a time: ${samples} rounds of short commands, ${opened} of new sessions`)
  const rows = [...(yield* shortCommands(manager, api)), ...(yield* firstCommands(manager, api))]
  yield* manager.destroyAll
  say(`${many.sessions} sessions at once`)
  const found: Found = { rows, memory: taken, load: yield* underLoad(manager, api) }

  const bars = barsOf(found)
  const machine = {
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
    // A load near the number of cores is from other programs, and makes the ratios unreliable.
    "load before": load
  }
  const takenAt = new Date(yield* Clock.currentTimeMillis).toISOString()
  const text = format(found, bars, machine, takenAt)
  Report.publish({
    name: "sessions",
    title: "Sessions, measured",
    text,
    data: { takenAt, machine, ...found, bars },
    bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
}).pipe(Effect.scoped)

NodeRuntime.runMain(main)
