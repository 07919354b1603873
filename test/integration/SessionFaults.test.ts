/**
 * Faults of sessions on real Docker: a container that is killed from outside, an engine that restarts, a killed host
 * process, a caller that gives up. Each fails with the right error in bounded time, leaves nothing behind, and keeps
 * persistent workspaces.
 *
 * The tests damage private engines and their own host processes only.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import type { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import type { SessionSandbox } from "@cogni/sandbox-sessions/sandbox/DockerSandbox"
import { Duration, Effect, Fiber, Layer, Redacted } from "effect"
import { docker } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as PrivateEngine from "../harness/PrivateEngine.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as SessionHarness from "../harness/SessionHarness.ts"
import * as SessionProcess from "../harness/SessionProcess.ts"

const { containerOf, said, within } = SessionHarness

const options = { excludeTestServices: true } as const

/** Asserts that the request fails in time with one of these reasons. */
const fails = Effect.fnUntraced(function* <A>(
  asked: Effect.Effect<A, { readonly _tag: string; readonly message: string }>,
  tags: ReadonlyArray<Reason["_tag"]>,
  secondsMax = 15
) {
  const { value } = yield* within(secondsMax, Effect.flip(asked))
  assert.strictEqual(value._tag, "SandboxError", value.message)
  const { reason } = value as SandboxError
  assert.include(tags, reason._tag, value.message)
  return reason
})

const sleeping = (sandbox: SessionSandbox) => said(sandbox, "cat /proc/[0-9]*/comm | grep -cx sleep; true")

layer(RunHarness.layer(), options)("a session's container", (it) => {
  for (const [name, hurt] of [
    ["killed", (container: string) => docker("kill", container)],
    ["removed", (container: string) => docker("rm", "--force", container)],
    ["stopped", (container: string) => docker("stop", "--time", "1", container)]
  ] as const) {
    it.effect(`that is ${name} from outside ends its commands, and the next container is new`, () =>
      Effect.gen(function* () {
        const manager = yield* SessionHarness.manager({ keeps: true })
        const first = yield* manager.getOrCreate("chat")
        yield* first.exec("echo kept > file; echo lost > /tmp/file")
        const waiting = yield* Effect.forkChild(Effect.flip(first.exec("echo begun; sleep 300")))
        yield* Effect.sleep("200 millis")
        yield* hurt(containerOf(first.runId))
        const reason = yield* fails(Effect.flip(Fiber.join(waiting)), [
          "ContainerFailed",
          "RuntimeUnavailable"
        ])
        assert.match(reason.message, /(?:killed|removed) by another program/u)
        // The old sandbox fails for later callers too.
        yield* fails(first.exec("true"), ["ContainerFailed", "RuntimeUnavailable"])
        yield* fails(first.files.read("file"), ["ContainerFailed", "RuntimeUnavailable"])
        assert.isFalse(yield* first.isRunning)
        const { value: second } = yield* within(15, manager.getOrCreate("chat"))
        assert.notStrictEqual(second.runId, first.runId)
        assert.strictEqual(yield* said(second, "cat file; ls /tmp"), "kept")
        assert.deepStrictEqual(yield* SessionHarness.containers(first.runId), [])
      })
    )
  }

  it.effect("that is paused delays commands up to their time limit, and continues when resumed", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager()
      const sandbox = yield* manager.getOrCreate("chat")
      yield* docker("pause", containerOf(sandbox.runId))
      yield* fails(sandbox.exec("sleep 301", { timeoutSecondsMax: 1 }), ["CommandTimedOut"], 30)
      // Input larger than the pipes also fails in time if it is not read.
      const stdin = new Uint8Array(4 * 1024 ** 2)
      yield* Effect.all(
        [
          fails(sandbox.exec("sleep 302", { timeoutSecondsMax: 1, stdin }), ["ContainerFailed"], 40),
          fails(sandbox.files.write("file", stdin), ["ContainerFailed"], 40)
        ],
        { concurrency: "unbounded" }
      )
      yield* docker("unpause", containerOf(sandbox.runId))
      // Commands that could not be killed meanwhile are killed once the supervisor has read its input. Until then it
      // refuses commands.
      yield* SessionHarness.eventually(
        "no sleep is left",
        Effect.map(sleeping(sandbox), (count) => count === "0").pipe(Effect.orElseSucceed(() => false))
      )
      assert.strictEqual(yield* said(sandbox, "echo alive"), "alive")
      yield* docker("pause", containerOf(sandbox.runId))
      const { millis } = yield* within(30, manager.destroy("chat"))
      assert.isBelow(millis, 20_000)
    })
  )
})

