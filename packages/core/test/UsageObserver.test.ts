import { assert, describe, it } from "@effect/vitest"
import {
  LlmProxy,
  MemoryContainerRuntime,
  RunId,
  RunStore,
  SandboxRunner,
  UsageObserver,
  Workspace
} from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import { LlmProxyContract } from "@cogni/sandbox-core/testing"
import { Deferred, Effect, Fiber, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"

const runId = RunId.RunId.make("run-observed0001")
const request = LlmProxyContract.requestOf(runId)
const calls = [{ inputTokens: 7, outputTokens: 3, costUsd: 0.5 }]

/** A proxy in memory with this observer, and what it has heard. */
const observing = Effect.fnUntraced(function* (
  observe: Parameters<typeof UsageObserver.layer>[0] = () => Effect.void,
  inner?: LlmProxy.LlmProxy["Service"]
) {
  const heard: Array<UsageObserver.ObservedUsage> = []
  const proxy = yield* UsageObserver.observed(inner ?? (yield* LlmProxy.makeMemory({ calls }))).pipe(
    Effect.provide(
      UsageObserver.layer((usage) =>
        Effect.andThen(
          Effect.sync(() => heard.push(usage)),
          observe(usage)
        )
      )
    )
  )
  return { heard, proxy }
})

const runnerWith = (proxy: LlmProxy.LlmProxy["Service"]) =>
  SandboxRunner.layer.pipe(
    Layer.provide([Layer.succeed(LlmProxy.LlmProxy, proxy), Workspace.layerMemory(), RunStore.layerMemory]),
    Layer.provide(MemoryContainerRuntime.layer())
  )

const spec = { image: "any", llm: { model: "m", identity: { billingAccountId: "acme" } } }

describe("UsageObserver", () => {
  it.effect("hears the traffic of a run once, with who pays", () =>
    Effect.gen(function* () {
      const { heard, proxy } = yield* observing()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { finish } = yield* proxy.acquire(request)
          assert.lengthOf(heard, 0)
          const traffic = yield* finish
          assert.deepStrictEqual(heard, [
            { runId, identity: request.llm.identity, model: request.llm.model, traffic }
          ])
          yield* finish
        })
      )
      assert.lengthOf(heard, 1)
      assert.strictEqual(heard[0]?.traffic.usage?.costUsd, 0.5)
    })
  )

  it.effect("hears a run whose scope closes without asking for its traffic", () =>
    Effect.gen(function* () {
      const { heard, proxy } = yield* observing()
      yield* Effect.scoped(proxy.acquire(request))
      assert.strictEqual(heard[0]?.traffic.callsTotal, 1)
    })
  )

  it.effect("hears nothing of a sandbox without a model", () =>
    Effect.gen(function* () {
      const { heard, proxy } = yield* observing()
      yield* Effect.scoped(proxy.acquire({ ...request, llm: undefined }))
      assert.lengthOf(heard, 0)
    })
  )

  it.effect("hears a run, and a sandbox from open, whose commands have no result with costs", () =>
    Effect.gen(function* () {
      const { heard, proxy } = yield* observing()
      yield* Effect.gen(function* () {
        const runner = yield* SandboxRunner.SandboxRunner
        yield* runner.run({ ...spec, argv: ["true"] })
        assert.lengthOf(heard, 1)
        yield* Effect.scoped(runner.open(spec))
        assert.lengthOf(heard, 2)
        assert.isTrue(heard.every(({ identity }) => identity.billingAccountId === "acme"))
      }).pipe(Effect.provide(runnerWith(proxy)))
    })
  )

  it.effect("changes no run by a failure or a defect, and logs both", () =>
    Effect.gen(function* () {
      for (const broken of [Effect.fail("full"), Effect.die("broken")]) {
        const logged: Array<string> = []
        const { heard, proxy } = yield* observing(() => broken)
        const traffic = yield* Effect.scoped(
          Effect.flatMap(proxy.acquire(request), ({ finish }) => finish)
        ).pipe(
          Effect.provide(Logger.layer([Logger.make(({ message }) => void logged.push(String(message)))]))
        )
        assert.strictEqual(traffic.callsTotal, 1)
        assert.lengthOf(heard, 1)
        assert.include(logged.join("\n"), `the observer of usage failed for run ${runId}`)
      }
    })
  )

  it.effect("logs a run whose calls are unknown, and changes nothing else", () =>
    Effect.gen(function* () {
      const logged: Array<string> = []
      const inner = yield* LlmProxy.makeMemory({ calls })
      const lost = Effect.fail(
        new SandboxReason.ProxyFailed({ detail: "its log is gone", remedy: "Try again" })
      )
      const { heard, proxy } = yield* observing(
        undefined,
        LlmProxy.LlmProxy.of({
          ...inner,
          acquire: (asked) => Effect.map(inner.acquire(asked), (endpoint) => ({ ...endpoint, finish: lost }))
        })
      )
      yield* Effect.scoped(proxy.acquire(request)).pipe(
        Effect.provide(Logger.layer([Logger.make(({ message }) => void logged.push(String(message)))]))
      )
      assert.lengthOf(heard, 0)
      assert.match(
        logged.join("\n"),
        /does not hear run run-observed0001: its calls are unknown\. .*its log is gone/u
      )
    })
  )

  it.effect("waits at most 30 seconds for an observer that does not end", () =>
    Effect.gen(function* () {
      const { heard, proxy } = yield* observing(() => Effect.never)
      const run = yield* Effect.forkChild(Effect.scoped(proxy.acquire(request)), { startImmediately: true })
      yield* TestClock.adjust("29 seconds")
      assert.isUndefined(run.pollUnsafe())
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(run)
      assert.lengthOf(heard, 1)
    })
  )

  it.effect("lets the observer end if the run is interrupted meanwhile", () =>
    Effect.gen(function* () {
      const started = yield* Deferred.make<void>()
      const open = yield* Deferred.make<void>()
      let accepted = 0
      const { proxy } = yield* observing(() =>
        Deferred.succeed(started, undefined).pipe(
          Effect.andThen(Deferred.await(open)),
          Effect.andThen(Effect.sync(() => (accepted += 1)))
        )
      )
      const run = yield* Effect.forkChild(
        Effect.scoped(Effect.flatMap(proxy.acquire(request), ({ finish }) => finish))
      )
      yield* Deferred.await(started)
      const interruption = yield* Effect.forkChild(Fiber.interrupt(run), { startImmediately: true })
      // Everything that the interruption would end has ended by then.
      yield* TestClock.adjust("1 second")
      yield* Deferred.succeed(open, undefined)
      yield* Fiber.join(interruption)
      assert.strictEqual(accepted, 1)
    })
  )

  it.effect("wraps nothing without an observer", () =>
    Effect.gen(function* () {
      const inner = yield* LlmProxy.makeMemory()
      assert.strictEqual(yield* UsageObserver.observed(inner), inner)
    }).pipe(Effect.provide(UsageObserver.layerNone))
  )
})
