import { assert, describe, it } from "@effect/vitest"
import {
  LlmProxy,
  MemoryContainerRuntime,
  RunId,
  RunStore,
  SandboxRunner,
  Workspace
} from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import * as Await from "../../../test/harness/Await.ts"
import { ContainerRuntimeFaults, LlmProxyFaults } from "../../../test/harness/faults/Fault.ts"
import type * as Fault from "../../../test/harness/faults/Fault.ts"
import type * as Interceptor from "../../../test/harness/faults/Interceptor.ts"
import * as ResourceLedger from "../../../test/harness/faults/ResourceLedger.ts"
import { Clock, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { forever, hello, leftovers, llm, record, run, runner, settle, spec } from "./Specs.ts"

/** A program that records whether it ran. */
const witness = () => {
  let ran = false
  const program: MemoryContainerRuntime.Program = () =>
    Effect.sync(() => {
      ran = true
      return 0
    })
  return { program, ran: () => ran }
}

const proxyFailed = new SandboxReason.ProxyFailed({ detail: "planted", remedy: "Take it out" })

describe("release of a run", () => {
  const observed = (
    faults: ReadonlyArray<Fault.Fault<keyof Interceptor.ContainerRuntimeOperations>>,
    program: MemoryContainerRuntime.Program
  ) =>
    SandboxRunner.layer.pipe(
      Layer.provideMerge(
        ContainerRuntimeFaults.layer(
          ResourceLedger.observe(
            Layer.mergeAll(
              MemoryContainerRuntime.layer({ program }),
              LlmProxy.layerMemory(),
              Workspace.layerMemory(),
              RunStore.layerMemory
            )
          ),
          faults
        )
      ),
      Layer.provideMerge(ResourceLedger.layer)
    )

  it.effect("is in reverse order: the container first, the run record last", () =>
    Effect.gen(function* () {
      yield* run({ ...spec, llm })
      const ledger = yield* ResourceLedger.ResourceLedger
      assert.deepStrictEqual(yield* ledger.violations, [])
      const released = (yield* ledger.entries)
        .filter(({ event }) => event === "released")
        .map(({ kind }) => kind)
      assert.strictEqual(released[0], "container")
      assert.strictEqual(released.at(-1), "run record")
      assert.sameMembers(released, ["container", "proxy", "workspace", "run record"])
    }).pipe(Effect.provide(observed([], hello)))
  )

  it.effect("continues after a step that dies, and returns the result", () =>
    Effect.gen(function* () {
      const result = yield* run({ ...spec, llm })
      assert.strictEqual(result.exitCode, 0)
      assert.deepStrictEqual(yield* (yield* ResourceLedger.ResourceLedger).violations, [])
      assert.strictEqual((yield* record())?.outcome.status, "exited")
    }).pipe(
      Effect.provide(observed([ContainerRuntimeFaults.dieOnRelease("ContainerRuntime.release")], hello))
    )
  )

  it.effect("abandons a step that hangs after its time limit, and runs the others", () =>
    Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(run({ ...spec, llm }))
      yield* Await.ended(fiber, 100)
      const result = yield* Fiber.join(fiber)
      assert.strictEqual(result.exitCode, 0)
      const ledger = yield* ResourceLedger.ResourceLedger
      const released = (yield* ledger.entries)
        .filter(({ event }) => event === "released")
        .map(({ kind }) => kind)
      assert.sameMembers(released, ["proxy", "workspace", "run record"])
      assert.isNotEmpty(yield* leftovers(), "left to the reaper")
      assert.isAtMost(yield* Clock.currentTimeMillis, 31_000)
    }).pipe(Effect.provide(observed([ContainerRuntimeFaults.hang("ContainerRuntime.release", 1)], hello)))
  )

  it.effect("completes before an interrupted run ends", () =>
    Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(run({ ...spec, llm }))
      yield* settle
      const interrupting = yield* Effect.forkChild(Fiber.interrupt(fiber))
      yield* settle
      assert.isUndefined(fiber.pollUnsafe(), "the stop is slow, and is waited for")
      yield* TestClock.adjust("20 seconds")
      yield* Fiber.join(interrupting)
      assert.deepStrictEqual(yield* leftovers(), [])
      assert.deepStrictEqual(yield* (yield* ResourceLedger.ResourceLedger).violations, [])
    }).pipe(
      Effect.provide(
        observed([ContainerRuntimeFaults.slow("ContainerRuntime.release", "20 seconds")], forever)
      )
    )
  )

  it.effect("is complete if the proxy is never ready: ProxyFailed, and the agent never ran", () => {
    const agent = witness()
    return Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(Effect.flip(run({ ...spec, llm })))
      yield* Await.ended(fiber, 200)
      assert.strictEqual((yield* Fiber.join(fiber)).reason._tag, "ProxyFailed")
      assert.isFalse(agent.ran())
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(
      Effect.provide(
        runner({
          program: agent.program,
          proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [LlmProxyFaults.hang("LlmProxy.ready", 1)])
        })
      )
    )
  })

  it.effect("is complete if the proxy fails, and returns its error unchanged", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(run({ ...spec, llm }))
      assert.deepStrictEqual(error.reason, proxyFailed)
      assert.deepStrictEqual(yield* leftovers(RunId.RunId.make(error.runId ?? "")), [])
    }).pipe(
      Effect.provide(
        runner({
          program: hello,
          proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [
            LlmProxyFaults.failNth("LlmProxy.acquire", 1, proxyFailed)
          ])
        })
      )
    )
  )
})
