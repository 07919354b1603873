/**
 * An engine that stops, crashes, hangs or is not there; a host process that is killed; a port that fails at any point:
 * each ends with the right error in bounded time, and with nothing left once the engine is back.
 *
 * The engines that are hurt here are private ones, and so are the host processes.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import {
  ContainerFailed,
  type Reason,
  RuntimeUnavailable,
  type SandboxError,
  WorkspaceFailed
} from "@cogni/sandbox-core/SandboxError"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { ContainerRuntimeFaults, LlmProxyFaults, WorkspaceFaults } from "../harness/faults/Fault.ts"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import { Duration, Effect, Exit, Fiber, Layer, Redacted } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as HostProcess from "../harness/HostProcess.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as PrivateEngine from "../harness/PrivateEngine.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as Pace from "../harness/Pace.ts"

const MiB = 1024 ** 2

/** Says that it is there, then stays. */
const sleeper = (image: string, seconds = 60): SandboxSpecInput => ({
  image,
  argv: ["sh", "-c", `echo up; sleep ${seconds}; echo over`],
  limits: { runtimeSecondsMax: seconds + 30, memoryBytesMax: 64 * MiB, processesMax: 32 }
})

const withModel = (spec: SandboxSpecInput): SandboxSpecInput => ({
  ...spec,
  llm: { model: "demo", identity: { billingAccountId: "account" } }
})

/** Files below a directory that hold this text. */
const filesWith = (directory: string, text: string): ReadonlyArray<string> =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => readFileSync(path, "latin1").includes(text))

const assertNothingLeft = Effect.fnUntraced(function* (host: string, directory: string) {
  assert.deepStrictEqual(
    [...(yield* PrivateEngine.labelledAt(host)), ...LeakCheck.directories(directory)],
    [],
    "left behind"
  )
  assert.deepStrictEqual(filesWith(directory, HostProcess.key), [], "files with the key")
})

/** How a run ends whose engine has `trouble` in the middle of it, and what there is when the engine is well again. */
const faulted = Effect.fnUntraced(
  function* (options: {
    readonly trouble: (engine: PrivateEngine.PrivateEngine) => Effect.Effect<void>
    /** After the run has ended. */
    readonly recovery?: (engine: PrivateEngine.PrivateEngine) => Effect.Effect<void>
    readonly seconds?: number
    readonly runtimeSecondsMax?: number
  }) {
    const engine = yield* PrivateEngine.acquire(Images.runtime)
    const directory = yield* RunHarness.Directory
    const spec = sleeper(engine.image, options.seconds)
    const host = yield* HostProcess.start({
      directory,
      host: engine.host,
      spec: { ...spec, limits: { ...spec.limits, runtimeSecondsMax: options.runtimeSecondsMax ?? 60 } }
    })
    yield* host.told("Output")
    const before = performance.now()
    yield* options.trouble(engine)
    const told = yield* host.last
    const seconds = (performance.now() - before) / 1000
    // It may still be trying to remove what it could not; from here on that is the next start's.
    yield* host.kill
    yield* options.recovery?.(engine) ?? Effect.void
    yield* PrivateEngine.reapAt(engine.host)
    yield* FileRunStore.make({ directory }).reap
    yield* assertNothingLeft(engine.host, directory)
    assert(told._tag === "Failed", `it did not fail: ${JSON.stringify(told)}`)
    return { ...told, seconds }
  },
  Effect.provide(RunHarness.Directory.layer, { local: true }),
  Effect.scoped
)

const engineReasons: ReadonlyArray<string> = [
  "RuntimeUnavailable",
  "ContainerFailed"
] satisfies ReadonlyArray<Reason["_tag"]>

