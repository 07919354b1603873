/** Runs that have done nothing for so long that the host looks at them rarely: their limits hold when they wake up. */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import { Duration, Effect, Stream } from "effect"
import * as Await from "../harness/Await.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const MiB = 1024 ** 2

/** Longer than until the second count of a workspace without a change: no count is due after that. */
const idleSeconds = 25

/** After what it does when it wakes up, the agent sleeps until it is stopped. */
const wakes = (line: string, limits: SandboxSpecInput["limits"]) =>
  SandboxRunner.use((runner) =>
    runner.run({
      image: Images.runtime,
      argv: ["sh", "-c", `sleep ${idleSeconds}; ${line}; sleep ${Pace.runSecondsMax}`],
      limits: { runtimeSecondsMax: Pace.runSecondsMax, memoryBytesMax: 64 * MiB, processesMax: 64, ...limits }
    })
  ).pipe(Effect.flip, Effect.timed)

layer(RunHarness.layer(), { excludeTestServices: true })("runs that wake up", (it) => {
  it.effect("are stopped as soon as they break a limit", () =>
    Effect.gen(function* () {
      const all = yield* Effect.all(
        {
          DiskFull: wakes("head -c 64M /dev/zero >/workspace/file", { workspaceBytesMax: 16 * MiB }),
          OomKilled: wakes("exec tail /dev/zero", {}),
          OutputLimitExceeded: wakes("head -c 64M /dev/zero", { outputBytesMax: MiB }),
          PidsExhausted: wakes("for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; exit", { processesMax: 8 })
        },
        { concurrency: "unbounded" }
      )
      for (const [tag, [took, error]] of Object.entries(all)) {
        assert.strictEqual(error.reason._tag, tag, error.message)
        const secondsMax = idleSeconds + Pace.allowed(15)
        assert.isBelow(Duration.toSeconds(took), secondsMax, tag)
      }
    })
  )

  it.effect("use no processor time while they sleep, and some when they wake up", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const { limits } = yield* SpecDecoder.decode({ image: Images.runtime, argv: ["sh"] })
      const container = yield* runtime.acquire({
        runId: yield* RunId.generate,
        role: "agent",
        image: Images.runtime,
        argv: [
          "sh",
          "-c",
          "echo ready; sleep 5; i=0; while [ $i -lt 10000 ]; do i=$((i + 1)); done; echo done; sleep 600"
        ],
        env: {},
        user: { userId: 1000, groupId: 1000 },
        mounts: [],
        network: { mode: "none" },
        limits
      })
      yield* container.start
      yield* container.proceed
      const used = container.processorMicros ?? Effect.undefined
      const heard = { text: "" }
      yield* Effect.forkScoped(
        Stream.runForEach(container.output, ({ bytes }) =>
          Effect.sync(() => (heard.text += Buffer.from(bytes).toString()))
        )
      )
      yield* Await.until(
        "it sleeps",
        Effect.sync(() => heard.text.includes("ready"))
      )
      const asleep = { micros: yield* used, same: 0 }
      yield* Await.until(
        "its processor time stays the same",
        Effect.map(used, (micros) => {
          asleep.same = micros === asleep.micros ? asleep.same + 1 : 0
          asleep.micros = micros
          return asleep.same > 110
        })
      )
      assert.notInclude(heard.text, "done")
      yield* Await.until(
        "it wakes up",
        Effect.sync(() => heard.text.includes("done"))
      )
      assert.isAbove((yield* used) ?? 0, asleep.micros ?? Infinity)
    })
  )
})
