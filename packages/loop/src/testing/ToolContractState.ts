/** Stateful part of `ToolContract`: background processes and files. */
import { assert } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { hostDirectory, type Promises, type Result, until } from "./ToolHarness.ts"

export const processes: Promises = {
  "process: starts, lists, logs, signals and waits for a process": ({ call, start }) =>
    Effect.gen(function* () {
      const process_id = yield* start({ _tag: "Ticks" }, { name: "a server" })
      const { processes: listed } = (yield* call("process.list", {})) as { processes: ReadonlyArray<Result> }
      assert.containSubset(listed, [{ process_id, name: "a server", state: "running" }])
      const logs = call("process.logs", { process_id })
      const first = yield* until(logs, ({ text }) => String(text).includes("tick 3\n"))
      assert.isTrue(String(first.text).startsWith("tick 1\ntick 2\n"))
      assert.strictEqual(first.dropped_bytes, 0)
      const more = yield* until(
        call("process.logs", { process_id, after_byte: first.next_byte }),
        ({ text }) => text !== ""
      )
      assert.match(String(more.text), /^tick \d+\n/u)
      assert.notInclude(String(more.text), "tick 3\n")
      assert.containSubset(yield* call("process.wait", { process_id, timeout_seconds: 0 }), {
        state: "running"
      })
      assert.containSubset(yield* call("process.signal", { process_id, signal: "SIGTERM" }), {
        delivered: true
      })
      assert.containSubset(yield* call("process.wait", { process_id, timeout_seconds: 20 }), {
        state: "ended",
        exit_code: 143,
        signal: "SIGTERM"
      })
      assert.containSubset(yield* call("process.signal", { process_id, signal: "SIGKILL" }), {
        delivered: false
      })
      assert.include(String((yield* logs).text), "tick 3\n", "its log is still available")
    }),

  "process: reports exit codes and signals, and kills a process that ignores SIGTERM": (tools) =>
    Effect.gen(function* () {
      const { call, start } = tools
      const wait = (process_id: string) => call("process.wait", { process_id, timeout_seconds: 20 })
      const ended = yield* wait(yield* start({ _tag: "ExitsWith", exitCode: 7 }))
      assert.containSubset(ended, { state: "ended", exit_code: 7 })
      assert.notProperty(ended, "signal")
      const stubborn = yield* start({ _tag: "IgnoresTerm" })
      yield* until(call("process.logs", { process_id: stubborn }), ({ text }) => text === "ready\n")
      yield* call("process.signal", { process_id: stubborn, signal: "SIGTERM" })
      assert.containSubset(yield* call("process.wait", { process_id: stubborn, timeout_seconds: 0.5 }), {
        state: "running"
      })
      yield* call("process.signal", { process_id: stubborn, signal: "SIGKILL" })
      assert.containSubset(yield* wait(stubborn), { exit_code: 137, signal: "SIGKILL" })
    }),

  "process: keeps the end of a flood, counts the rest, and does not block other commands": (tools) =>
    Effect.gen(function* () {
      const { call, shell, start } = tools
      const process_id = yield* start({ _tag: "Counts", lines: 1_000_000_000 })
      const flooded = yield* until(
        call("process.logs", { process_id }),
        ({ output_bytes }) => Number(output_bytes) > 900_000
      )
      assert.isAtMost(String(flooded.text).length, 8192)
      assert.strictEqual(
        Number(flooded.dropped_bytes) + String(flooded.text).length,
        Number(flooded.next_byte)
      )
      const [took, other] = yield* Effect.timed(shell({ _tag: "Writes", stdout: "still here", stderr: "" }))
      assert.containSubset(other, { stdout: "still here", exit_code: 0 })
      assert.isBelow(Duration.toSeconds(took), 10)
      // One megabyte at once, then one per second.
      const again = yield* call("process.logs", { process_id })
      assert.isBelow(Number(again.output_bytes), 30 * 1024 * 1024)
      yield* call("process.signal", { process_id, signal: "SIGKILL" })
      assert.containSubset(yield* call("process.wait", { process_id, timeout_seconds: 20 }), {
        state: "ended"
      })
    }),

  "process: refuses an unknown process ID in every tool": ({ refused }) =>
    Effect.gen(function* () {
      for (const process_id of ["proc-999", "", "__proto__", "constructor", "x".repeat(100_000)]) {
        for (const [name, more] of [
          ["process.logs", {}],
          ["process.wait", {}],
          ["process.signal", { signal: "SIGTERM" }]
        ] as const) {
          const error = yield* refused(name, { process_id, ...more })
          assert.strictEqual(error.code, "validation")
          assert.match(error.message, /there is no process/u)
          assert.isAtMost(error.message.length, 400)
        }
      }
      assert.match(
        (yield* refused("process.signal", { process_id: "p", signal: "SIGSEGV" })).message,
        /signal/u
      )
    })
}

