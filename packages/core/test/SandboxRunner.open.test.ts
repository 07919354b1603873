import { assert, describe, it } from "@effect/vitest"
import type { ContainerRuntime, MemoryContainerRuntime } from "@cogni/sandbox-core"
import { LlmProxy, SandboxRunner } from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import * as Await from "../../../test/harness/Await.ts"
import { LlmProxyFaults } from "../../../test/harness/faults/Fault.ts"
import { Clock, Duration, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { leftovers, llm, record, run, runId, runner, spec } from "./Specs.ts"

describe("SandboxRunner.open", () => {
  const { argv: _argv, ...openSpec } = spec
  const open = (input = openSpec) => SandboxRunner.SandboxRunner.use((runner) => runner.open(input))

  /** `sleep infinity` for the sandbox itself; commands do what their name says. */
  const program: MemoryContainerRuntime.Program = ({ argv, stderr, stdout, terminated }) => {
    switch (argv[0]) {
      case "sleep":
        return Effect.as(terminated, 143)
      case "echo":
        return Effect.as(stdout(`${argv[1]}\n`), 0)
      case "fail":
        return Effect.as(stderr("no\n"), 9)
      case "flood":
        return Effect.forever(stdout("x".repeat(1000)))
      default:
        return Effect.never
    }
  }

  it.effect("runs many commands in one sandbox, and leaves nothing behind", () =>
    Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* open()
          assert.strictEqual(sandbox.runId, runId)
          assert.strictEqual(sandbox.posture.seccompMode, 2)
          const echo = yield* sandbox.exec(["echo", "one"])
          assert.deepStrictEqual([echo.exitCode, echo.output.stdout.text], [0, "one\n"])
          const fail = yield* sandbox.exec(["fail"])
          assert.deepStrictEqual([fail.exitCode, fail.output.stderr.text], [9, "no\n"])
          assert.isNotEmpty(yield* leftovers())
          assert.strictEqual((yield* record())?.outcome.status, "running")
        })
      )
      assert.deepStrictEqual(yield* leftovers(), [])
      assert.deepStrictEqual((yield* record())?.outcome, { status: "closed" })
    }).pipe(Effect.provide(runner({ program })))
  )

  it.effect("applies the output limit to each command, and keeps the sandbox", () =>
    Effect.gen(function* () {
      const sandbox = yield* open({ ...openSpec, limits: { outputBytesMax: 10_000 } })
      const error = yield* Effect.flip(sandbox.exec(["flood"]))
      assert.strictEqual(error.reason._tag, "OutputLimitExceeded")
      assert.strictEqual(error.runId, runId)
      assert.isAbove(error.partial?.output.stdout.bytes ?? 0, 10_000)
      assert.strictEqual((yield* sandbox.exec(["echo", "still here"])).exitCode, 0)
    }).pipe(Effect.provide(runner({ program })))
  )

  it.effect("refuses an invalid command with its problem, and keeps the sandbox", () =>
    Effect.gen(function* () {
      const sandbox = yield* open(openSpec)
      for (const [argv, options] of [
        [["echo", "a\0b"], {}],
        [["echo", "x".repeat(200_000)], {}],
        [["echo"], { env: { "A=B": "c" } }],
        [["echo"], { workingDirectory: "relative" }]
      ] as const) {
        const { reason } = yield* Effect.flip(sandbox.exec(argv as never, options))
        assert.strictEqual(reason._tag, "InvalidSpec", JSON.stringify(options))
      }
      assert.strictEqual((yield* sandbox.exec(["echo", "still here"])).exitCode, 0)
    }).pipe(Effect.provide(runner({ program })))
  )

  it.effect("ends with every command in it when its proxy dies, and still records the calls", () =>
    Effect.gen(function* () {
      const sandbox = yield* open({ ...openSpec, llm })
      const fiber = yield* Effect.forkChild(Effect.flip(sandbox.exec(["hang"])))
      yield* Await.ended(fiber, 10)
      const error = yield* Fiber.join(fiber)
      assert.strictEqual(error.reason._tag, "ProxyFailed")
      assert.strictEqual((yield* Effect.flip(sandbox.exec(["echo", "x"]))).reason._tag, "ProxyFailed")
    }).pipe(
      Effect.scoped,
      Effect.andThen(record()),
      Effect.tap((kept) => Effect.sync(() => assert.strictEqual(kept?.llm?.proxy, "memory"))),
      Effect.provide(
        runner({
          program,
          proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [
            LlmProxyFaults.slow("LlmProxy.failure", Duration.seconds(3)),
            LlmProxyFaults.failNth(
              "LlmProxy.failure",
              1,
              new SandboxReason.ProxyFailed({ detail: "it ended", remedy: "Look at its log" })
            )
          ])
        })
      )
    )
  )

  it.effect("acquires a model that the host calls, and shows nothing of it in the sandbox", () =>
    Effect.gen(function* () {
      const seen: Array<ContainerRuntime.ContainerSpec> = []
      const watching: MemoryContainerRuntime.Program = (io) => {
        seen.push(io.spec)
        return program(io)
      }
      const kept = yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* open({ ...openSpec, llm: { ...llm, caller: "host" } })
          yield* sandbox.exec(["echo", "x"])
          return sandbox.llmSocketPath
        })
      ).pipe(
        Effect.flatMap((path) => Effect.map(record(), (kept) => ({ path, proxy: kept?.llm?.proxy }))),
        Effect.provide(runner({ program: watching }))
      )
      assert.deepStrictEqual(kept, { path: `/memory/${runId}/llm.sock`, proxy: "memory" })
      assert.isNotEmpty(seen)
      for (const { env, mounts } of seen) {
        assert.notInclude(JSON.stringify(mounts), "llm-sock")
        assert.deepStrictEqual(env, {})
      }
      const inside = yield* Effect.scoped(open({ ...openSpec, llm })).pipe(
        Effect.provide(runner({ program }))
      )
      assert.isUndefined(inside.llmSocketPath)
    })
  )

  it.effect("requires a proxy whose sockets are on the host for a model that the host calls", () =>
    Effect.gen(function* () {
      const { reason } = yield* Effect.flip(open({ ...openSpec, llm: { ...llm, caller: "host" } }))
      assert.strictEqual(reason._tag, "InvalidSpec")
      assert.include(reason.message, "llm.caller")
    }).pipe(
      Effect.provide(
        runner({
          program,
          proxy: Layer.effect(
            LlmProxy.LlmProxy,
            Effect.map(LlmProxy.makeMemory(), (proxy) => ({
              ...proxy,
              capabilities: { ...proxy.capabilities, servesHost: false }
            }))
          )
        })
      )
    )
  )

  it.effect("run refuses a model that only the host may call", () =>
    Effect.gen(function* () {
      const { reason } = yield* Effect.flip(run({ ...spec, llm: { ...llm, caller: "host" } }))
      assert.strictEqual(reason._tag, "InvalidSpec")
      assert.include(reason.message, "llm.caller")
    }).pipe(Effect.provide(runner({ program })))
  )

  it.effect("provides the files of the workspace, and survives a refused file", () =>
    Effect.gen(function* () {
      const sandbox = yield* open()
      yield* sandbox.files.write("a/b.txt", "kept")
      assert.strictEqual(new TextDecoder().decode(yield* sandbox.files.read("/workspace/a/b.txt")), "kept")
      assert.deepStrictEqual(
        (yield* sandbox.files.list(".")).map(({ name, type }) => [name, type]),
        [["a", "directory"]]
      )
      const { reason } = yield* Effect.flip(sandbox.files.read("../etc/passwd"))
      assert.strictEqual(reason._tag === "FileRefused" && reason.problem, "outside_workspace")
      assert.strictEqual((yield* sandbox.exec(["echo", "still here"])).exitCode, 0)
    }).pipe(Effect.scoped, Effect.provide(runner({ program })))
  )

  it.effect("records what ended it, unless it was simply closed", () =>
    Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* open({ ...openSpec, limits: { runtimeSecondsMax: 10 } })
          yield* TestClock.adjust("11 seconds")
        })
      )
      const outcome = (yield* record())?.outcome
      assert.strictEqual(outcome?.status === "failed" && outcome.reason, "TimedOut")
    }).pipe(Effect.provide(runner({ program })))
  )

  it.effect("limits the time of all its commands together", () =>
    Effect.gen(function* () {
      const sandbox = yield* open({ ...openSpec, limits: { runtimeSecondsMax: 10 } })
      yield* TestClock.adjust("4 seconds")
      const fiber = yield* Effect.forkChild(
        Effect.all([Effect.flip(sandbox.exec(["hang"])), Effect.suspend(() => Clock.currentTimeMillis)])
      )
      yield* Await.ended(fiber, 20)
      const [error, atMillis] = yield* Fiber.join(fiber)
      assert.strictEqual(error.reason._tag, "TimedOut")
      assert.strictEqual(atMillis, 10_000)
      const late = yield* Effect.flip(sandbox.exec(["echo", "quick"]))
      assert.strictEqual(late.reason._tag, "TimedOut")
    }).pipe(Effect.provide(runner({ program })))
  )

  it.effect("a command that is killed before its first step has an exit too", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner.SandboxRunner
      const sandbox = yield* runner.open({ image: "i" })
      const running = yield* sandbox.spawn(["wait"])
      yield* running.signal("SIGKILL")
      assert.deepStrictEqual(yield* running.exit, { exitCode: 137, signal: "SIGKILL" })
    }).pipe(Effect.provide(SandboxRunner.layerMemory({ program: () => Effect.never })))
  )

  it.effect("leaves nothing behind when it cannot be opened, and records why", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(Effect.scoped(open({ ...openSpec, llm })))
      assert.strictEqual(error.reason._tag, "ProxyFailed")
      assert.deepStrictEqual(yield* leftovers(), [])
      const kept = yield* record()
      assert.strictEqual(kept?.outcome.status === "failed" && kept.outcome.reason, "ProxyFailed")
    }).pipe(Effect.provide(runner({ program, proxy: LlmProxy.layerNoop })))
  )

  it.effect.each([0, 5, 10, 20, 40, 80, 160])(
    "writes a final record when interrupted after %s turns",
    (turns) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(Effect.scoped(Effect.andThen(open(), Effect.never)))
        for (let turn = 0; turn < turns; turn++) yield* Effect.yieldNow
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* leftovers(), [])
        assert.notStrictEqual((yield* record())?.outcome.status, "running")
      }).pipe(Effect.provide(runner({ program })))
  )
})
