/** Executor contract: the start, input, output and exit of one command. */
import { type ExecOptions } from "@cogni/sandbox-core/ExecutorValues"
import { stdinBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { argumentBytesMax } from "@cogni/sandbox-core/SpecFields"
import { assert } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { type Promises, reasonOf, type Subject } from "./CommandSubject.ts"

const everyByte = Uint8Array.from({ length: 256 }, (_, index) => index)

export const ends: Promises = {
  "returns the exit code of an argv and of a shell line": ({ executor, words }) =>
    Effect.gen(function* () {
      for (const exitCode of [0, 1, 3, 125, 255]) {
        for (const say of [words.argv, words.line]) {
          const line = say({ _tag: "ExitsWith", exitCode })
          const result = yield* executor.exec(line)
          assert.strictEqual(result.exitCode, exitCode)
          assert.isUndefined(result.signal)
          assert.isAtLeast(result.durationMs, 0)
        }
      }
    }),

  "a missing program exits with 127 and a message": ({ executor }) =>
    Effect.gen(function* () {
      for (const program of ["no-such-program", "/no/such/program", "./no-such-program"]) {
        const { exitCode, output } = yield* executor.exec([program, "argument"])
        assert.strictEqual(exitCode, 127)
        assert.include(output.stderr.text, `${program}: not found`)
        assert.strictEqual(output.stdout.text, "")
      }
    }),

  "a non-executable file and a directory exit with 126": ({ executor }) =>
    Effect.gen(function* () {
      yield* executor.files.write("programs/plain", "no program")
      for (const name of ["programs/plain", "programs"]) {
        const path = `${executor.workspace}/${name}`
        const { exitCode, output } = yield* executor.exec([path])
        assert.strictEqual(exitCode, 126, name)
        assert.include(output.stderr.text, path)
      }
    }),

  "a command ended by a signal reports its name, and 128 plus its number": ({ run }) =>
    Effect.gen(function* () {
      const killed = yield* run({ _tag: "KillsItself", signal: "SIGKILL" })
      assert.deepStrictEqual([killed.exitCode, killed.signal], [137, "SIGKILL"])
      const ended = yield* run({ _tag: "KillsItself", signal: "SIGTERM" })
      assert.deepStrictEqual([ended.exitCode, ended.signal], [143, "SIGTERM"])
    }),

  "the exit is available repeatedly, and without reading the output": ({ executor, words }) =>
    Effect.gen(function* () {
      const running = yield* executor.spawn(words.argv({ _tag: "Writes", stdout: "unread", stderr: "" }))
      const exit = yield* running.exit
      assert.strictEqual(exit.exitCode, 0)
      assert.deepStrictEqual(yield* running.exit, exit)
    }),

  "concurrent commands do not affect each other": ({ run }) =>
    Effect.gen(function* () {
      const numbers = Array.from({ length: 16 }, (_, index) => index)
      const [said, ended] = yield* Effect.all(
        [
          Effect.forEach(
            numbers,
            (number) => run({ _tag: "Writes", stdout: `out ${number}`, stderr: `err ${number}` }),
            { concurrency: "unbounded" }
          ),
          Effect.forEach(numbers, (exitCode) => run({ _tag: "ExitsWith", exitCode }), {
            concurrency: "unbounded"
          })
        ],
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        said.map(({ output }) => [output.stdout.text, output.stderr.text]),
        numbers.map((number) => [`out ${number}`, `err ${number}`])
      )
      assert.deepStrictEqual(
        ended.map(({ exitCode }) => exitCode),
        numbers
      )
    })
}

const echoed = ({ run }: Subject, stdin: ExecOptions["stdin"]) =>
  Effect.map(run({ _tag: "EchoesStdin" }, { stdin }), ({ output }) => output.stdout)

export const speaks: Promises = {
  "stdout and stderr are separate and complete": ({ run }) =>
    Effect.gen(function* () {
      const stdout = `line 1\nit's "quoted" $HOME \\n ünï ☃\n${"o".repeat(20_000)}`
      const stderr = `warning: 100%\n${"e".repeat(20_000)}`
      const { output } = yield* run({ _tag: "Writes", stdout, stderr })
      assert.deepStrictEqual(output, {
        stdout: { text: stdout, bytes: Buffer.byteLength(stdout), truncated: false },
        stderr: { text: stderr, bytes: Buffer.byteLength(stderr), truncated: false }
      })
    }),

  "output arrives while the command runs": ({ executor, words }) =>
    Effect.gen(function* () {
      const running = yield* executor.spawn(words.argv({ _tag: "Sleeps" }))
      const [chunk] = yield* running.output.pipe(Stream.take(1), Stream.runCollect)
      assert.strictEqual(Buffer.from(chunk!.bytes).toString(), "ready\n")
    }).pipe(Effect.scoped),

  "a slow reader gets everything": ({ executor, words }) =>
    Effect.gen(function* () {
      const bytes = 4 * 1024 ** 2 + 17
      const running = yield* executor.spawn(words.argv({ _tag: "WritesManyBytes", bytes }))
      let seen = 0
      // The command ends before its last output is read.
      yield* Stream.runForEach(running.output, (chunk) => {
        seen += chunk.bytes.byteLength
        assert.isTrue(chunk.bytes.every((byte) => byte === 120))
        return Effect.sleep("2 millis")
      })
      assert.strictEqual(seen, bytes)
      assert.strictEqual((yield* running.exit).exitCode, 0)
    }).pipe(Effect.scoped),

  "stdin contains the given bytes, and then ends": (subject) =>
    Effect.gen(function* () {
      assert.strictEqual((yield* echoed(subject, "ünï ☃\nno newline")).text, "ünï ☃\nno newline")
      const large = "0123456789abcdef".repeat(64 * 1024)
      assert.strictEqual((yield* echoed(subject, large)).text, large)
      const bytes = yield* echoed(subject, everyByte)
      assert.strictEqual(bytes.bytes, 256)
      assert.strictEqual(bytes.text, new TextDecoder("utf-8", { ignoreBOM: true }).decode(everyByte))
    }),

  "stdin is empty by default, and need not be read": (subject) =>
    Effect.gen(function* () {
      assert.strictEqual((yield* echoed(subject, undefined)).bytes, 0)
      assert.strictEqual((yield* echoed(subject, "")).bytes, 0)
      const unread = { stdin: new Uint8Array(1024 ** 2) }
      assert.strictEqual((yield* subject.run({ _tag: "ExitsWith", exitCode: 0 }, unread)).exitCode, 0)
    })
}

const tooLong = "x".repeat(argumentBytesMax + 1)

export const begins: Promises = {
  "an argument stays one word, whatever it contains": ({ run }) =>
    Effect.gen(function* () {
      const words = [
        "a b",
        "",
        "$HOME",
        "'",
        '"',
        "`id`",
        "; exit 9",
        "*",
        "\\",
        "line\nbreak",
        "ünï ☃",
        "-n",
        "--"
      ]
      const { exitCode, output } = yield* run({ _tag: "SaysArguments", arguments: words })
      assert.strictEqual(exitCode, 0)
      assert.strictEqual(output.stdout.text, words.map((word) => `${word}\0`).join(""))
    }),

  "a variable is visible only to its command": ({ run }) =>
    Effect.gen(function* () {
      const said = (name: string, env = {}) =>
        Effect.map(run({ _tag: "SaysVariable", name }, { env }), ({ output }) => output.stdout.text)
      assert.strictEqual(yield* said("CONTRACT_WORD", { CONTRACT_WORD: "a b\n☃" }), "a b\n☃")
      assert.strictEqual(yield* said("CONTRACT_WORD"), "unset")
      assert.strictEqual(yield* said("CONTRACT_WORD", { CONTRACT_WORD: "" }), "")
    }),

  "starts in the workspace, or in a given directory below it": ({ executor, run }) =>
    Effect.gen(function* () {
      const { workspace } = executor
      yield* executor.files.write("places/deep er/file", "")
      const began = (options?: ExecOptions) =>
        Effect.map(run({ _tag: "SaysDirectory" }, options), ({ output }) => output.stdout.text)
      assert.strictEqual(yield* began(), `${workspace}\n`)
      assert.strictEqual(yield* began({ workingDirectory: workspace }), `${workspace}\n`)
      const deeper = `${workspace}/places/deep er`
      assert.strictEqual(yield* began({ workingDirectory: deeper }), `${deeper}\n`)
    }),

  "refuses a working directory that is missing or not a directory": ({ executor, run }) =>
    Effect.gen(function* () {
      yield* executor.files.write("places/file", "")
      for (const name of ["nowhere", "places/nowhere", "places/file", "places/file/below"]) {
        const workingDirectory = `${executor.workspace}/${name}`
        const reason = yield* reasonOf(run({ _tag: "ExitsWith", exitCode: 0 }, { workingDirectory }))
        assert.strictEqual(reason._tag, "CommandRefused", name)
      }
    }),

  "refuses values that no kernel accepts with InvalidSpec": ({ executor, words }) =>
    Effect.gen(function* () {
      const [program, ...rest] = words.argv({ _tag: "ExitsWith", exitCode: 0 })
      const asked: ReadonlyArray<readonly [string, Effect.Effect<unknown, SandboxError>]> = [
        ["a name with =", executor.exec([program, ...rest], { env: { "A=B": "c" } })],
        ["an empty name", executor.exec([program, ...rest], { env: { "": "c" } })],
        ["a value with NUL", executor.exec([program, ...rest], { env: { A: "b\0c" } })],
        ["a long value", executor.exec([program, ...rest], { env: { A: tooLong } })],
        ["an argument with NUL", executor.exec([program, "a\0b"])],
        ["a long argument", executor.exec([program, tooLong])],
        ["a line with NUL", executor.exec("exit 0 # \0")],
        ["a line of a megabyte", executor.exec("x".repeat(1024 ** 2))],
        ["a relative directory", executor.exec([program, ...rest], { workingDirectory: "places" })],
        ["a directory with NUL", executor.exec([program, ...rest], { workingDirectory: "/a\0b" })],
        ["a directory with a line break", executor.exec([program, ...rest], { workingDirectory: "/a\nb" })],
        ["oversized stdin", executor.exec([program, ...rest], { stdin: new Uint8Array(stdinBytesMax + 1) })]
      ]
      for (const [what, exec] of asked) assert.strictEqual((yield* reasonOf(exec))._tag, "InvalidSpec", what)
    })
}
