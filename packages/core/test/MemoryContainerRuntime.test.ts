import { assert, describe, it } from "@effect/vitest"
import { ContainerRuntime, MemoryContainerRuntime, RunId } from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import { ContainerRuntimeContract } from "@cogni/sandbox-core/testing"
import { Duration, Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import { containerSpec } from "./Specs.ts"

ContainerRuntimeContract.suite("memory", MemoryContainerRuntime.layer(ContainerRuntimeContract.memoryOptions))

const acquire = Effect.gen(function* () {
  const runtime = yield* ContainerRuntime.ContainerRuntime
  return yield* runtime.acquire(containerSpec(RunId.RunId.make("run-memory000001")))
})

describe("MemoryContainerRuntime", () => {
  it.effect("ends a program that dies with a signal's exit code, never with an error", () =>
    Effect.gen(function* () {
      const container = yield* acquire
      yield* container.start
      yield* container.proceed
      yield* Stream.runDrain(container.output)
      assert.strictEqual((yield* container.exit).exitCode, 139)
    }).pipe(Effect.provide(MemoryContainerRuntime.layer({ program: () => Effect.die("segmentation fault") })))
  )

  it.effect("kills exactly when the grace is over", () =>
    Effect.gen(function* () {
      const container = yield* acquire
      yield* container.start
      yield* container.proceed
      const stop = yield* Effect.forkChild(container.stop(Duration.seconds(5)))
      yield* TestClock.adjust("4999 millis")
      assert.isUndefined(stop.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(stop)
      assert.strictEqual((yield* container.exit).exitCode, 137)
    }).pipe(Effect.provide(MemoryContainerRuntime.layer({ program: () => Effect.never })))
  )

  it.effect("fails with ImageNotFound for an image that was not named", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(acquire)
      assert.instanceOf(error, SandboxReason.ImageNotFound)
    }).pipe(Effect.provide(MemoryContainerRuntime.layer({ images: new Set() })))
  )
})
