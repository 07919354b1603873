/** `ContainerRuntime` on real Docker meets the same contract as the one in memory. */
import { assert, layer } from "@effect/vitest"
import { ContainerRuntimeContract } from "@cogni/sandbox-core/testing"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxError"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import { Duration, Effect, Layer, Stream } from "effect"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as SessionHarness from "../harness/SessionHarness.ts"

ContainerRuntimeContract.suite("docker", RunHarness.layer(), {
  image: Images.runtime,
  missingImage: Images.absent,
  user: { userId: 1000, groupId: 1000 },
  argv: ContainerRuntimeContract.shell
})

/** Starts an agent container that runs a shell line. */
const begun = Effect.fnUntraced(function* (runId: RunId.RunId, line: string) {
  const runtime = yield* ContainerRuntime
  const { limits } = yield* SandboxSpec.decode({ image: Images.runtime, argv: ["sh"] })
  const container = yield* runtime.acquire({
    runId,
    role: "agent",
    image: Images.runtime,
    argv: ["sh", "-c", line],
    env: {},
    user: { userId: 1000, groupId: 1000 },
    mounts: [],
    network: { mode: "none" },
    limits
  })
  yield* container.start
  yield* container.proceed
  return container
})

const neverResumes = Layer.effect(
  DockerApi.DockerApi,
  Effect.map(DockerApi.DockerApi, (api) => ({
    ...api,
    unpause: () =>
      Effect.fail(new ContainerFailed({ operation: "unpause", detail: "it is stuck", remedy: "Look at it" }))
  }))
).pipe(Layer.provide(DockerApi.layer()))

layer(RunHarness.layer(), { excludeTestServices: true })("a paused container on Docker", (it) => {
  it.effect("does nothing while paused, and continues afterwards", () =>
    Effect.gen(function* () {
      const counting = yield* begun(yield* RunId.generate, "while :; do echo .; sleep 0.01; done")
      let bytes = 0
      yield* Effect.forkScoped(
        Stream.runForEach(counting.output, (chunk) => Effect.sync(() => (bytes += chunk.bytes.byteLength)))
      )
      const more = Effect.suspend(() => {
        const before = bytes
        return SessionHarness.eventually(
          "the container continues",
          Effect.sync(() => bytes > before)
        )
      })
      yield* more
      yield* counting.whilePaused(
        Effect.gen(function* () {
          // Lets output in transit arrive.
          yield* Effect.sleep("300 millis")
          const before = bytes
          yield* Effect.sleep("300 millis")
          assert.strictEqual(bytes, before)
        })
      )
      yield* more
    })
  )

  it.effect("can end at any moment of a pause without a failure", () =>
    Effect.forEach(
      Array.from({ length: 24 }, (_, index) => index),
      Effect.fnUntraced(function* (index) {
        const container = yield* begun(yield* RunId.generate, `sleep 0.${String(10 + 3 * index)}`)
        yield* Effect.forkScoped(Stream.runDrain(container.output))
        yield* Effect.raceFirst(
          Effect.forever(container.whilePaused(Effect.sleep("1 millis"))),
          container.exit
        )
        assert.strictEqual((yield* container.exit).exitCode, 0)
        yield* container.whilePaused(Effect.void)
      }, Effect.scoped),
      { concurrency: 4, discard: true }
    )
  )

  it.effect("fails if it cannot resume, and is still removed", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const runId = yield* RunId.generate
      yield* Effect.scoped(
        Effect.gen(function* () {
          const container = yield* begun(runId, "sleep 60")
          const error = yield* Effect.flip(container.whilePaused(Effect.void))
          assert.strictEqual(error._tag, "ContainerFailed")
          assert.include(error.message, "unpause")
          assert.isNotEmpty(yield* runtime.leftovers(runId))
          yield* container.stop(Duration.seconds(1))
        })
      )
      assert.deepStrictEqual(yield* runtime.leftovers(runId), [])
    }).pipe(Effect.provide(Layer.provide(DockerContainerRuntime.layerApi(), neverResumes)))
  )
})
