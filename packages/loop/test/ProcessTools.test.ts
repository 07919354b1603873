/** `process.*` over a table, as a model sees it. */
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as ProcessTable from "../src/ProcessTable.ts"
import * as ProcessTools from "../src/ProcessTools.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import { calling, command, executorOf, open } from "./ToolWorld.ts"

const world = Effect.fnUntraced(function* (options?: ProcessTable.ProcessTableOptions) {
  const sandbox = yield* open()
  const table = yield* ProcessTable.make(sandbox, options)
  return calling(ProcessTools.make(sandbox, table, { hostDirectory: "/srv/p" }))
})

const waits = command({ _tag: "Sleeps" })

describe("process tools", () => {
  it.effect("refuses a process over the limit of 64, with a remedy", () =>
    Effect.gen(function* () {
      const call = yield* world()
      for (let index = 1; index <= 64; index++) {
        assert.containSubset(yield* call("process.start", { command: waits }), {
          process_id: `proc-${index}`
        })
      }
      const error = yield* Effect.flip(call("process.start", { command: waits }))
      assert.strictEqual(error.code, "execution")
      assert.match(error.message, /limit of 64 running processes.*End a process/u)
      const { processes } = (yield* call("process.list", {})) as { processes: ReadonlyArray<unknown> }
      assert.strictEqual(processes.length, 64)
    })
  )

  it.effect("keeps the list short, whatever the commands", () =>
    Effect.gen(function* () {
      const call = yield* world()
      const long = `${waits}${" ".repeat(100_000)}`
      for (let index = 0; index < 64; index++)
        yield* call("process.start", { command: long, name: "☃".repeat(64) })
      const listed = yield* call("process.list", {})
      assert.isBelow(JSON.stringify(listed).length, 64 * 1024)
    })
  )

  it.effect("returns the working directory in the caller's form", () =>
    Effect.gen(function* () {
      const sandbox = yield* open()
      yield* sandbox.files.write("sub/x", "x")
      const table = yield* ProcessTable.make(sandbox)
      const call = calling(ProcessTools.make(sandbox, table, { hostDirectory: "/srv/p" }))
      assert.containSubset(yield* call("process.start", { command: waits, cwd: "/srv/p/sub" }), {
        cwd: "/srv/p/sub"
      })
      assert.containSubset(yield* table.list, [{ workingDirectory: "/workspace/sub" }])
    })
  )

  it.effect("limits the time of a wait", () =>
    Effect.gen(function* () {
      const call = yield* world()
      const { process_id } = yield* call("process.start", { command: waits })
      const waiting = yield* Effect.forkChild(call("process.wait", { process_id }), {
        startImmediately: true
      })
      yield* TestClock.adjust("29 seconds")
      assert.isUndefined(waiting.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.containSubset(yield* Fiber.join(waiting), { state: "running" })
      for (const timeout_seconds of [-1, Number.NaN, 301, Number.POSITIVE_INFINITY, "1"]) {
        const error = yield* Effect.flip(call("process.wait", { process_id, timeout_seconds }))
        assert.strictEqual(error.code, "validation")
      }
    })
  )

  it.effect("accepts only plain names, and does not identify processes by them", () =>
    Effect.gen(function* () {
      const call = yield* world()
      for (const name of ["", "a\nb", "\u001b[31m", "x".repeat(65)]) {
        assert.strictEqual(
          (yield* Effect.flip(call("process.start", { command: waits, name }))).code,
          "validation"
        )
      }
      yield* call("process.start", { command: waits, name: "server" })
      assert.strictEqual(
        (yield* Effect.flip(call("process.logs", { process_id: "server" }))).code,
        "validation"
      )
    })
  )

  it.effect("refuses an invalid after_byte", () =>
    Effect.gen(function* () {
      const call = yield* world()
      const { process_id } = yield* call("process.start", { command: waits })
      for (const after_byte of [-1, 0.5, Number.NaN, "0"]) {
        const error = yield* Effect.flip(call("process.logs", { process_id, after_byte }))
        assert.strictEqual(error.code, "validation")
      }
      assert.containSubset(yield* call("process.logs", { process_id, after_byte: 1e9 }), { text: "" })
    })
  )

  it.effect("reports an ended sandbox as unavailable", () =>
    Effect.gen(function* () {
      const gone = Effect.fail(
        new SandboxError({
          reason: new RuntimeUnavailable({ detail: "is gone from /run/x", remedy: "Start it" })
        })
      )
      const executor = executorOf({
        spawn: (line) =>
          line === "never"
            ? gone
            : Effect.succeed({ output: Stream.never, exit: Effect.never, signal: () => gone })
      })
      const call = calling(ProcessTools.make(executor, yield* ProcessTable.make(executor)))
      yield* call("process.start", { command: "x" })
      for (const [name, input] of [
        ["process.start", { command: "never" }],
        ["process.signal", { process_id: "proc-1", signal: "SIGTERM" }]
      ] as const) {
        const error = yield* Effect.flip(call(name, input))
        assert.strictEqual(error.code, "unavailable")
        assert.notInclude(error.message, "/run/x")
      }
    })
  )
})
