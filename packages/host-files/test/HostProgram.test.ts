/** Host programs: their input, their limits, and the end of their process group. */
import * as HostProgram from "@cogni/sandbox-host-files/HostProgram"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { existsSync } from "node:fs"

const shell = (script: string, more: Partial<HostProgram.HostProgram> = {}): HostProgram.HostProgram => ({
  name: "sh",
  argv: ["-c", script],
  env: { PATH: HostProgram.searchPath },
  runtimeSecondsMax: 30,
  ...more
})

/** Whether a process is alive. A dead one that is not reaped yet still has a directory in `/proc`, but no `exe`. */
const isAlive = (processId: string) => existsSync(`/proc/${processId}/exe`)

/** Runs turns of the event loop until a condition is true. */
const until = (isSo: () => boolean) =>
  Effect.repeat(
    Effect.promise(() => new Promise((resolve) => setImmediate(resolve))),
    { until: isSo }
  )

describe("HostProgram", () => {
  it.live("returns output and exit code, with stdin, descriptor 3 and only the given environment", () =>
    Effect.gen(function* () {
      const program = shell("cat; cat <&3; env | grep -c HOME >&2; exit 3", { descriptor3: "three" })
      const { exitCode, stderr, stdout } = yield* HostProgram.run(program, "in ")
      assert.deepStrictEqual([exitCode, stdout.toString(), stderr.trim()], [3, "in three", "0"])
    })
  )

  it.live("fails if it cannot be started, takes too long, or writes too much", () =>
    Effect.gen(function* () {
      const problem = (program: HostProgram.HostProgram) =>
        Effect.map(Effect.flip(HostProgram.run(program)), (error) => error.problem)
      assert.strictEqual(yield* problem({ ...shell(""), name: "no-such-program" }), "cannot_start")
      assert.strictEqual(yield* problem(shell("sleep 60", { runtimeSecondsMax: 0.2 })), "too_slow")
      assert.strictEqual(yield* problem(shell("yes", { stdoutBytesMax: 1000 })), "too_much_output")
    })
  )

  it.live("ends its children, whether it ends by itself or its scope closes", () =>
    Effect.gen(function* () {
      const left = yield* HostProgram.run(shell("sleep 60 >&- 2>&- <&- & echo $!"))
      yield* until(() => !isAlive(left.stdout.toString().trim()))
      let said = ""
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* HostProgram.start(
            shell("sleep 60 & echo $!; wait", { onStdout: (piece) => (said += piece.toString()) })
          )
          yield* until(() => said !== "")
          assert.isTrue(isAlive(said.trim()))
        })
      )
      yield* until(() => !isAlive(said.trim()))
    })
  )

  it.live("has ended when its scope is closed, so that it makes no file after that", () =>
    Effect.gen(function* () {
      let said = ""
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* HostProgram.start(
            shell("echo $$; exec sleep 60", { onStdout: (piece) => (said += piece.toString()) })
          )
          yield* until(() => said !== "")
        })
      )
      // Not even an entry that waits for its parent is left.
      assert.isFalse(existsSync(`/proc/${said.trim()}`))
    })
  )

  it.live("has ended although a process that left its group holds its output open", () =>
    Effect.gen(function* () {
      let said = ""
      const script = "setsid sh -c 'echo $$; exec sleep 600' & cat; exit 3"
      const program = shell(script, {
        runtimeSecondsMax: undefined,
        onStdout: (piece) => (said += piece.toString())
      })
      const { answer, stdin } = yield* HostProgram.start(program)
      yield* until(() => said.includes("\n"))
      yield* Effect.addFinalizer(() => Effect.sync(() => process.kill(Number(said.trim()), "SIGKILL")))
      stdin.end()
      assert.strictEqual((yield* answer).exitCode, 3)
      assert.isTrue(isAlive(said.trim()))
    })
  )

  it.live("keeps no pipe open for a process that left its group, once its scope is closed", () =>
    Effect.gen(function* () {
      const pipes = () => process.getActiveResourcesInfo().filter((name) => name === "PipeWrap").length
      const before = pipes()
      let said = ""
      const script = "setsid sh -c 'echo $$; exec sleep 600' & wait"
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* HostProgram.start(shell(script, { onStdout: (piece) => (said += piece.toString()) }))
          yield* until(() => said.includes("\n"))
        })
      )
      yield* Effect.addFinalizer(() => Effect.sync(() => process.kill(Number(said.trim()), "SIGKILL")))
      assert.isTrue(isAlive(said.trim()))
      for (let turn = 0; turn < 1000 && pipes() > before; turn++)
        yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      assert.isAtMost(pipes(), before, "this process could not exit while that one runs")
    })
  )
})
