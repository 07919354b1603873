/**
 * Contract of a session's tools over every `Executor`: a sealed sandbox, the host and memory. A registry can
 * replace one by another without the model noticing.
 *
 * Behaviours are named, and a fixture supplies the command lines for its executor. Runs on the live clock.
 */
import { assert, it } from "@effect/vitest"
import { Duration, Effect, type Layer } from "effect"
import { files, oddFiles, processes } from "./ToolContractState.ts"
import {
  type Fixture,
  hostDirectory,
  memoryFixture,
  type Promises,
  type TestExecutor,
  toolsOf
} from "./ToolHarness.ts"

export { shellFixture, TestExecutor } from "./ToolHarness.ts"

export const suite = <E>(
  name: string,
  layer: Layer.Layer<TestExecutor, E>,
  fixture: Fixture = memoryFixture
): void => {
  const promised = {
    ...commands,
    ...directories,
    ...processes,
    ...files,
    ...(fixture.hasShell ? oddFiles : {})
  }
  const named = it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })
  named(`tools of a session (${name})`, (it) => {
    for (const [title, promise] of Object.entries(promised)) {
      it.effect(title, () => Effect.flatMap(toolsOf(fixture), promise))
    }
  })
}

const commands: Promises = {
  ...Object.fromEntries(
    [0, 1, 7, 126, 255].map((exitCode): [string, Promises[string]] => [
      `shell.exec: returns exit code ${exitCode} as a result`,
      ({ shell }) =>
        Effect.gen(function* () {
          const result = yield* shell({ _tag: "ExitsWith", exitCode })
          const said = { stdout: "", stderr: "", truncated: false, timed_out: false }
          assert.containSubset(result, { exit_code: exitCode, ...said })
          assert.isAtLeast(result.duration_ms as number, 0)
        })
    ])
  ),

  "shell.exec: separates stdout and stderr, and passes stdin and the environment": ({ shell }) =>
    Effect.gen(function* () {
      const said = { stdout: `it's "quoted" $HOME \\n ünï ☃\n`, stderr: "warning: 100%\n" }
      assert.containSubset(yield* shell({ _tag: "Writes", ...said }), { exit_code: 0, ...said })
      assert.containSubset(yield* shell({ _tag: "EchoesStdin" }, { stdin: "línea\n" }), { stdout: "línea\n" })
      const odd = "a b 'c' $(id) ; `id` \n"
      assert.containSubset(
        yield* shell({ _tag: "SaysVariable", name: "GIVEN" }, { env: { GIVEN: odd.trim() } }),
        {
          stdout: odd.trim()
        }
      )
      assert.containSubset(yield* shell({ _tag: "SaysVariable", name: "GIVEN" }), { stdout: "unset" })
    }),

  "shell.exec: keeps the beginning and end of long output, and counts the missing bytes": ({ shell }) =>
    Effect.gen(function* () {
      const { exit_code, stdout, truncated } = yield* shell({ _tag: "Counts", lines: 100_000 })
      assert.deepStrictEqual([exit_code, truncated], [0, true])
      const [, head = "", missing = "", tail = ""] =
        /^(.*)\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n(.*)$/su.exec(String(stdout)) ??
        assert.fail("no marker")
      assert.isTrue(head.startsWith("1\n2\n3\n"))
      assert.isTrue(tail.endsWith("99999\n100000\n"))
      assert.strictEqual(head.length + Number(missing) + tail.length, 588_895)
      assert.isAtMost(new TextEncoder().encode(String(stdout)).byteLength, 2000)
    }),

  "shell.exec: ends a command with endless output, and reports the limit": ({ shell }) =>
    Effect.gen(function* () {
      const result = yield* shell({ _tag: "Counts", lines: 1_000_000_000 })
      assert.containSubset(result, { exit_code: null, timed_out: false, truncated: true })
      assert.containSubset(result.error, { code: "OutputLimitExceeded" })
      assert.isTrue(String(result.stdout).startsWith("1\n2\n"))
    }),

  "shell.exec: returns a timeout as a result, with the output until then": ({ shell }) =>
    Effect.gen(function* () {
      const result = yield* shell({ _tag: "Sleeps" }, { timeout_seconds: 0.8 })
      assert.containSubset(result, { timed_out: true, stdout: "ready\n", exit_code: 143, signal: "SIGTERM" })
      assert.isAtLeast(result.duration_ms as number, 700)
    }),

  "shell.exec: lets a timed-out command clean up, and kills one that does not end": ({ shell }) =>
    Effect.gen(function* () {
      assert.containSubset(yield* shell({ _tag: "TidiesUp", exitCode: 3 }, { timeout_seconds: 0.8 }), {
        timed_out: true,
        stdout: "ready\ntidied\n",
        exit_code: 3
      })
      const [took, result] = yield* Effect.timed(shell({ _tag: "IgnoresTerm" }, { timeout_seconds: 0.8 }))
      assert.containSubset(result, { timed_out: true, stdout: "ready\n", exit_code: 137, signal: "SIGKILL" })
      assert.isBelow(Duration.toSeconds(took), 20)
    }),

  "shell.exec: refuses invalid arguments before it starts a command": ({ commandOf, refused }) =>
    Effect.gen(function* () {
      const command = commandOf({ _tag: "ExitsWith", exitCode: 0 })
      for (const [input, word] of [
        [{ command: "" }, /command/u],
        [{ command: "true \0" }, /^command: .*NUL/u],
        [{ command: `true ${"x".repeat(1024 * 1024)}` }, /131071 bytes/u],
        [{ command, env: { "A=B": "c" } }, /A=B/u],
        [{ command, env: { "A\0": "c" } }, /env/u],
        [{ command, env: { A: "c\0d" } }, /NUL/u],
        [{ command, env: { "": "c" } }, /env/u],
        [{ command, env: { LD_PRELOAD: "/x.so" } }, /LD_/u],
        [{ command, timeout_seconds: 0 }, /timeout_seconds/u],
        [{ command, timeout_seconds: -1 }, /timeout_seconds/u],
        [{ command, timeout_seconds: Number.NaN }, /timeout_seconds/u],
        [{ command, timeout_seconds: Number.POSITIVE_INFINITY }, /timeout_seconds/u],
        [{ command, timeout_seconds: 1e9 }, /600/u],
        [{ command, timeout_seconds: "5" }, /timeout_seconds/u],
        [{ command: ["true"] }, /command/u],
        [{ command, shell: "bash" }, /shell/u],
        [[command], /./u],
        [command, /./u],
        [null, /./u]
      ] as const) {
        const error = yield* refused("shell.exec", input)
        assert.strictEqual(
          error.code,
          "validation",
          `${JSON.stringify(input).slice(0, 200)}: ${error.message}`
        )
        assert.match(error.message, word)
        assert.isAtMost(error.message.length, 2000)
      }
    })
}