describe.skipIf(PrivateEngine.obstacle !== undefined)("an engine in trouble", () => {
  it.live("it is stopped in the middle of a run, and started again", () =>
    Effect.gen(function* () {
      const end = yield* faulted({ trouble: (engine) => Effect.andThen(engine.terminate, engine.restart) })
      assert.include(engineReasons, end.reason, end.message)
      assert.match(end.message, /log|start/u)
      assert.isBelow(end.seconds, Pace.allowed(30))
    })
  )

  it.live("it is killed in the middle of a run, and started again", () =>
    Effect.gen(function* () {
      const end = yield* faulted({ trouble: (engine) => Effect.andThen(engine.kill, engine.restart) })
      assert.include(engineReasons, end.reason, end.message)
      assert.match(end.message, /log|start/u)
      assert.isBelow(end.seconds, Pace.allowed(30))
    })
  )

  it.live(
    "it hangs for a while: a run that is over by then has timed out, and is removed when it answers again",
    () =>
      Effect.gen(function* () {
        const end = yield* faulted({
          runtimeSecondsMax: 1,
          trouble: (engine) =>
            Effect.andThen(engine.freeze, Effect.andThen(Effect.sleep("4 seconds"), engine.thaw))
        })
        assert.strictEqual(end.reason, "TimedOut", end.message)
        assert.isBelow(end.seconds, Pace.allowed(15))
      })
  )

  it.live(
    "it stays away, or hangs for ever: the run gives up, and the next start removes what it could not",
    () =>
      Effect.gen(function* () {
        const [killed, frozen] = yield* Effect.all(
          [
            faulted({ trouble: (engine) => engine.kill, recovery: (engine) => engine.restart }),
            faulted({
              runtimeSecondsMax: 1,
              trouble: (engine) => engine.freeze,
              recovery: (engine) => engine.thaw
            })
          ],
          { concurrency: "unbounded" }
        )
        assert.strictEqual(killed.reason, "RuntimeUnavailable", killed.message)
        assert.match(killed.message, /start it/iu)
        assert.isBelow(killed.seconds, Pace.allowed(40))
        // Its time was over before anybody asked the engine for anything.
        assert.strictEqual(frozen.reason, "TimedOut", frozen.message)
        assert.isBelow(frozen.seconds, Pace.allowed(90))
      })
  )

  it.live("there is none, or only what a killed one left: each is told as what it is, with its remedy", () =>
    Effect.gen(function* () {
      const runtimeOf = (host: string) =>
        DockerApi.DockerApi.use((api) => api.ping).pipe(
          Effect.provide(DockerApi.layer({ host })),
          Effect.flip
        )
      const runOf = (host: string) =>
        SandboxRunner.SandboxRunner.use((runner) =>
          runner.run({ image: Images.runtime, argv: ["true"] })
        ).pipe(Effect.provide(runnerAt({ host, directory }), { local: true }), Effect.flip)
      const directory = yield* RunHarness.Directory
      const none = yield* runOf("unix:///nowhere/docker.sock")
      assert.strictEqual((none as SandboxError).reason._tag, "RuntimeUnavailable")
      assert.match(none.message, /there is no socket at.*DOCKER_HOST/su)

      const engine = yield* PrivateEngine.acquire(Images.runtime)
      yield* engine.kill
      for (const refused of [yield* runtimeOf(engine.host), yield* runOf(engine.host)]) {
        assert.match(refused.message, /left over from one that was killed.*Start it again/su)
      }
      // A pid file left over by that kill does not keep the next one from starting.
      yield* engine.restart
      assert.deepStrictEqual(yield* PrivateEngine.labelledAt(engine.host), [])
      assert.deepStrictEqual(LeakCheck.directories(directory), [])
    }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }))
  )
})

describe.skipIf(PrivateEngine.obstacle !== undefined)("a host process that is killed", () => {
  it.live(
    "what it left is removed and its record says so, reaped by its parent or not; a living one's is not touched",
    () =>
      Effect.gen(function* () {
        const engine = yield* PrivateEngine.acquire(Images.runtime)
        yield* engine.load(Images.proxy)
        const directory = yield* RunHarness.Directory
        const begin = (runId: string, seconds: number, options?: { readonly unreaped: boolean }) =>
          HostProcess.start(
            {
              directory,
              host: engine.host,
              proxyImage: Images.proxy,
              spec: withModel({ ...sleeper(engine.image, seconds), runId })
            },
            options
          ).pipe(Effect.tap((host) => host.told("Output")))
        const [reaped, unreaped] = yield* Effect.all(
          [begin("run-killed-reaped", 60), begin("run-killed-unreaped", 60, { unreaped: true })],
          { concurrency: "unbounded" }
        )
        const living = yield* begin("run-living", 3)
        yield* reaped.kill
        yield* unreaped.kill

        const report = yield* PrivateEngine.reapAt(engine.host)
        assert.deepStrictEqual(report.failed, [])
        assert.deepStrictEqual(
          report.removed.toSorted(),
          ["reaped", "unreaped"].flatMap((name) =>
            ["agent", "proxy", "socket"].map((role) => `cogni-run-killed-${name}-${role}`)
          )
        )
        assert.strictEqual(report.living, 3)

        const store = FileRunStore.make({ directory })
        assert.sameMembers(
          yield* store.reap,
          ["run-killed-reaped", "run-killed-unreaped"].map((id) => RunId.RunId.make(id))
        )
        const outcomes = (yield* store.store.list).map(({ outcome, runId }) => `${runId} ${outcome.status}`)
        assert.sameMembers(outcomes, [
          "run-killed-reaped abandoned",
          "run-killed-unreaped abandoned",
          "run-living running"
        ])

        const told = yield* living.last
        assert(told._tag === "Ended", JSON.stringify(told))
        assert.strictEqual(told.result.output.stdout.text, "up\nover\n")
        assert.deepStrictEqual((yield* PrivateEngine.reapAt(engine.host)).removed, [])
        yield* assertNothingLeft(engine.host, directory)
      }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }))
  )
})

