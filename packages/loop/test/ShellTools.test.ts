/** `shell.exec`: how commands end, and the calls to the executor. `ToolContract` tests it over each executor. */
import { type Executor, type RunningCommand } from "@cogni/sandbox-core/Executor"
import { type CommandLine, type SpawnOptions } from "@cogni/sandbox-core/ExecutorValues"
import { killGraceSeconds } from "@cogni/sandbox-core/ExecutorLimits"
import { emptyOutput, type OutputChunk } from "@cogni/sandbox-core/RunResult"
import { type Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import {
  CommandRefused,
  DiskFull,
  OomKilled,
  OutputLimitExceeded,
  PidsExhausted,
  RuntimeUnavailable,
  TimedOut
} from "@cogni/sandbox-core/SandboxReason"
import * as ShellTools from "@cogni/sandbox-loop/ShellTools"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Result, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import { calling, command, executorOf, open } from "./ToolWorld.ts"

const failing = (reason: Reason) => Effect.fail(new SandboxError({ reason }))
const partial = { output: emptyOutput, peak: {} }
const bytesOf = (text: string) => new TextEncoder().encode(text)

/** An executor with a given behaviour, which records its calls. */
const recording = (running: Partial<RunningCommand>) => {
  const asked: Array<readonly [CommandLine, SpawnOptions | undefined]> = []
  const living = { count: 0 }
  const executor = executorOf({
    spawn: (line, options) =>
      Effect.acquireRelease(
        Effect.sync((): RunningCommand => {
          asked.push([line, options])
          living.count++
          return {
            output: Stream.empty,
            exit: Effect.succeed({ exitCode: 0 }),
            signal: () => Effect.void,
            ...running
          }
        }),
        () => Effect.sync(() => living.count--)
      )
  })
  return { executor, asked, living }
}

const shell = (executor: Executor, input: unknown, options?: ShellTools.ShellToolsOptions) =>
  calling(ShellTools.make(executor, options))("shell.exec", input)

const says = (text: string) =>
  Stream.make({ channel: "stdout" as const, bytes: bytesOf(text) }) as Stream.Stream<OutputChunk>

describe("a limit of the sandbox", () => {
  it.effect.each([
    new OomKilled({ memoryBytesMax: 1234, partial: { ...partial, exitCode: 137 } }),
    new PidsExhausted({ processesMax: 1234, partial }),
    new OutputLimitExceeded({ outputBytesMax: 1234, partial }),
    new DiskFull({ workspaceBytesMax: 1234, partial })
  ])("is a result with the partial output when it ends a command: $_tag", (reason) =>
    Effect.gen(function* () {
      for (const running of [
        { output: Stream.concat(says("so far"), Stream.fromEffectDrain(failing(reason))) },
        { output: says("so far"), exit: failing(reason) }
      ]) {
        const result = yield* shell(recording(running).executor, { command: "x" })
        assert.containSubset(result, {
          stdout: "so far",
          timed_out: false,
          exit_code: reason.partial.exitCode ?? null,
          error: { code: reason._tag }
        })
        const { message } = result.error as { message: string }
        assert.match(message, /1234/u)
        assert.notMatch(message, /--|limits\./u, "a model cannot set flags")
      }
    })
  )

  it.effect("does not end the sandbox when the kernel kills a process", () =>
    Effect.gen(function* () {
      const sandbox = yield* open(({ argv, stdout }) =>
        argv[2] === "hungry"
          ? Effect.as(stdout("so far"), { exitCode: 137, oomKilled: true, processesRefused: false, peak: {} })
          : Effect.as(stdout("fine"), 0)
      )
      assert.containSubset(yield* shell(sandbox, { command: "hungry" }), {
        stdout: "so far",
        error: { code: "OomKilled" }
      })
      assert.containSubset(yield* shell(sandbox, { command: "modest" }), { stdout: "fine", exit_code: 0 })
    })
  )
})

describe("a sandbox that has ended", () => {
  it.effect("is unavailable before and during a command, without details of the host", () =>
    Effect.gen(function* () {
      const gone = new RuntimeUnavailable({
        detail: "does not answer at /run/docker.sock",
        remedy: "Start it"
      })
      for (const executor of [
        executorOf({ spawn: () => failing(gone) }),
        executorOf({ spawn: () => failing(new DiskFull({ workspaceBytesMax: 1, partial })) }),
        recording({ output: Stream.fromEffectDrain(failing(gone)) }).executor,
        recording({ exit: failing(new TimedOut({ runtimeSecondsMax: 1, partial })) }).executor
      ]) {
        const error = yield* Effect.flip(shell(executor, { command: "x" }))
        assert.strictEqual(error.code, "unavailable")
        assert.notMatch(error.message, /docker|\/run/u)
        assert.match(error.message, /instead of trying again/u)
      }
    })
  )

  it.effect("stays unavailable after its time limit", () =>
    Effect.gen(function* () {
      const sandbox = yield* open(undefined, { runtimeSecondsMax: 60 })
      const waiting = yield* Effect.forkChild(
        Effect.flip(shell(sandbox, { command: command({ _tag: "Sleeps" }), timeout_seconds: 600 })),
        { startImmediately: true }
      )
      yield* TestClock.adjust("61 seconds")
      assert.strictEqual((yield* Fiber.join(waiting)).code, "unavailable")
      const again = yield* Effect.flip(shell(sandbox, { command: command({ _tag: "Sleeps" }) }))
      assert.strictEqual(again.code, "unavailable")
    })
  )
})

describe("time limit", () => {
  const patient = { output: Stream.concat(says("working"), Stream.never), exit: Effect.never }
  const tookOf = Effect.fnUntraced(function* (
    input: object,
    seconds: number,
    options?: ShellTools.ShellToolsOptions
  ) {
    const { executor, living } = recording(patient)
    const running = yield* Effect.forkChild(shell(executor, { command: "x", ...input }, options), {
      startImmediately: true
    })
    yield* TestClock.adjust(Duration.seconds(seconds + killGraceSeconds - 0.1))
    assert.isUndefined(running.pollUnsafe(), "the command was ended too early")
    assert.strictEqual(living.count, 1)
    yield* TestClock.adjust("100 millis")
    const result = yield* Fiber.join(running)
    assert.containSubset(result, { timed_out: true, stdout: "working", signal: "SIGKILL" })
    assert.strictEqual(result.duration_ms, (seconds + killGraceSeconds) * 1000)
    assert.strictEqual(living.count, 0, "the command was left running")
  })

  it.effect("is the call's or the default, up to the session's maximum", () =>
    Effect.gen(function* () {
      yield* tookOf({}, 120)
      yield* tookOf({ timeout_seconds: 600 }, 600)
      yield* tookOf({ timeout_seconds: 0.5 }, 0.5)
      yield* tookOf({}, 5, { timeoutSecondsMax: 5 })
      const { executor } = recording({})
      const error = yield* Effect.flip(
        shell(executor, { command: "x", timeout_seconds: 6 }, { timeoutSecondsMax: 5 })
      )
      assert.match(error.message, /from 0\.1 to 5/u)
    })
  )

  it.effect("an interrupted call ends the command", () =>
    Effect.gen(function* () {
      const { executor, living } = recording(patient)
      const running = yield* Effect.forkChild(shell(executor, { command: "x" }), { startImmediately: true })
      assert.strictEqual(living.count, 1)
      yield* Fiber.interrupt(running)
      assert.strictEqual(living.count, 0)
    })
  )
})

describe("calls to the executor", () => {
  it.effect("pass the command unchanged, and paths and variables outside of it", () =>
    Effect.gen(function* () {
      const { asked, executor } = recording({})
      const nasty = "$(id); `id` 'x' \"y\""
      yield* shell(executor, { command: nasty, cwd: nasty, env: { A: nasty }, stdin: nasty })
      yield* shell(executor, { command: "true" })
      assert.deepStrictEqual(asked, [
        [nasty, { env: { A: nasty }, stdin: nasty, workingDirectory: `/workspace/${nasty}` }],
        ["true", { env: undefined, stdin: undefined, workingDirectory: undefined }]
      ])
    })
  )

  it.effect("pass on or refuse an unusual variable name, and never lose it", () =>
    Effect.gen(function* () {
      const { asked, executor } = recording({})
      const input: unknown = JSON.parse('{"command":"true","env":{"__proto__":"x","constructor":"y"}}')
      const outcome = yield* Effect.exit(shell(executor, input))
      if (Exit.isFailure(outcome)) return
      assert.deepStrictEqual(Object.entries(asked[0]?.[1]?.env ?? {}).toSorted(), [
        ["__proto__", "x"],
        ["constructor", "y"]
      ])
    })
  )

  it.effect("never contain invalid arguments", () =>
    Effect.gen(function* () {
      const { asked, executor } = recording({})
      for (const input of [
        JSON.parse('{"command":"true","__proto__":{"cwd":"/etc"}}'),
        JSON.parse('{"__proto__":{"command":"true"}}'),
        { command: "true", cwd: null },
        { command: "true", env: ["A=B"] },
        { command: "true", env: { A: 1 } },
        { command: "true", stdin: 7 },
        []
      ]) {
        const error = yield* Effect.flip(shell(executor, input))
        assert.strictEqual(error.code, "validation", JSON.stringify(input))
      }
      assert.deepStrictEqual(asked, [])
    })
  )
})

describe("paths", () => {
  it.effect("messages of the executor use the caller's form", () =>
    Effect.gen(function* () {
      const refusal = new CommandRefused({
        detail: "there is no directory /workspace/nowhere, and /workspace-old and /old/workspace are others",
        remedy: "See what is in /workspace"
      })
      const executor = executorOf({ spawn: () => failing(refusal) })
      const said = (cwd: string) =>
        Effect.map(
          Effect.flip(shell(executor, { command: "x", cwd }, { hostDirectory: "/srv/p" })),
          ({ message }) => message
        )
      assert.strictEqual(
        yield* said("/srv/p/nowhere"),
        "there is no directory /srv/p/nowhere, and /workspace-old and /old/workspace are others. See what is in /srv/p"
      )
      assert.include(yield* said("/workspace/nowhere"), "no directory /workspace/nowhere")
    })
  )

  it.effect.prop(
    "are inside the workspace, or refused",
    [
      Schema.Array(
        Schema.Literals(["..", ".", "", "a", "b c", "workspace", "srv", "p", "...", "~", "-"])
      ).check(Schema.isMaxLength(8)),
      Schema.Literals(["", "/", "/workspace/", "/srv/p/", "//workspace//"])
    ],
    ([parts, begin]) =>
      Effect.gen(function* () {
        const { asked, executor } = recording({})
        const cwd = `${begin}${parts.join("/")}`
        const outcome = yield* Effect.result(
          shell(executor, { command: "x", cwd }, { hostDirectory: "/srv/p" })
        )
        if (Result.isFailure(outcome)) {
          assert.strictEqual(outcome.failure.code, "validation")
          return assert.deepStrictEqual(asked, [])
        }
        const directory = asked[0]![1]!.workingDirectory!
        assert.match(directory, /^\/workspace(?:\/[^/]+)*$/u)
        assert.notMatch(directory, /\/\.{1,2}(?:\/|$)/u)
        // The returned path can be used again, and names the same directory.
        const again = outcome.success.cwd as string
        assert.strictEqual(again.startsWith("/"), cwd.startsWith("/"))
        yield* shell(executor, { command: "x", cwd: again }, { hostDirectory: "/srv/p" })
        assert.strictEqual(asked[1]![1]!.workingDirectory, directory)
      }),
    { arbitrary: { runs: 500, seed: "tool-paths" } }
  )
})

describe("memory", () => {
  it.effect("a command with endless output uses bounded memory, and is ended", () =>
    Effect.gen(function* () {
      let chunks = 0
      const piece = new Uint8Array(64 * 1024).fill(120)
      const { executor } = recording({
        output: Stream.fromEffectRepeat(
          Effect.sync(() => {
            chunks++
            return { channel: chunks % 2 === 0 ? ("stdout" as const) : ("stderr" as const), bytes: piece }
          })
        )
      })
      const result = yield* shell(executor, { command: "yes" })
      assert.containSubset(result, { truncated: true, error: { code: "OutputLimitExceeded" } })
      assert.strictEqual(chunks, 1025, "64 MiB, and the piece that exceeds it")
      assert.isAtMost(bytesOf(String(result.stdout)).byteLength, 30_000)
    })
  )
})
