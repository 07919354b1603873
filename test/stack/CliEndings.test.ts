/** Ends of the command from outside: by a signal, by a reader that closes the pipe, by a kill. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as CliProcess from "../harness/CliProcess.ts"
import { complaint } from "../harness/CliWorld.ts"

const suite = layer(CliProcess.layer, { excludeTestServices: true })

suite("an end from outside", (it) => {
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129]
  ] as const) {
    it.effect(`${signal} ends the run with exit code ${code}, and leaves nothing`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const started = yield* cli.start(["run", "--demo", "--", "sh", "-c", "echo up; sleep 60"])
        yield* started.said(/^up$/mu)
        assert.isAbove((yield* cli.leftovers).length, 0, "the run has no container")
        yield* started.kill(signal)
        const ended = yield* started.ended
        assert.strictEqual(ended.code, code, ended.stderr)
        assert.include(complaint(ended.stderr), `ended by ${signal}`)
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  }

  it.effect("Ctrl-C also prints a JSON object for scripts", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start([
        "run",
        "-o",
        "json",
        "--run-id",
        "run-for-a-script",
        "--",
        "sleep",
        "60"
      ])
      yield* Effect.repeat(cli.leftovers, { until: (found) => found.length > 0 })
      yield* started.kill("SIGINT")
      const ended = yield* started.ended
      assert.strictEqual(ended.code, 130)
      assert.containSubset(JSON.parse(ended.stdout.toString()), {
        ok: false,
        exitCode: 130,
        error: { code: "interrupted", reason: "SIGINT" }
      })
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )

  it.effect("a second Ctrl-C does not interrupt the cleanup", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start(["run", "-q", "--", "sh", "-c", "echo up; sleep 60"])
      yield* started.said(/^up$/mu)
      yield* started.kill("SIGINT")
      yield* started.kill("SIGINT")
      assert.strictEqual((yield* started.ended).code, 130)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )

  it.effect("Ctrl-C before the sandbox is ready leaves nothing", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      for (const delay of [150, 300, 450, 600]) {
        const started = yield* cli.start(["run", "-q", "--demo", "--", "sleep", "60"])
        yield* Effect.sleep(delay)
        yield* started.kill("SIGINT")
        assert.strictEqual((yield* started.ended).code, 130)
        assert.deepStrictEqual(yield* cli.leftovers, [], `after ${delay} ms`)
      }
    })
  )

  it.effect("a closed pipe ends the run, without an error and without leftovers", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start(["run", "-q", "--", "yes"])
      yield* started.said(/^y$/mu)
      started.child.stdout?.destroy()
      const ended = yield* started.ended
      assert.deepStrictEqual([ended.code, ended.stderr], [141, ""])
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )

  it.effect("the next command removes the leftovers of a killed one", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start([
        "run",
        "-q",
        "--run-id",
        "run-killed-one",
        "--demo",
        "--",
        "sh",
        "-c",
        "echo up; sleep 60"
      ])
      yield* started.said(/^up$/mu)
      yield* started.kill("SIGKILL")
      assert.strictEqual((yield* started.ended).code, 137)
      assert.isAbove((yield* cli.leftovers).length, 1)
      assert.include((yield* cli.run(["ps", "--all"])).stdout.toString(), "abandoned")
      assert.strictEqual((yield* cli.run(["run", "-q", "--", "true"])).code, 0)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )
})