describe.skipIf(PrivateEngine.obstacle !== undefined)(
  "a host process with a gateway's container, killed",
  () => {
    it.live("leaves nothing that is not removed: container, sockets, sandbox", () =>
      Effect.gen(function* () {
        const engine = yield* PrivateEngine.acquire(Images.runtime)
        yield* engine.load(Images.gateway)
        const directory = yield* RunHarness.Directory
        const host = yield* HostProcess.start({
          directory,
          host: engine.host,
          gatewayImage: Images.gateway,
          spec: withModel({ ...sleeper(engine.image, 60), runId: "run-killed-carried" })
        })
        yield* host.told("Output")
        assert.deepStrictEqual((yield* PrivateEngine.reapAt(engine.host)).removed, [])
        yield* host.kill
        const report = yield* PrivateEngine.reapAt(engine.host)
        assert.deepStrictEqual(report.failed, [])
        assert.strictEqual(report.removed.filter((name) => name.endsWith("-gateway")).length, 1)
        assert.strictEqual(report.removed.filter((name) => /-socket-\d+$/u.test(name)).length, 16)
        assert.include(report.removed, "cogni-run-killed-carried-agent")
        yield* FileRunStore.make({ directory }).reap
        yield* assertNothingLeft(engine.host, directory)
      }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }))
    )
  }
)

const runnerAt = (options: {
  readonly directory: string
  readonly host?: string
  readonly faults?: Faults | undefined
}) => {
  const { container = [], proxy = [], workspace = [] } = options.faults ?? {}
  const nginx = Layer.unwrap(
    Effect.map(DemoUpstream.acquire(), ({ url }) =>
      NginxLlmProxy.layer({
        image: Images.proxy,
        upstream: { type: "host", url: url },
        key: Redacted.make(HostProcess.key)
      })
    )
  )
  return SandboxRunner.layer.pipe(
    Layer.provide(options.faults === undefined ? LlmProxy.layerNoop : LlmProxyFaults.layer(nginx, proxy)),
    Layer.provide(FileRunStore.layer({ directory: options.directory })),
    Layer.provide(WorkspaceFaults.layer(HostWorkspace.layer(), workspace)),
    Layer.provide(
      ContainerRuntimeFaults.layer(DockerContainerRuntime.layer({ host: options.host }), container)
    )
  )
}

interface Faults {
  readonly container?: Parameters<typeof ContainerRuntimeFaults.layer>[1]
  readonly proxy?: Parameters<typeof LlmProxyFaults.layer>[1]
  readonly workspace?: Parameters<typeof WorkspaceFaults.layer>[1]
}

interface Schedule {
  readonly name: string
  readonly faults: Faults
  readonly expected: Reason["_tag"] | "interrupted" | "ended"
  readonly spec?: SandboxSpecInput
  /** Interrupt the run after so many milliseconds. */
  readonly interruptAfter?: number
}

const unavailable = new RuntimeUnavailable({ detail: "was planted to fail", remedy: "Take the fault out" })
const failed = new ContainerFailed({ operation: "planted", detail: "planted", remedy: "Take the fault out" })
const disk = new WorkspaceFailed({
  path: "/planted",
  detail: "was planted to fail",
  remedy: "Take the fault out"
})

const quick: SandboxSpecInput = { image: Images.runtime, argv: ["true"], limits: { stopGraceSecondsMax: 0 } }
const long = sleeper(Images.runtime, 30)
const { dieOnRelease, failNth, hang, slow } = ContainerRuntimeFaults

