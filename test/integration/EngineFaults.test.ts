/**
 * Faults of the engine, the host process and the ports: an engine that stops, crashes, hangs or is missing, a killed
 * host process, a port that fails at any point. Each ends with the right error in bounded time, and leaves nothing
 * once the engine is back.
 *
 * The tests damage private engines and their own host processes only.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import { type Reason, type SandboxError } from "@cogni/sandbox-core/SandboxError"
import {
  ContainerFailed,
  type Misconfigured,
  RuntimeUnavailable,
  WorkspaceFailed
} from "@cogni/sandbox-core/SandboxReason"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
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

/** Spec of a program that prints `up` and sleeps. */
const sleeper = (image: string, seconds = Pace.runSecondsMax): SandboxSpecInput => ({
  image,
  argv: ["sh", "-c", `echo up; sleep ${seconds}; echo over`],
  limits: { runtimeSecondsMax: seconds + 30, memoryBytesMax: 64 * MiB, processesMax: 32 }
})

const withModel = (spec: SandboxSpecInput): SandboxSpecInput => ({
  ...spec,
  llm: { model: "demo", identity: { billingAccountId: "account" } }
})

/** Finds files below a directory that contain a text. */
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

/** Runs `trouble` on the engine during a run, and returns how the run failed. Nothing may be left after recovery. */
const faulted = Effect.fnUntraced(
  function* (options: {
    readonly trouble: (engine: PrivateEngine.PrivateEngine) => Effect.Effect<void>
    /** Runs after the end of the run. */
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
      spec: {
        ...spec,
        limits: { ...spec.limits, runtimeSecondsMax: options.runtimeSecondsMax ?? Pace.runSecondsMax }
      }
    })
    yield* host.told("Output")
    const before = performance.now()
    yield* options.trouble(engine)
    const told = yield* host.last
    const seconds = (performance.now() - before) / 1000
    // The host may still be retrying its cleanup. From here on, the next start must do it.
    yield* host.kill
    yield* options.recovery?.(engine) ?? Effect.void
    yield* PrivateEngine.reapAt(engine.host)
    yield* FileRunStore.make({ directory, trafficOf: "unknown" }).reap
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

describe.skipIf(PrivateEngine.obstacle !== undefined)("engine faults", () => {
  it.live("a run fails if the engine is stopped and restarted during it", () =>
    Effect.gen(function* () {
      const end = yield* faulted({ trouble: (engine) => Effect.andThen(engine.terminate, engine.restart) })
      assert.include(engineReasons, end.reason, end.message)
      assert.match(end.message, /log|start/u)
      assert.isBelow(end.seconds, Pace.allowed(30))
    })
  )

  it.live("a run fails if the engine is killed and restarted during it", () =>
    Effect.gen(function* () {
      const end = yield* faulted({ trouble: (engine) => Effect.andThen(engine.kill, engine.restart) })
      assert.include(engineReasons, end.reason, end.message)
      assert.match(end.message, /log|start/u)
      assert.isBelow(end.seconds, Pace.allowed(30))
    })
  )

  it.live("a run times out while the engine hangs, and is removed when the engine answers again", () =>
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

  it.live("a run gives up if the engine stays down or hangs, and the next start removes the leftovers", () =>
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
      // The run timed out before its host asked the engine for anything.
      assert.strictEqual(frozen.reason, "TimedOut", frozen.message)
      assert.isBelow(frozen.seconds, Pace.allowed(90))
    })
  )

  it.live(
    "a missing socket, and a socket left by a killed engine, each have their own error and remedy",
    () =>
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
        const none = yield* runOf("unix:///proc/nowhere/docker.sock")
        assert.strictEqual((none as SandboxError).reason._tag, "RuntimeUnavailable")
        assert.match(none.message, /there is no socket at.*DockerApi\.host/su)

        const engine = yield* PrivateEngine.acquire(Images.runtime)
        yield* engine.kill
        for (const refused of [yield* runtimeOf(engine.host), yield* runOf(engine.host)]) {
          assert.match(refused.message, /left over from a killed engine.*Start it again/su)
        }
        // The pid file that the kill left does not prevent a restart.
        yield* engine.restart
        assert.deepStrictEqual(yield* PrivateEngine.labelledAt(engine.host), [])
        assert.deepStrictEqual(LeakCheck.directories(directory), [])
      }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }))
  )
})

