/** A program of the host: what it is given, what bounds it, and that nothing of its group outlives it. */
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

/** A process that is dead and not reaped yet still has a directory; one that is gone has none. */
const isAlive = (processId: string) => existsSync(`/proc/${processId}/exe`)

/** Turns of the event loop, until something is so. */
const until = (isSo: () => boolean) =>
  Effect.repeat(
    Effect.promise(() => new Promise((resolve) => setImmediate(resolve))),
    { until: isSo }
  )

describe("HostProgram", () => {
  it.live(
    "answers what it wrote and how it ended, of stdin and descriptor 3, in the given environment only",
    () =>
      Effect.gen(function* () {
        const program = shell("cat; cat <&3; env | grep -c HOME >&2; exit 3", { descriptor3: "three" })
        const { exitCode, stderr, stdout } = yield* HostProgram.run(program, "in ")
        assert.deepStrictEqual([exitCode, stdout.toString(), stderr.trim()], [3, "in three", "0"])
      })
  )

  it.live("fails where it cannot be started, takes too long, or writes too much", () =>
    Effect.gen(function* () {
      const problem = (program: HostProgram.HostProgram) =>
        Effect.map(Effect.flip(HostProgram.run(program)), (error) => error.problem)
      assert.strictEqual(yield* problem({ ...shell(""), name: "no-such-program" }), "cannot_start")
      assert.strictEqual(yield* problem(shell("sleep 60", { runtimeSecondsMax: 0.2 })), "too_slow")
      assert.strictEqual(yield* problem(shell("yes", { stdoutBytesMax: 1000 })), "too_much_output")
    })
  )

  it.live("takes what it has started with it, whether it ends by itself or its scope closes", () =>
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
})