const directories: Promises = {
  "cwd: accepts relative, inside and host paths, and answers in the same form": (tools) =>
    Effect.gen(function* () {
      const { call, shell, workspace } = tools
      yield* call("file.write", { path: "cwd/in/side.txt", content: "x" })
      const inside = `${workspace}/cwd/in`
      for (const [cwd, shown] of [
        ["cwd/in", "cwd/in"],
        ["./cwd//in/", "cwd/in"],
        ["cwd/../cwd/in", "cwd/in"],
        [inside, inside],
        [`${workspace}/cwd/../cwd/in/.`, inside],
        [`${hostDirectory}/cwd/in`, `${hostDirectory}/cwd/in`]
      ] as const) {
        assert.containSubset(yield* shell({ _tag: "SaysDirectory" }, { cwd }), {
          stdout: `${inside}\n`,
          cwd: shown
        })
      }
      assert.containSubset(yield* shell({ _tag: "SaysDirectory" }), {
        stdout: `${workspace}\n`,
        cwd: workspace
      })
      assert.containSubset(yield* shell({ _tag: "SaysDirectory" }, { cwd: hostDirectory }), {
        stdout: `${workspace}\n`,
        cwd: hostDirectory
      })
      assert.containSubset(yield* shell({ _tag: "SaysDirectory" }, { cwd: "." }), { cwd: "." })
    }),

  "cwd: refuses paths outside the workspace, and never passes a path to a shell": (tools) =>
    Effect.gen(function* () {
      const { call, commandOf, refused, shell, workspace } = tools
      const command = commandOf({ _tag: "SaysDirectory" })
      for (const cwd of [
        "..",
        "a/../..",
        "../../etc",
        "/",
        "/etc",
        `${workspace}/..`,
        `${workspace}/../etc`,
        `${workspace}-old`,
        `${hostDirectory}/..`,
        `${hostDirectory}/../other`,
        `${hostDirectory}-old`,
        "a\nb",
        "a\rb",
        "a\0b",
        "",
        "x".repeat(5000)
      ]) {
        const error = yield* refused("shell.exec", { command, cwd })
        assert.strictEqual(error.code, "validation", cwd)
        assert.match(error.message, /^cwd: /u)
        assert.strictEqual((yield* refused("process.start", { command, cwd })).code, "validation", cwd)
      }
      const odd = "odd $(touch hacked) `touch hacked` ; touch hacked"
      yield* call("file.write", { path: `${odd}/x`, content: "x" })
      assert.containSubset(yield* shell({ _tag: "SaysDirectory" }, { cwd: odd }), {
        stdout: `${workspace}/${odd}\n`
      })
      const { entries } = (yield* call("file.list", {})) as { entries: ReadonlyArray<{ name: string }> }
      assert.notInclude(
        entries.map(({ name }) => name),
        "hacked"
      )
    })
}
