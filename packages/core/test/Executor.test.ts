import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Fiber, Schema, Stream } from "effect"
import { TestClock } from "effect/testing"
import type * as Executor from "../src/Executor.ts"
import type * as ExecutorValues from "../src/ExecutorValues.ts"
import * as ExecutorCommand from "../src/ExecutorCommand.ts"
import * as ExecutorLimits from "../src/ExecutorLimits.ts"
import { SandboxError } from "../src/SandboxError.ts"
import { OomKilled } from "../src/SandboxReason.ts"
import { emptyOutput, type OutputChunk } from "../src/RunResult.ts"

const say = (text: string, channel: OutputChunk["channel"] = "stdout"): OutputChunk => ({
  channel,
  bytes: new TextEncoder().encode(text)
})

const limits = { outputBytesMax: 100, outputRetainedBytesMax: 20 }

/** A command with this output and exit. Records what is done to it. */
const commandOf = (options: {
  readonly says?: Stream.Stream<OutputChunk, SandboxError>
  readonly exit?: Effect.Effect<ExecutorValues.CommandExit, SandboxError>
  /** Ends on SIGTERM. */
  readonly polite?: boolean
}) => {
  const done: Array<string> = []
  const spawn: Executor.Executor["spawn"] = () =>
    Effect.gen(function* () {
      const told = yield* Deferred.make<ExecutorValues.CommandExit>()
      yield* Effect.addFinalizer(() => Effect.sync(() => done.push("gone")))
      return {
        output: options.says ?? Stream.empty,
        exit: Effect.raceFirst(options.exit ?? Effect.succeed({ exitCode: 0 }), Deferred.await(told)),
        signal: (name) =>
          Effect.sync(() => done.push(name)).pipe(
            Effect.andThen(
              options.polite === true
                ? Deferred.succeed(told, { exitCode: 143, signal: "SIGTERM" })
                : Effect.void
            )
          )
      }
    })
  return { done, exec: ExecutorCommand.execOf(spawn, limits) }
}

