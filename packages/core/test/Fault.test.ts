import { assert, describe, it } from "@effect/vitest"
import { ContainerRuntime, LlmProxy, MemoryContainerRuntime, RunStore, Workspace } from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import { ContainerRuntimeContract, LlmProxyContract } from "@cogni/sandbox-core/testing"
import {
  ContainerRuntimeFaults,
  LlmProxyFaults,
  RunStoreFaults,
  WorkspaceFaults
} from "../../../test/harness/faults/Fault.ts"
import { Clock, Effect, Exit, Fiber, Layer, Stream } from "effect"
import { TestClock } from "effect/testing"
import { containerSpec, leftovers, runId, settle } from "./Specs.ts"

const memory = MemoryContainerRuntime.layer({ program: ({ stdout }) => Effect.as(stdout("hello"), 0) })
const planted = new SandboxReason.ContainerFailed({
  operation: "planted",
  detail: "planted",
  remedy: "Take it out"
})

const acquire = ContainerRuntime.ContainerRuntime.use((runtime) => runtime.acquire(containerSpec(runId)))

// A wrapper without faults changes nothing.
ContainerRuntimeContract.suite(
  "memory, without a fault",
  ContainerRuntimeFaults.layer(MemoryContainerRuntime.layer(ContainerRuntimeContract.memoryOptions), [])
)

describe("Fault", () => {
  it.effect("failNth fails that call, and no other", () =>
    Effect.gen(function* () {
      const exits = yield* Effect.all(Array.from({ length: 4 }, () => Effect.exit(Effect.scoped(acquire))))
      assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, true, false, true])
      assert.deepStrictEqual(yield* Effect.flip(exits[2]!), planted)
    }).pipe(
      Effect.provide(
        ContainerRuntimeFaults.layer(memory, [
          ContainerRuntimeFaults.failNth("ContainerRuntime.acquire", 3, planted)
        ])
      )
    )
  )

  it.effect("after creates the container and loses the answer, and the scope still removes it", () =>
    Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* Effect.flip(acquire)
          assert.isNotEmpty(yield* leftovers())
        })
      )
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(
      Effect.provide(
        ContainerRuntimeFaults.layer(memory, [
          ContainerRuntimeFaults.failNth("ContainerRuntime.acquire", 1, planted, "after")
        ])
      )
    )
  )

  it.effect("hang never returns, and can be interrupted", () =>
    Effect.gen(function* () {
      const container = yield* acquire
      const fiber = yield* Effect.forkChild(container.start)
      yield* TestClock.adjust("1 hour")
      assert.isUndefined(fiber.pollUnsafe())
      yield* Fiber.interrupt(fiber)
      assert.isDefined(yield* container.start)
    }).pipe(
      Effect.provide(
        ContainerRuntimeFaults.layer(memory, [ContainerRuntimeFaults.hang("Container.start", 1)])
      )
    )
  )

  it.effect("slow delays every call", () =>
    Effect.gen(function* () {
      const container = yield* acquire
      const fiber = yield* Effect.forkChild(
        container.start.pipe(Effect.andThen(container.start), Effect.andThen(Clock.currentTimeMillis))
      )
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(yield* Fiber.join(fiber), 10_000)
    }).pipe(
      Effect.provide(
        ContainerRuntimeFaults.layer(memory, [ContainerRuntimeFaults.slow("Container.start", "5 seconds")])
      )
    )
  )

  it.effect("dieOnRelease dies, and the resource is still released", () =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(Effect.scoped(acquire))
      assert.isTrue(Exit.hasDies(exit))
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(
      Effect.provide(
        ContainerRuntimeFaults.layer(memory, [
          ContainerRuntimeFaults.dieOnRelease("ContainerRuntime.release")
        ])
      )
    )
  )

  it.effect("fails a stream when it is read", () =>
    Effect.gen(function* () {
      const container = yield* acquire
      yield* container.start
      yield* container.proceed
      assert.deepStrictEqual(yield* Effect.flip(Stream.runDrain(container.output)), planted)
    }).pipe(
      Effect.provide(
        ContainerRuntimeFaults.layer(memory, [ContainerRuntimeFaults.failNth("Container.output", 1, planted)])
      )
    )
  )

  it.effect("injects faults into the other ports in the same way", () =>
    Effect.gen(function* () {
      const failed = new SandboxReason.WorkspaceFailed({
        path: "/planted",
        detail: "planted",
        remedy: "Take it out"
      })
      const taken = new SandboxReason.RunIdInUse({ runId })
      const layer = Layer.mergeAll(
        LlmProxyFaults.layer(LlmProxy.layerMemory(), [
          LlmProxyFaults.failNth("LlmProxy.traffic", 1, planted)
        ]),
        WorkspaceFaults.layer(Workspace.layerMemory(), [
          WorkspaceFaults.failNth("Workspace.countedBytes", 2, failed)
        ]),
        RunStoreFaults.layer(RunStore.layerMemory, [
          RunStoreFaults.failNth("RunStore.open", 1, taken),
          RunStoreFaults.hang("RunStore.list", 1)
        ])
      )
      yield* Effect.gen(function* () {
        const endpoint = yield* (yield* LlmProxy.LlmProxy).acquire(LlmProxyContract.requestOf(runId))
        yield* endpoint.ready
        assert.deepStrictEqual(yield* Effect.flip(endpoint.traffic), planted)
        const workspace = yield* (yield* Workspace.Workspace).acquire({
          runId,
          source: { type: "temporary" },
          inputs: [],
          planted: [],
          memory: false,
          workspaceBytesMax: 1024 * 1024
        })
        assert.deepStrictEqual(yield* workspace.countedBytes, { bytes: 0, isCertain: true })
        assert.deepStrictEqual(yield* Effect.flip(workspace.countedBytes), failed)
        const store = yield* RunStore.RunStore
        assert.deepStrictEqual(yield* Effect.flip(store.open(runId, {} as never)), taken)
        const fiber = yield* Effect.forkChild(store.list)
        yield* settle
        assert.isUndefined(fiber.pollUnsafe())
      }).pipe(Effect.provide(layer))
    })
  )
})
