/** `ContainerRuntime` on real Docker meets the same contract as the one in memory. */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntimeContract } from "@cogni/sandbox-core/testing"
import { ContainerRuntime, type ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { socketPath } from "@cogni/sandbox-core/SandboxPlace"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import { Duration, Effect, Exit, Layer, Scope, Stream } from "effect"
import { chmodSync, mkdtempSync, readlinkSync, rmSync } from "node:fs"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import * as Await from "../harness/Await.ts"
import { docker } from "../harness/Docker.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as SessionHarness from "../harness/SessionHarness.ts"

ContainerRuntimeContract.suite("docker", RunHarness.layer(), {
  image: Images.runtime,
  missingImage: Images.absent,
  user: { userId: 1000, groupId: 1000 },
  argv: ContainerRuntimeContract.shell
})

/** The agent container of a run, which runs a shell line. */
const specOf = (runId: RunId.RunId, line: string) =>
  Effect.map(SpecDecoder.decode({ image: Images.runtime, argv: ["sh"] }), ({ limits }): ContainerSpec => ({
    runId,
    role: "agent",
    image: Images.runtime,
    argv: ["sh", "-c", line],
    env: {},
    user: { userId: 1000, groupId: 1000 },
    mounts: [],
    network: { mode: "none" },
    limits
  }))

/** Starts an agent container that runs a shell line. */
const begun = Effect.fnUntraced(function* (runId: RunId.RunId, line: string) {
  const runtime = yield* ContainerRuntime
  const container = yield* runtime.acquire(yield* specOf(runId, line))
  yield* container.start
  yield* container.proceed
  return container
})

/** Runs a shell line in a sandbox that waited for it. */
const bound = Effect.fnUntraced(function* (line: string) {
  const { prepare } = yield* ContainerRuntime
  const spec = yield* specOf(yield* RunId.generate, line)
  if (prepare === undefined) return assert.fail("no sandbox can wait")
  const waiting = yield* prepare({ ...spec, waitingId: yield* RunId.generate, waitSecondsMax: 60 })
  const container = yield* waiting.bind(spec)
  yield* container.start
  yield* container.proceed
  return container
})

/** Runs a shell line in a sandbox that is started for it. */
const cold = (line: string) => Effect.flatMap(RunId.generate, (runId) => begun(runId, line))

const starts = { bound, cold }

layer(RunHarness.layer(), { excludeTestServices: true })("the network of a relay, on Docker", (it) => {
  it.effect(
    "is a namespace of its own, with nothing but lo and no route, which the engine does not make",
    () =>
      Effect.gen(function* () {
        const runtime = yield* ContainerRuntime
        const report = Effect.scoped(
          Effect.gen(function* () {
            const line =
              "readlink /proc/self/ns/net; ls /sys/class/net; tail -n +2 /proc/net/route; wc -c </etc/hosts"
            const spec = yield* specOf(yield* RunId.generate, line)
            const container = yield* runtime.acquire({ ...spec, role: "relay" })
            yield* container.start
            const output = yield* Stream.runCollect(container.output)
            const engine = JSON.parse(yield* docker("inspect", container.id))[0]
            return {
              lines: Buffer.concat(output.map(({ bytes }) => bytes))
                .toString()
                .trim()
                .split("\n"),
              asked: [engine.Config.NetworkDisabled, engine.HostConfig.NetworkMode]
            }
          })
        )
        const [one, other] = yield* Effect.all([report, report], { concurrency: "unbounded" })
        assert.deepStrictEqual(one.asked, [true, "none"])
        const [namespace, ...rest] = one.lines
        assert.deepStrictEqual(rest, ["lo", "0"])
        assert.match(namespace!, /^net:\[\d+\]$/u)
        assert.notInclude([readlinkSync("/proc/self/ns/net"), other.lines[0]], namespace)
      })
  )
})

layer(RunHarness.layer(), { excludeTestServices: true })("the end of an agent, on Docker", (it) => {
  it.effect.each(["bound", "cold"] as const)(
    "leaves only the first process when the exit is known (%s)",
    (start) =>
      Effect.gen(function* () {
        const container = yield* starts[start](
          "setsid sh -c 'while :; do echo .; done' & (trap '' TERM HUP; sleep 60) & echo done; exit 5"
        )
        const output = yield* Stream.runCollect(container.output)
        const { exitCode, isEmpty } = yield* container.exit
        assert.deepStrictEqual([exitCode, isEmpty], [5, true])
        assert.include(Buffer.concat(output.map(({ bytes }) => bytes)).toString(), "done\n")
        const [, ...processes] = (yield* docker("top", container.id, "-eo", "pid,args")).trim().split("\n")
        assert.strictEqual(processes.length, 1, processes.join("\n"))
        assert.include(processes[0], "cogni-init")
      })
  )

  it.effect.each(["bound", "cold"] as const)(
    "is reported by the engine after a signal from outside (%s)",
    (start) =>
      Effect.gen(function* () {
        const container = yield* starts[start]("sleep 60")
        yield* docker("kill", "--signal=TERM", container.id)
        const error = yield* Effect.flip(container.exit)
        assert.strictEqual(error._tag, "ContainerFailed")
        assert.include(error.message, "killed by another program")
      })
  )

  it.effect("is reported by the engine if another user's process cannot be ended from inside", () =>
    Effect.gen(function* () {
      const container = yield* cold("until [ -e /tmp/go ]; do sleep 0.02; done; exit 6")
      // Their parent ends, so one of them becomes a child of the first process.
      const line = "(sleep 600 &); touch /tmp/go; sleep 600"
      yield* docker("exec", "--detach", "--user=0", container.id, "sh", "-c", line)
      const { exitCode, isEmpty } = yield* container.exit
      assert.deepStrictEqual([exitCode, isEmpty], [6, undefined])
      assert.strictEqual(
        (yield* docker("inspect", "--format={{.State.Running}}", container.id)).trim(),
        "false"
      )
    })
  )

  it.effect("frees its run ID for the next container", () =>
    Effect.gen(function* () {
      const runId = yield* RunId.generate
      for (const exitCode of [0, 7]) {
        const exit = yield* Effect.scoped(
          Effect.flatMap(begun(runId, `exit ${exitCode}`), ({ exit }) => exit)
        )
        assert.deepStrictEqual([exit.exitCode, exit.isEmpty], [exitCode, true])
      }
    })
  )

  it.effect("does not end the empty container of a run while another run starts", () =>
    Effect.gen(function* () {
      const { acquire } = yield* ContainerRuntime
      const first = yield* RunId.generate
      const scope = yield* Scope.make()
      const container = yield* Scope.provide(begun(first, "exit 3"), scope)
      assert.strictEqual((yield* container.exit).isEmpty, true)
      const states = () => docker("ps", "--all", "--filter", `id=${container.id}`, "--format={{.State}}")
      let compared = 0
      yield* Effect.scoped(
        Effect.gen(function* () {
          const other = yield* acquire(yield* specOf(yield* RunId.generate, "true"))
          yield* Scope.close(scope, Exit.void)
          // Longer than the engine needs to notice an end, and less than the runtime waits for a quiet engine.
          const closed = performance.now()
          for (let asked = 0; asked < 8; asked++) {
            const state = (yield* states()).trim()
            if (performance.now() - closed > 4000) break
            assert.strictEqual(state, "running")
            compared++
          }
          assert.isAbove(compared, 0)
          yield* other.start
        })
      )
      yield* Await.until(
        "the container is removed",
        Effect.map(states(), (text) => text.trim() === "")
      )
    })
  )

  it.effect("lets no run wait for the removal of its container, and lets the runtime wait for it", () =>
    Effect.gen(function* () {
      const runId = yield* RunId.generate
      const api = yield* DockerApi.DockerApi
      let removed = 0
      const slow = DockerApi.DockerApi.of({
        ...api,
        remove: (id) =>
          Effect.andThen(
            Effect.sleep("2 seconds"),
            Effect.andThen(
              api.remove(id),
              Effect.sync(() => removed++)
            )
          )
      })
      const runtime = Layer.provide(
        DockerContainerRuntime.layerApi(Engine.runtime),
        Layer.succeed(DockerApi.DockerApi, slow)
      )
      yield* Effect.gen(function* () {
        yield* Effect.scoped(Effect.flatMap(begun(runId, "exit 0"), ({ exit }) => exit))
        assert.strictEqual(removed, 0, "the run has waited")
      }).pipe(Effect.provide(runtime))
      assert.strictEqual(removed, 1)
      assert.isUndefined(yield* api.inspect(`cogni-${runId}-agent`))
    })
  )
})

/** A directory with a model socket whose server answers the first request never, and the others after 1.2 s. */
const slowSocket = Effect.acquireRelease(
  Effect.promise(async () => {
    const directory = mkdtempSync(join(tmpdir(), "cogni-slow-"))
    chmodSync(directory, 0o755)
    let asked = 0
    const server = createServer((_request, response) => {
      if (++asked > 1) setTimeout(() => response.end("ok"), 1200)
    })
    const socket = join(directory, "llm.sock")
    await new Promise<void>((resolve) => server.listen(socket, resolve))
    chmodSync(socket, 0o666)
    return { directory, server }
  }),
  ({ directory, server }) =>
    Effect.sync(() => {
      server.closeAllConnections()
      server.close()
      rmSync(directory, { recursive: true, force: true })
    })
)

layer(RunHarness.layer(), { excludeTestServices: true })("a model socket of a busy host, on Docker", (it) => {
  it.effect("may answer after seconds", () =>
    Effect.gen(function* () {
      const { directory } = yield* slowSocket
      const { acquire } = yield* ContainerRuntime
      const container = yield* acquire({
        ...(yield* specOf(yield* RunId.generate, "exit 5")),
        env: { COGNI_SOCKET: socketPath },
        mounts: [{ type: "directory", source: directory, target: dirname(socketPath), readOnly: true }]
      })
      yield* container.start
      yield* container.proceed
      yield* Stream.runDrain(container.output)
      assert.strictEqual((yield* container.exit).exitCode, 5)
    })
  )
})

const neverResumes = Layer.effect(
  DockerApi.DockerApi,
  Effect.map(DockerApi.DockerApi, (api) => ({
    ...api,
    unpause: () =>
      Effect.fail(new ContainerFailed({ operation: "unpause", detail: "it is stuck", remedy: "Look at it" }))
  }))
).pipe(Layer.provide(Engine.api()))

layer(RunHarness.layer(), { excludeTestServices: true })("a paused container on Docker", (it) => {
  it.effect("does nothing while paused, and continues afterwards", () =>
    Effect.gen(function* () {
      const counting = yield* begun(yield* RunId.generate, "while :; do echo .; sleep 0.01; done")
      let bytes = 0
      yield* Effect.forkScoped(
        Stream.runForEach(counting.output, (chunk) => Effect.sync(() => (bytes += chunk.bytes.byteLength)))
      )
      const more = Effect.suspend(() => {
        const before = bytes
        return SessionHarness.eventually(
          "the container continues",
          Effect.sync(() => bytes > before)
        )
      })
      yield* more
      yield* counting.whilePaused(
        Effect.gen(function* () {
          // Lets output in transit arrive.
          yield* Effect.sleep("300 millis")
          const before = bytes
          yield* Effect.sleep("300 millis")
          assert.strictEqual(bytes, before)
        })
      )
      yield* more
    })
  )

  it.effect("stays paused if another program had paused it", () =>
    Effect.gen(function* () {
      const container = yield* begun(yield* RunId.generate, "sleep 60")
      yield* docker("pause", container.id)
      assert.strictEqual(yield* container.whilePaused(Effect.succeed("counted")), "counted")
      assert.strictEqual(yield* docker("inspect", "-f", "{{.State.Status}}", container.id), "paused")
      yield* docker("unpause", container.id)
    })
  )

  it.effect("can end at any moment of a pause without a failure", () =>
    Effect.forEach(
      Array.from({ length: 24 }, (_, index) => index),
      Effect.fnUntraced(function* (index) {
        const container = yield* begun(yield* RunId.generate, `sleep 0.${String(10 + 3 * index)}`)
        yield* Effect.forkScoped(Stream.runDrain(container.output))
        yield* Effect.raceFirst(
          Effect.forever(container.whilePaused(Effect.sleep("1 millis"))),
          container.exit
        )
        assert.strictEqual((yield* container.exit).exitCode, 0)
        yield* container.whilePaused(Effect.void)
      }, Effect.scoped),
      { concurrency: 4, discard: true }
    )
  )

  it.effect("fails if it cannot resume, and is still removed", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const runId = yield* RunId.generate
      yield* Effect.scoped(
        Effect.gen(function* () {
          const container = yield* begun(runId, "sleep 60")
          const error = yield* Effect.flip(container.whilePaused(Effect.void))
          assert.strictEqual(error._tag, "ContainerFailed")
          assert.include(error.message, "unpause")
          assert.isNotEmpty(yield* runtime.leftovers(runId))
          yield* container.stop(Duration.seconds(1))
        })
      )
      assert.deepStrictEqual(yield* runtime.leftovers(runId), [])
    }).pipe(Effect.provide(Layer.provide(DockerContainerRuntime.layerApi(Engine.runtime), neverResumes)))
  )
})
