/** Open sandboxes: many commands in one container with the hardening of a run. */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect } from "effect"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

layer(RunHarness.layer(), { excludeTestServices: true })("an open sandbox", (it) => {
  it.effect("keeps files but no environment between commands, and ends with its scope", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const runId = yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* runner.open({ image: Images.runtime })
          yield* sandbox.exec(["sh", "-c", "echo kept > file; export WORD=lost"])
          const second = yield* sandbox.exec(
            ["sh", "-c", 'cat file; echo "[$WORD]"; echo said >&2; exit 3'],
            {
              env: { OTHER: "x" },
              workingDirectory: "/workspace"
            }
          )
          assert.deepStrictEqual(
            [second.exitCode, second.output.stdout.text, second.output.stderr.text],
            [3, "kept\n[]\n", "said\n"]
          )
          const held = yield* sandbox.exec([
            "sh",
            "-c",
            "grep -c '^Cap.*0000000000000000$' /proc/self/status; grep NoNewPrivs /proc/self/status; id -u"
          ])
          assert.strictEqual(held.output.stdout.text, "5\nNoNewPrivs:\t1\n1000\n")
          return sandbox.runId
        })
      )
      assert.deepStrictEqual(yield* (yield* ContainerRuntime).leftovers(runId), [])
      assert.strictEqual((yield* (yield* RunStore).get(runId))?.outcome.status, "closed")
    })
  )

  it.effect("fails a command with TimedOut and its output at the sandbox's time limit", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const error = yield* Effect.gen(function* () {
        const sandbox = yield* runner.open({ image: Images.runtime, limits: { runtimeSecondsMax: 2 } })
        return yield* Effect.flip(sandbox.exec(["sh", "-c", "echo begun; sleep 30"]))
      }).pipe(Effect.scoped)
      assert.strictEqual(error.reason._tag, "TimedOut")
      assert.strictEqual(error.partial?.output.stdout.text, "begun\n")
    })
  )
})