layer(RunHarness.layer(), options)("a caller that gives up", (it) => {
  it.effect("has its command killed in the sandbox, with its children", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager()
      const sandbox = yield* manager.getOrCreate("chat")
      for (const waitMillis of [0, 1, 5, 50, 200]) {
        const fiber = yield* Effect.forkChild(sandbox.exec("setsid sleep 301 & sleep 302"), {
          startImmediately: true
        })
        yield* Effect.sleep(Duration.millis(waitMillis))
        const { millis } = yield* within(15, Fiber.interrupt(fiber))
        assert.isBelow(millis, 5000)
        assert.strictEqual(yield* sleeping(sandbox), "0")
      }
    })
  )

  it.effect("leaves nothing of a new session, at any point of its creation", () =>
    Effect.gen(function* () {
      for (const waitMillis of [0, 2, 10, 25, 50, 100, 150, 200, 300]) {
        const { millis } = yield* within(
          40,
          Effect.scoped(
            Effect.gen(function* () {
              const manager = yield* SessionHarness.manager()
              const fiber = yield* Effect.forkChild(Effect.scoped(manager.getOrCreate("chat")), {
                startImmediately: true
              })
              yield* Effect.sleep(Duration.millis(waitMillis))
              yield* Fiber.interrupt(fiber)
            })
          )
        )
        assert.isBelow(millis, 15_000)
        assert.deepStrictEqual(yield* LeakCheck.leftovers, [], `after ${waitMillis} ms`)
        assert.deepStrictEqual(LeakCheck.directories(yield* RunHarness.Directory), [])
      }
      // While the manager lives, the session becomes idle and is evicted.
      const manager = yield* SessionHarness.manager({ idleSeconds: 1 })
      const fiber = yield* Effect.forkChild(Effect.scoped(manager.getOrCreate("chat")), {
        startImmediately: true
      })
      yield* Effect.sleep("20 millis")
      yield* Fiber.interrupt(fiber)
      yield* SessionHarness.eventually(
        "nothing is left",
        Effect.map(LeakCheck.leftovers, ({ length }) => length === 0)
      )
    })
  )
})

const proxy = Layer.unwrap(
  Effect.map(DemoUpstream.acquire(), ({ url }) =>
    GatewayLlmProxy.layer({ url: url, key: Redacted.make("no-key-of-anybody") }).pipe(
      Layer.provide(UsageObserver.layerNone)
    )
  )
)

layer(RunHarness.layer(proxy), options)("a session with a model inside", (it) => {
  it.effect("keeps access to the model after a command is killed or kills its keeper", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager({
        settings: {
          ...SessionHarness.settings,
          llm: { model: "demo", identity: { billingAccountId: "account" } }
        }
      })
      const sandbox = yield* manager.getOrCreate("chat")
      const ask =
        "printf 'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | " +
        "socat -t 5 - TCP4:127.0.0.1:8080,shut-none | head -n 1 | cut -d ' ' -f 2"
      assert.strictEqual(yield* said(sandbox, ask), "200")
      yield* fails(sandbox.exec("sleep 301", { timeoutSecondsMax: 1 }), ["CommandTimedOut"])
      assert.strictEqual(yield* said(sandbox, ask), "200")
      yield* sandbox.exec("kill -9 $PPID; sleep 302")
      assert.strictEqual(yield* said(sandbox, ask), "200")
      assert.strictEqual(yield* sleeping(sandbox), "0")
    })
  )
})

const runningAt = (host: string) =>
  Effect.map(docker("--host", host, "ps", "--format", "{{.Names}}"), (names) =>
    names.split("\n").filter((name) => name !== "")
  )

const unavailable = ["RuntimeUnavailable", "ContainerFailed"] as const

/** Starts a private engine with the runtime image, and makes a state directory. */
const place = Effect.gen(function* () {
  const engine = yield* PrivateEngine.acquire(Images.runtime)
  yield* engine.load(Images.runtime)
  return { engine, host: engine.host, directory: yield* RunHarness.Directory }
})