export const files: Promises = {
  "file: reads and lists a written file under every form of its path": ({ call, workspace }) =>
    Effect.gen(function* () {
      const content = "línea 1\nlínea 2\n☃"
      const shown = `${hostDirectory}/files/a.txt`
      assert.deepStrictEqual(yield* call("file.write", { path: shown, content }), { path: shown, bytes: 21 })
      for (const path of ["files/a.txt", `${workspace}/files/a.txt`, shown]) {
        assert.containSubset(yield* call("file.read", { path }), {
          path,
          text: content,
          binary: false,
          lines: 3
        })
      }
      assert.containSubset(yield* call("file.read", { path: shown, offset: 2, limit: 1 }), {
        text: "línea 2\n",
        first_line: 2,
        next_offset: 3
      })
      const { entries, ...rest } = yield* call("file.list", { path: "files" })
      assert.deepStrictEqual(rest, { path: "files", entries_total: 1, truncated: false })
      assert.containSubset(entries, [{ name: "a.txt", type: "file", bytes: 21 }])
    }),

  "file: reports missing and mismatched paths in the caller's form": ({ call, refused }) =>
    Effect.gen(function* () {
      yield* call("file.write", { path: "dir/file", content: "x" })
      for (const [name, input] of [
        ["file.read", { path: `${hostDirectory}/none` }],
        ["file.read", { path: `${hostDirectory}/dir` }],
        ["file.list", { path: `${hostDirectory}/dir/file` }],
        ["file.write", { path: `${hostDirectory}/dir`, content: "over a directory" }],
        ["file.write", { path: `${hostDirectory}/dir/file/below`, content: "below a file" }]
      ] as const) {
        const error = yield* refused(name, input)
        assert.strictEqual(error.code, "validation", error.message)
        assert.include(error.message, JSON.stringify(input.path))
        assert.notMatch(error.message, /\/workspace/u)
      }
      for (const path of ["../x", "/etc/passwd", "a\0b", "a\nb", ""]) {
        assert.strictEqual((yield* refused("file.read", { path })).code, "validation")
        assert.strictEqual((yield* refused("file.list", { path })).code, "validation")
        assert.strictEqual((yield* refused("file.write", { path, content: "x" })).code, "validation")
      }
      assert.containSubset(yield* call("file.read", { path: "dir/file" }), { text: "x" })
    }),

  "file: reports a binary file as binary": ({ call }) =>
    Effect.gen(function* () {
      yield* call("file.write", { path: "nul", content: "a\0b" })
      assert.containSubset(yield* call("file.read", { path: "nul" }), { text: "", binary: true, bytes: 3 })
    })
}

/** For executors whose commands and files share one real file system. */
export const oddFiles: Promises = {
  "file: refuses FIFOs, devices, huge sparse files and links out of the workspace": ({ call, refused }) =>
    Effect.gen(function* () {
      const made = yield* call("shell.exec", {
        command:
          "mkdir odd && cd odd && mkfifo fifo && truncate -s 10G sparse && ln -s /etc/passwd link && ln -s / root && " +
          "ln -s /dev/zero zero && ln -s loop loop && printf '\\377\\376' >latin && ln -s ../odd self"
      })
      assert.strictEqual(made.exit_code, 0, String(made.stderr))
      for (const path of ["fifo", "sparse", "link", "root/etc/passwd", "zero", "self/fifo"]) {
        const [took, error] = yield* Effect.timed(refused("file.read", { path: `odd/${path}` }))
        assert.strictEqual(error.code, "validation", `${path}: ${error.message}`)
        assert.isBelow(Duration.toSeconds(took), 5)
      }
      // Which of the two codes it is depends on the kernel's error.
      assert.include(["validation", "execution"], (yield* refused("file.read", { path: "odd/loop" })).code)
      assert.strictEqual((yield* refused("file.list", { path: "odd/root" })).code, "validation")
      for (const path of ["odd/root/tmp/escaped", "odd/fifo"]) {
        assert.strictEqual((yield* refused("file.write", { path, content: "x" })).code, "validation")
      }
      assert.containSubset(yield* call("file.read", { path: "odd/latin" }), { binary: true, bytes: 2 })
      assert.containSubset(yield* call("shell.exec", { command: "pwd -P", cwd: "odd/self" }), {
        exit_code: 0
      })
    }),

  "shell.exec: refuses a missing directory": ({ refused }) =>
    Effect.gen(function* () {
      const error = yield* refused("shell.exec", { command: "pwd", cwd: `${hostDirectory}/nowhere` })
      assert.strictEqual(error.code, "validation")
      assert.notInclude(error.message, "/workspace")
    })
}