const schedules: ReadonlyArray<Schedule> = [
  {
    name: "create fails",
    faults: { container: [failNth("ContainerRuntime.acquire", 1, unavailable)] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "created, and the answer is lost",
    faults: { container: [failNth("ContainerRuntime.acquire", 1, unavailable, "after")] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "start fails",
    faults: { container: [failNth("Container.start", 1, failed)] },
    expected: "ContainerFailed"
  },
  {
    name: "started, and the answer is lost",
    faults: { container: [failNth("Container.start", 1, failed, "after")] },
    expected: "ContainerFailed"
  },
  {
    name: "proceed fails",
    faults: { container: [failNth("Container.proceed", 1, unavailable, "after")] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "the output breaks off",
    faults: { container: [failNth("Container.output", 1, unavailable)] },
    spec: long,
    expected: "RuntimeUnavailable"
  },
  {
    name: "the exit is never told",
    faults: { container: [failNth("Container.exit", 1, unavailable, "after")] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "a stop fails when time is up",
    faults: { container: [failNth("Container.stop", 1, unavailable)] },
    spec: { ...long, limits: { ...long.limits, runtimeSecondsMax: 1 } },
    expected: "TimedOut"
  },
  {
    name: "the release of the container dies",
    faults: { container: [dieOnRelease("ContainerRuntime.release")] },
    expected: "ended"
  },
  {
    name: "a hanging create is given up",
    faults: { container: [hang("ContainerRuntime.acquire", 1, "after")] },
    interruptAfter: 400,
    expected: "interrupted"
  },
  {
    name: "a hanging start is given up",
    faults: { container: [hang("Container.start", 1, "after")] },
    interruptAfter: 600,
    expected: "interrupted"
  },
  {
    name: "a hanging exit is given up",
    faults: { container: [hang("Container.exit", 1)] },
    interruptAfter: 800,
    expected: "interrupted"
  },
  {
    name: "a slow engine is given up",
    faults: {
      container: [slow("Container.start", "300 millis"), slow("ContainerRuntime.acquire", "200 millis")]
    },
    interruptAfter: 450,
    expected: "interrupted"
  },
  {
    name: "the workspace fails when it is there",
    faults: { workspace: [WorkspaceFaults.failNth("Workspace.acquire", 1, disk, "after")] },
    expected: "WorkspaceFailed"
  },
  {
    name: "the workspace cannot be measured",
    faults: { workspace: [WorkspaceFaults.failNth("Workspace.countedBytes", 1, disk)] },
    spec: long,
    expected: "WorkspaceFailed"
  },
  {
    name: "the release of the workspace dies",
    faults: { workspace: [WorkspaceFaults.dieOnRelease("Workspace.release")] },
    expected: "ended"
  },
  {
    name: "no volume for the socket",
    faults: { container: [failNth("ContainerRuntime.acquireVolume", 1, unavailable, "after")] },
    spec: withModel(quick),
    expected: "RuntimeUnavailable"
  },
  {
    name: "the second container fails",
    faults: { container: [failNth("ContainerRuntime.acquire", 2, unavailable, "after")] },
    spec: withModel(quick),
    expected: "RuntimeUnavailable"
  },
  {
    name: "the proxy is never ready",
    faults: { proxy: [LlmProxyFaults.hang("LlmProxy.ready", 1)] },
    spec: withModel(quick),
    interruptAfter: 700,
    expected: "interrupted"
  },
  {
    name: "the release of the proxy dies",
    faults: {
      proxy: [LlmProxyFaults.dieOnRelease("LlmProxy.release")],
      container: [dieOnRelease("ContainerRuntime.releaseVolume")]
    },
    spec: withModel(quick),
    expected: "ended"
  },
  ...[0, 8, 30, 90, 170, 260].map((interruptAfter): Schedule => ({
    name: `interrupted after ${interruptAfter} ms`,
    faults: {},
    spec: withModel(long),
    interruptAfter,
    expected: "interrupted"
  }))
]

layer(RunHarness.layer(), { excludeTestServices: true })("a port that fails", (it) => {
  for (const { expected, faults, interruptAfter, name, spec = quick } of schedules) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const directory = yield* RunHarness.Directory
        const runId = yield* RunId.generate
        const run = SandboxRunner.SandboxRunner.use((runner) => runner.run({ ...spec, runId })).pipe(
          // The layers of the harness are the same values, and must not be the ones that are used here.
          Effect.provide(runnerAt({ directory, faults }), { local: true })
        )
        const fiber = yield* Effect.forkChild(run)
        if (interruptAfter !== undefined) {
          yield* Effect.sleep(Duration.millis(interruptAfter))
          yield* Fiber.interrupt(fiber)
        }
        const exit = yield* Fiber.await(fiber)
        assert.strictEqual(endOf(exit), expected)
        const left = yield* ContainerRuntime.use((runtime) => runtime.leftovers(runId))
        assert.deepStrictEqual([...left, ...LeakCheck.directories(directory)], [], "left behind")
        assert.deepStrictEqual(filesWith(directory, HostProcess.key), [], "files with the key")
      })
    )
  }
})

const endOf = (exit: Exit.Exit<unknown, SandboxError | RuntimeUnavailable>): Schedule["expected"] => {
  if (Exit.isSuccess(exit)) return "ended"
  const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
  return failure === undefined ? "interrupted" : "reason" in failure ? failure.reason._tag : failure._tag
}