describe("Executor", () => {
  describe("commandOf", () => {
    it.effect("passes a line to the shell, and takes an argv as it is", () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* ExecutorCommand.commandOf("ls | wc -l", { env: { A: "1" } }), {
          argv: ["/bin/sh", "-c", "ls | wc -l"],
          env: { A: "1" }
        })
        assert.deepStrictEqual(
          yield* ExecutorCommand.commandOf(["ls", "$HOME; x"], {
            workingDirectory: "/workspace/a b",
            stdin: "é"
          }),
          {
            argv: ["ls", "$HOME; x"],
            env: {},
            workingDirectory: "/workspace/a b",
            stdin: new Uint8Array([0xc3, 0xa9])
          }
        )
      })
    )

    it.effect.each([
      { what: "a line of 1 MB", line: "x".repeat(2 ** 20), options: {}, says: "write a script" },
      { what: "a NUL in a line", line: "a\0b", options: {}, says: "NUL" },
      { what: "an argument of 200 KB", line: ["a", "x".repeat(200_000)] as const, options: {}, says: "cap" },
      { what: "a name with =", line: "a", options: { env: { "A=B": "c" } }, says: "name" },
      { what: "a name with NUL", line: "a", options: { env: { "A\0": "c" } }, says: "name" },
      { what: "the loader's names", line: "a", options: { env: { LD_PRELOAD: "c" } }, says: "LD_" },
      { what: "a value with NUL", line: "a", options: { env: { A: "\0" } }, says: "NUL" },
      { what: "a relative directory", line: "a", options: { workingDirectory: "src" }, says: "absolute" },
      {
        what: "a line break in a directory",
        line: "a",
        options: { workingDirectory: "/a\nb" },
        says: "line break"
      },
      { what: "a NUL in a directory", line: "a", options: { workingDirectory: "/a\0b" }, says: "NUL" },
      {
        what: "17 MB of input",
        line: "a",
        options: { stdin: new Uint8Array(17 * 2 ** 20) },
        says: "file of the workspace"
      }
    ])("refuses $what, and says what to do", ({ line, options, says }) =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(ExecutorCommand.commandOf(line, options))
        assert.strictEqual(error._tag, "InvalidSpec")
        assert.include(error.message, says)
      })
    )
  })

  describe("execOf", () => {
    it.effect("collects stdout and stderr separately, and the exit code", () =>
      Effect.gen(function* () {
        const { done, exec } = commandOf({
          says: Stream.make(say("out"), say("err", "stderr"), say("put")),
          exit: Effect.succeed({ exitCode: 3 })
        })
        const { durationMs, exitCode, output } = yield* exec("x")
        assert.deepStrictEqual(
          [exitCode, output.stdout.text, output.stderr.text, durationMs],
          [3, "output", "err", 0]
        )
        assert.deepStrictEqual(done, ["gone"])
      })
    )

    it.effect.prop(
      "keeps the beginning, counts all, and never keeps more than the executor's limit",
      [
        Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 99 })),
        Schema.UndefinedOr(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 60 })))
      ],
      ([bytes, outputRetainedBytesMax]) =>
        Effect.gen(function* () {
          const { exec } = commandOf({ says: Stream.make(say("x".repeat(bytes))) })
          const { stdout } = (yield* exec("x", { outputRetainedBytesMax })).output
          const kept = Math.min(bytes, outputRetainedBytesMax ?? 20, 20)
          assert.deepStrictEqual(stdout, { text: "x".repeat(kept), bytes, truncated: bytes > kept })
        }),
      { arbitrary: { runs: 100, seed: 6 } }
    )

    it.effect("ends a command whose output exceeds the limit, and returns its partial output", () =>
      Effect.gen(function* () {
        const { done, exec } = commandOf({
          says: Stream.concat(Stream.make(say("x".repeat(101))), Stream.never)
        })
        const { partial, reason } = yield* Effect.flip(exec("x"))
        assert.strictEqual(reason._tag, "OutputLimitExceeded")
        assert.deepStrictEqual([partial?.output.stdout.bytes, done], [101, ["gone"]])
      })
    )

    it.effect("sends SIGTERM to a timed-out command, and kills it when the grace is over", () =>
      Effect.gen(function* () {
        const { done, exec } = commandOf({
          says: Stream.concat(Stream.make(say("begun")), Stream.never),
          exit: Effect.never
        })
        const fiber = yield* Effect.forkChild(Effect.flip(exec("x", { timeoutSecondsMax: 5 })))
        yield* TestClock.adjust("4999 millis")
        assert.deepStrictEqual(done, [])
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(done, ["SIGTERM"])
        yield* TestClock.adjust(Duration.seconds(ExecutorLimits.killGraceSeconds))
        const error = yield* Fiber.join(fiber)
        assert.strictEqual(error.reason._tag, "CommandTimedOut")
        assert.strictEqual(error.partial?.output.stdout.text, "begun")
        assert.include(error.message, "5 s")
        assert.deepStrictEqual(done, ["SIGTERM", "gone"])
      })
    )

    it.effect("does not wait for a timed-out command that ends on SIGTERM, and still fails", () =>
      Effect.gen(function* () {
        const { done, exec } = commandOf({ exit: Effect.never, polite: true })
        const fiber = yield* Effect.forkChild(Effect.flip(exec("x", { timeoutSecondsMax: 0.5 })))
        yield* TestClock.adjust("500 millis")
        assert.strictEqual((yield* Fiber.join(fiber)).reason._tag, "CommandTimedOut")
        assert.deepStrictEqual(done, ["SIGTERM", "gone"])
      })
    )

    it.effect("an interruption ends the command", () =>
      Effect.gen(function* () {
        const { done, exec } = commandOf({ exit: Effect.never })
        const fiber = yield* Effect.forkChild(exec("x"))
        yield* TestClock.adjust("1 second")
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(done, ["gone"])
      })
    )

    it.effect("adds the command's output to a limit that the sandbox broke", () =>
      Effect.gen(function* () {
        const reason = new OomKilled({
          memoryBytesMax: 1,
          partial: { output: emptyOutput, peak: { memoryBytes: 1 } }
        })
        const { exec } = commandOf({
          says: Stream.make(say("begun")),
          exit: Effect.fail(new SandboxError({ reason }))
        })
        const error = yield* Effect.flip(exec("x"))
        assert.strictEqual(error.reason._tag, "OomKilled")
        assert.deepStrictEqual(
          [error.partial?.output.stdout.text, error.partial?.peak],
          ["begun", { memoryBytes: 1 }]
        )
      })
    )
  })

  describe("unwrap", () => {
    const entry = ExecutorCommand.fileEntry({ name: "e", type: "file", bytes: 1, modifiedMillis: 0 })

    /** An executor that is found for each call. Records the calls, and what is held. */
    const found = () => {
      const seen: Array<string> = []
      let held = 0
      const note = <A>(what: string, answer: A) =>
        Effect.sync(() => {
          seen.push(`${what} (${held} held)`)
          return answer
        })
      const inner: Executor.Executor = {
        workspace: "/elsewhere",
        exec: (line, options) =>
          note(`exec ${String(line)} ${options?.timeoutSecondsMax}`, {
            exitCode: 0,
            output: emptyOutput,
            durationMs: 0
          }),
        spawn: (line, options) =>
          note(`spawn ${String(line)} ${options?.stdin as string}`, {
            output: Stream.empty,
            exit: Effect.succeed({ exitCode: 0 }),
            signal: () => Effect.void
          }),
        files: {
          read: (path, options) => note(`read ${path} ${options?.bytesMax}`, new Uint8Array(0)),
          write: (path, content) => note(`write ${path} ${content as string}`, undefined),
          list: (path) => note(`list ${path}`, []),
          stat: (path) => note(`stat ${path}`, entry),
          remove: (path, options) => note(`remove ${path} ${options?.recursive}`, undefined)
        }
      }
      const executor = ExecutorCommand.unwrap(
        "/workspace",
        Effect.acquireRelease(
          Effect.sync(() => {
            held += 1
            return inner
          }),
          () => Effect.sync(() => (held -= 1))
        )
      )
      return { executor, seen, held: () => held }
    }

    it.effect("releases what a call acquired when the call has ended", () =>
      Effect.gen(function* () {
        const { executor, held, seen } = found()
        assert.strictEqual(executor.workspace, "/workspace")
        yield* executor.exec("true", { timeoutSecondsMax: 3 })
        yield* executor.files.read("a", { bytesMax: 4 })
        yield* executor.files.write("b", "c")
        yield* executor.files.list("d")
        assert.deepStrictEqual(yield* executor.files.stat("e"), entry)
        yield* executor.files.remove("f", { recursive: true })
        assert.deepStrictEqual(seen, [
          "exec true 3 (1 held)",
          "read a 4 (1 held)",
          "write b c (1 held)",
          "list d (1 held)",
          "stat e (1 held)",
          "remove f true (1 held)"
        ])
        assert.strictEqual(held(), 0)
      })
    )

    it.effect("holds what a spawned command acquired until its scope closes", () =>
      Effect.gen(function* () {
        const { executor, held, seen } = found()
        yield* Effect.scoped(
          Effect.gen(function* () {
            const running = yield* executor.spawn("cat", { stdin: "x" })
            yield* running.exit
            assert.strictEqual(held(), 1)
          })
        )
        assert.deepStrictEqual(seen, ["spawn cat x (1 held)"])
        assert.strictEqual(held(), 0)
      })
    )
  })
})