describe.skipIf(PrivateEngine.obstacle !== undefined)("a killed host process", () => {
  it.live(
    "its resources are removed and its record is abandoned, reaped by its parent or not; living runs are untouched",
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
          [
            begin("run-killed-reaped", Pace.runSecondsMax),
            begin("run-killed-unreaped", Pace.runSecondsMax, { unreaped: true })
          ],
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

        const store = FileRunStore.make({ directory, trafficOf: "unknown" })
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

describe.skipIf(PrivateEngine.obstacle !== undefined)("the next start of a library", () => {
  it.live("removes what a killed host process left, and nothing of a living one", () =>
    Effect.gen(function* () {
      const engine = yield* PrivateEngine.acquire(Images.runtime)
      const directory = yield* RunHarness.Directory
      const begin = (runId: string, options: { readonly reap?: boolean; readonly seconds?: number } = {}) =>
        HostProcess.start({
          directory,
          host: engine.host,
          reap: options.reap ?? false,
          spec: { ...sleeper(engine.image, options.seconds), runId }
        }).pipe(Effect.tap((host) => host.told("Output")))
      const [killed, living] = yield* Effect.all([begin("run-killed"), begin("run-living")], {
        concurrency: "unbounded"
      })
      yield* killed.kill
      const next = yield* begin("run-next", { reap: true, seconds: 1 })
      const left = yield* PrivateEngine.labelledAt(engine.host)
      assert.notInclude(left, "container cogni-run-killed-agent")
      assert.include(left, "container cogni-run-living-agent")
      const told = yield* next.last
      assert(told._tag === "Ended", JSON.stringify(told))

      yield* living.kill
      assert.deepStrictEqual((yield* PrivateEngine.reapAt(engine.host)).removed, ["cogni-run-living-agent"])
      yield* FileRunStore.make({ directory, trafficOf: "unknown" }).reap
      yield* assertNothingLeft(engine.host, directory)
    }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }))
  )
})

describe.skipIf(PrivateEngine.obstacle !== undefined)(
  "a killed host process with a gateway container",
  () => {
    it.live("leaves a container, sockets and a sandbox, which are all removed", () =>
      Effect.gen(function* () {
        const engine = yield* PrivateEngine.acquire(Images.runtime)
        yield* engine.load(Images.gateway)
        const directory = yield* RunHarness.Directory
        const host = yield* HostProcess.start({
          directory,
          host: engine.host,
          gatewayImage: Images.gateway,
          spec: withModel({ ...sleeper(engine.image), runId: "run-killed-carried" })
        })
        yield* host.told("Output")
        assert.deepStrictEqual((yield* PrivateEngine.reapAt(engine.host)).removed, [])
        yield* host.kill
        const report = yield* PrivateEngine.reapAt(engine.host)
        assert.deepStrictEqual(report.failed, [])
        assert.strictEqual(report.removed.filter((name) => name.endsWith("-gateway")).length, 1)
        assert.strictEqual(report.removed.filter((name) => /-socket-\d+$/u.test(name)).length, 16)
        assert.include(report.removed, "cogni-run-killed-carried-agent")
        yield* FileRunStore.make({ directory, trafficOf: "unknown" }).reap
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
      }).pipe(Layer.provide(UsageObserver.layerNone))
    )
  )
  return SandboxRunner.layer.pipe(
    Layer.provide(options.faults === undefined ? LlmProxy.layerNoop : LlmProxyFaults.layer(nginx, proxy)),
    Layer.provide(FileRunStore.layer({ directory: options.directory, trafficOf: "unknown" })),
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
  /** Milliseconds after which the run is interrupted. */
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
    name: "fails if create fails",
    faults: { container: [failNth("ContainerRuntime.acquire", 1, unavailable)] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "fails if the answer to create is lost",
    faults: { container: [failNth("ContainerRuntime.acquire", 1, unavailable, "after")] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "fails if start fails",
    faults: { container: [failNth("Container.start", 1, failed)] },
    expected: "ContainerFailed"
  },
  {
    name: "fails if the answer to start is lost",
    faults: { container: [failNth("Container.start", 1, failed, "after")] },
    expected: "ContainerFailed"
  },
  {
    name: "fails if the answer to proceed is lost",
    faults: { container: [failNth("Container.proceed", 1, unavailable, "after")] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "fails if the output breaks off",
    faults: { container: [failNth("Container.output", 1, unavailable)] },
    spec: long,
    expected: "RuntimeUnavailable"
  },
  {
    name: "fails if the exit code is lost",
    faults: { container: [failNth("Container.exit", 1, unavailable, "after")] },
    expected: "RuntimeUnavailable"
  },
  {
    name: "times out even if stop fails",
    faults: { container: [failNth("Container.stop", 1, unavailable)] },
    spec: { ...long, limits: { ...long.limits, runtimeSecondsMax: 1 } },
    expected: "TimedOut"
  },
  {
    name: "ends normally if the release of the container dies",
    faults: { container: [dieOnRelease("ContainerRuntime.release")] },
    expected: "ended"
  },
  {
    name: "interrupts a hanging create",
    faults: { container: [hang("ContainerRuntime.acquire", 1, "after")] },
    interruptAfter: 400,
    expected: "interrupted"
  },
  {
    name: "interrupts a hanging start",
    faults: { container: [hang("Container.start", 1, "after")] },
    interruptAfter: 600,
    expected: "interrupted"
  },
  {
    name: "interrupts a hanging exit",
    faults: { container: [hang("Container.exit", 1)] },
    interruptAfter: 800,
    expected: "interrupted"
  },
  {
    name: "interrupts a slow engine",
    faults: {
      container: [slow("Container.start", "300 millis"), slow("ContainerRuntime.acquire", "200 millis")]
    },
    interruptAfter: 450,
    expected: "interrupted"
  },
  {
    name: "fails if the answer to the creation of the workspace is lost",
    faults: { workspace: [WorkspaceFaults.failNth("Workspace.acquire", 1, disk, "after")] },
    expected: "WorkspaceFailed"
  },
  {
    name: "fails if the workspace cannot be measured",
    faults: { workspace: [WorkspaceFaults.failNth("Workspace.countedBytes", 1, disk)] },
    spec: long,
    expected: "WorkspaceFailed"
  },
  {
    name: "ends normally if the release of the workspace dies",
    faults: { workspace: [WorkspaceFaults.dieOnRelease("Workspace.release")] },
    expected: "ended"
  },
  {
    name: "fails if the socket volume fails",
    faults: { container: [failNth("ContainerRuntime.acquireVolume", 1, unavailable, "after")] },
    spec: withModel(quick),
    expected: "RuntimeUnavailable"
  },
  {
    name: "fails if the second container fails",
    faults: { container: [failNth("ContainerRuntime.acquire", 2, unavailable, "after")] },
    spec: withModel(quick),
    expected: "RuntimeUnavailable"
  },
  {
    name: "interrupts a proxy that is never ready",
    faults: { proxy: [LlmProxyFaults.hang("LlmProxy.ready", 1)] },
    spec: withModel(quick),
    interruptAfter: 700,
    expected: "interrupted"
  },
  {
    name: "ends normally if the release of the proxy dies",
    faults: {
      proxy: [LlmProxyFaults.dieOnRelease("LlmProxy.release")],
      container: [dieOnRelease("ContainerRuntime.releaseVolume")]
    },
    spec: withModel(quick),
    expected: "ended"
  },
  ...[0, 8, 30, 90, 170, 260].map((interruptAfter): Schedule => ({
    name: `is interrupted after ${interruptAfter} ms`,
    faults: {},
    spec: withModel(long),
    interruptAfter,
    expected: "interrupted"
  }))
]

layer(RunHarness.layer(), { excludeTestServices: true })("a run with a failing port", (it) => {
  for (const { expected, faults, interruptAfter, name, spec = quick } of schedules) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const directory = yield* RunHarness.Directory
        const runId = yield* RunId.generate
        const run = SandboxRunner.SandboxRunner.use((runner) => runner.run({ ...spec, runId })).pipe(
          // Without `local`, the memoized layers of the harness would be used instead.
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

const endOf = (
  exit: Exit.Exit<unknown, Misconfigured | SandboxError | RuntimeUnavailable>
): Schedule["expected"] => {
  if (Exit.isSuccess(exit)) return "ended"
  const failure = exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
  return failure === undefined ? "interrupted" : "reason" in failure ? failure.reason._tag : failure._tag
}
