/** Much output of an agent, on real Docker: it is counted, its beginning is kept, and it costs the host no memory. */
import { assert, layer } from "@effect/vitest"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Effect } from "effect"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const MiB = 1024 ** 2

/** Runs a shell line in the runtime image. */
const run = (script: string, limits: SandboxSpecInput["limits"] = {}) =>
  SandboxRunner.use((runner) =>
    runner.run({
      image: Images.runtime,
      argv: ["sh", "-c", script],
      limits: {
        runtimeSecondsMax: Pace.runSecondsMax,
        memoryBytesMax: 128 * MiB,
        processesMax: 64,
        ...limits
      }
    })
  )

/** Returns the resident memory of the test process in MiB. */
const residentMiB = () => process.memoryUsage().rss / MiB

layer(RunHarness.layer(), { excludeTestServices: true })("output", (it) => {
  it.effect(
    "1 GiB on stdout is stopped at the limit, its beginning is kept, and host memory stays flat",
    () =>
      Effect.gen(function* () {
        const before = residentMiB()
        const error = yield* Effect.flip(
          run("echo begin; head -c 1073741824 /dev/zero", {
            outputBytesMax: 64 * MiB,
            outputRetainedBytesMax: MiB
          })
        )
        assert.match(error.message, /more than 64 MiB.*outputBytesMax/su)
        const { reason } = error
        assert(reason._tag === "OutputLimitExceeded", error.message)
        const { stdout } = reason.partial.output
        assert.isAbove(stdout.bytes, 64 * MiB)
        assert.isBelow(stdout.bytes, 256 * MiB, "the agent was not stopped in time")
        assert.strictEqual(stdout.text.length, MiB)
        assert.isTrue(stdout.truncated)
        assert.isTrue(stdout.text.startsWith("begin\n"))
        assert.isBelow(residentMiB() - before, 100)
      })
  )

  it.effect("256 MiB within the limit are counted to the last byte", () =>
    Effect.gen(function* () {
      const before = residentMiB()
      const result = yield* run("head -c 268435456 /dev/zero; echo end >&2", {
        outputBytesMax: 512 * MiB,
        outputRetainedBytesMax: MiB
      })
      assert.strictEqual(result.output.stdout.bytes, 256 * MiB)
      assert.strictEqual(result.output.stderr.text, "end\n")
      assert.isBelow(residentMiB() - before, 100)
    })
  )

  it.effect("bytes that are not valid UTF-8 are counted, and shown as replacement characters", () =>
    Effect.gen(function* () {
      const { output } = yield* run(String.raw`printf '\377\376\000ok\303'; printf '\360\237\230\200' >&2`)
      assert.deepStrictEqual(output.stdout, {
        text: "\u{fffd}\u{fffd}\0ok\u{fffd}",
        bytes: 6,
        truncated: false
      })
      assert.strictEqual(output.stderr.text, "😀")
    })
  )
})