describe.skipIf(PrivateEngine.obstacle !== undefined)("engine faults under sessions", () => {
  it.live(
    "sessions fail in time if the engine is stopped or killed, and continue with their workspace afterwards",
    () =>
      Effect.gen(function* () {
        const { directory, engine, host } = yield* place
        yield* Effect.gen(function* () {
          const manager = yield* SessionHarness.manager({ keeps: true })
          const visit = Effect.fnUntraced(function* (end: Effect.Effect<void>, word: string) {
            const sandbox = yield* manager.getOrCreate("chat")
            yield* sandbox.exec(`echo ${word} >> file`)
            const waiting = yield* Effect.forkChild(Effect.flip(sandbox.exec("sleep 300")))
            yield* Effect.sleep("200 millis")
            yield* end
            yield* fails(Effect.flip(Fiber.join(waiting)), unavailable, 30)
            yield* fails(sandbox.exec("true"), unavailable, 30)
            // A new session fails with the reason.
            const refused = yield* fails(
              Effect.scoped(manager.getOrCreate("other")),
              ["RuntimeUnavailable"],
              60
            )
            assert.match(refused.message, /start it/iu)
            yield* engine.restart
            const { value: next } = yield* within(90, manager.getOrCreate("chat"))
            return yield* said(next, "cat file | xargs")
          }, Effect.scoped)
          assert.strictEqual(yield* visit(engine.terminate, "stopped"), "stopped")
          assert.strictEqual(yield* visit(engine.kill, "killed"), "stopped killed")
        }).pipe(Effect.scoped, Effect.provide(SessionProcess.layer({ directory, host }), { local: true }))
        assert.deepStrictEqual(yield* PrivateEngine.labelledAt(host), [])
        assert.deepStrictEqual(LeakCheck.directories(directory), [])
      }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }), Effect.scoped)
  )
})

describe.skipIf(PrivateEngine.obstacle !== undefined)("a killed host process with sessions", () => {
  it.live(
    "its containers end by themselves and are removed, and another process continues with the workspaces",
    () =>
      Effect.gen(function* () {
        const { directory, host } = yield* place
        const sessionIds = ["one", "two"]
        const killed = yield* SessionProcess.start({
          directory,
          host,
          sessionIds,
          command: "echo kept > file; echo lost > /tmp/file; setsid sleep 300 & sleep 301 &"
        })
        assert.sameMembers(yield* runningAt(host), killed.runIds.map(containerOf))
        yield* killed.kill
        const { millis } = yield* within(
          10,
          SessionHarness.eventually(
            "no container runs",
            Effect.map(runningAt(host), ({ length }) => length === 0)
          )
        )
        assert.isBelow(millis, 5000)
        yield* Effect.logInfo(`the containers of a killed process ended within ${Math.round(millis)} ms`)
        const report = yield* PrivateEngine.reapAt(host)
        assert.deepStrictEqual(report.failed, [])
        assert.sameMembers([...report.removed], killed.runIds.map(containerOf))
        assert.sameMembers(yield* FileRunStore.make({ directory, trafficOf: "unknown" }).reap, [
          ...killed.runIds
        ])
        assert.deepStrictEqual(yield* PrivateEngine.labelledAt(host), [])
        assert.deepStrictEqual(LeakCheck.directories(directory), [])

        const again = yield* SessionProcess.start({
          directory,
          host,
          sessionIds,
          command: 'test "$(cat file)" = kept && test -z "$(ls /tmp)" && echo went on > file'
        })
        yield* again.kill
        yield* PrivateEngine.reapAt(host)
        yield* FileRunStore.make({ directory, trafficOf: "unknown" }).reap
        yield* Effect.gen(function* () {
          const manager = yield* SessionHarness.manager({ keeps: true })
          const sandboxes = yield* Effect.forEach(sessionIds, manager.getOrCreate)
          assert.deepStrictEqual(
            yield* Effect.forEach(sandboxes, (sandbox) => said(sandbox, "cat file; ls")),
            ["went on\nfile", "went on\nfile"]
          )
        }).pipe(Effect.scoped, Effect.provide(SessionProcess.layer({ directory, host }), { local: true }))
        assert.deepStrictEqual(yield* PrivateEngine.labelledAt(host), [])
      }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }), Effect.scoped)
  )
})
