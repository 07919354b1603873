/** The end of a run with a faulty observer or a faulty store. */
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunStore from "@cogni/sandbox-core/RunStore"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import { context, envelope, grantOf, Heard, observing, request, run, told } from "./GraphWorld.ts"
import { call, traffic } from "./Traffic.ts"

const answering: MemoryContainerRuntime.Program = (io) => Effect.as(io.stdout(envelope("Lima")), 0)
const hanging: MemoryContainerRuntime.Program = () => Effect.never

const oneCall = traffic([call()], {
  usage: {
    calls: 1,
    inputTokens: 11,
    outputTokens: 5,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    costUsd: 0.25,
    callsWithoutUsage: 0,
    callsWithoutCost: 0
  }
})

/** A proxy that saw one call, and reports it one second after it is asked. */
const proxy = Layer.effect(
  LlmProxy.LlmProxy,
  Effect.map(LlmProxy.makeMemory(), (memory) =>
    LlmProxy.LlmProxy.of({
      ...memory,
      acquire: (asked) =>
        Effect.map(memory.acquire(asked), (endpoint) => ({
          ...endpoint,
          finish: Effect.as(Effect.sleep("1 second"), oneCall)
        }))
    })
  )
)

/** A store with a fault, seen by the provider only or also by the runner. */
const world = (
  program: MemoryContainerRuntime.Program,
  sick: (store: RunStore.RunStore["Service"]) => Partial<RunStore.RunStore["Service"]> = () => ({}),
  sickRunner: typeof sick = () => ({})
) => {
  const store = (over: typeof sick) =>
    Layer.effect(
      RunStore.RunStore,
      Effect.map(RunStore.RunStore, (whole) => RunStore.RunStore.of({ ...whole, ...over(whole) }))
    )
  return SandboxGraphProvider.layer({ enabled: true, models: ["gpt"] }).pipe(
    Layer.provide([
      AgentRegistry.layer([minimal]),
      Layer.mock(GrantStore, { find: () => Effect.succeed(grantOf()) }),
      Repositories.layerNoop,
      store(sick),
      SandboxRunner.layer.pipe(
        Layer.provide([
          proxy,
          Workspace.layerMemory(),
          MemoryContainerRuntime.layer({ program }),
          store(sickRunner)
        ])
      )
    ]),
    Layer.provideMerge(Layer.merge(RunStore.layerMemory, observing()))
  )
}

/** Returns the final after some time; `undefined` if it has not settled. */
const finalAfter = Effect.fnUntraced(function* (
  live: Effect.Success<ReturnType<typeof run>>,
  time: "5 minutes" | "31 seconds"
) {
  const waiting = yield* Effect.forkChild(live.final)
  yield* TestClock.adjust(time)
  const exit = waiting.pollUnsafe()
  return exit !== undefined && Exit.isSuccess(exit) ? exit.value : undefined
})

describe("Conclusion", () => {
  it.effect.each<[string, Effect.Effect<void, unknown>]>([
    ["fails", Effect.fail("the ledger is down")],
    ["has a defect", Effect.die("broken")]
  ])("ends a run whose observer %s", ([, answer]) =>
    Effect.gen(function* () {
      const heard = yield* Heard
      heard.answer = answer
      const live = yield* run(request())
      assert.containSubset(yield* finalAfter(live, "31 seconds"), { ok: true, content: "Lima" })
      assert.strictEqual(heard.ends.length, 1)
    }).pipe(Effect.scoped, Effect.provide(world(answering)))
  )

  it.effect("ends a run whose store does not answer when it is annotated", () =>
    Effect.gen(function* () {
      const live = yield* run(request())
      yield* TestClock.adjust("1 second")
      assert.containSubset(yield* finalAfter(live, "31 seconds"), { ok: true })
    }).pipe(Effect.scoped, Effect.provide(world(answering, () => ({ annotate: () => Effect.never }))))
  )

  it.effect(
    "ends a run whose store does not answer when its record is read, and reports its usage as unknown",
    () =>
      Effect.gen(function* () {
        const { ends } = yield* Heard
        const live = yield* run(request())
        yield* TestClock.adjust("1 second")
        yield* live.cancel
        yield* TestClock.adjust("1 second")
        assert.containSubset(yield* finalAfter(live, "31 seconds"), { ok: false, error: "aborted" })
        assert.notProperty(ends[0]?.facts[0], "inputTokens")
      }).pipe(Effect.scoped, Effect.provide(world(hanging, () => ({ describe: () => Effect.never }))))
  )

  it.effect("reads the usage of a cancelled run from its record", () =>
    Effect.gen(function* () {
      yield* TestClock.adjust("1 hour")
      const { ends } = yield* Heard
      const live = yield* run(request())
      yield* TestClock.adjust("4 seconds")
      yield* live.cancel
      const final = yield* finalAfter(live, "31 seconds")
      assert.containSubset(final, { error: "aborted", usage: { promptTokens: 11, completionTokens: 5 } })
      assert.deepStrictEqual(
        ends.map(({ facts }) => facts.map(({ inputTokens, usageUnitId }) => [usageUnitId, inputTokens])),
        [[["call-1", 11]]]
      )
      // Four seconds of the agent, and one for the last report of the proxy.
      assert.strictEqual(ends[0]?.durationMs, 5000)
    }).pipe(Effect.scoped, Effect.provide(world(hanging)))
  )

  it.effect("reads the usage of a run that timed out from its end", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const live = yield* run(request({ runtimeSecondsMax: 10 }))
      const final = yield* finalAfter(live, "5 minutes")
      assert.containSubset(final, { error: "timeout", usage: { promptTokens: 11, completionTokens: 5 } })
      assert.strictEqual(ends[0]?.facts[0]?.usageUnitId, "call-1")
    }).pipe(Effect.scoped, Effect.provide(world(hanging, () => ({ describe: () => Effect.never }))))
  )

  it.effect("does not change another run's record if the run ends before it owns its ID", () => {
    let isTaken = false
    return Effect.gen(function* () {
      const first = yield* Effect.forkChild(told(request()))
      yield* TestClock.adjust("1 minute")
      assert.isTrue((yield* Fiber.join(first)).final.ok)
      const store = yield* RunStore.RunStore
      const before = yield* store.get(context.runId)
      isTaken = true
      const { ends } = yield* Heard
      const live = yield* run(request())
      yield* live.cancel
      assert.containSubset(yield* finalAfter(live, "31 seconds"), { ok: false, error: "aborted" })
      assert.deepStrictEqual(yield* store.get(context.runId), before)
      assert.lengthOf(ends, 2)
      assert.notProperty(ends[1]?.facts[0], "inputTokens")
    }).pipe(
      Effect.scoped,
      Effect.provide(
        world(
          answering,
          () => ({}),
          (whole) => ({ open: (...of) => (isTaken ? Effect.never : whole.open(...of)) })
        )
      )
    )
  })

  it.effect("calls the observer once, also if the scope of the run closes during the call", () =>
    Effect.gen(function* () {
      const heard = yield* Heard
      const { ends } = heard
      heard.answer = Effect.sleep("1 second")
      const scope = yield* Scope.make()
      const live = yield* Scope.provide(run(request()), scope)
      yield* TestClock.adjust("1500 millis")
      assert.strictEqual(ends.length, 1)
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      const final = yield* finalAfter(live, "31 seconds")
      assert.isDefined(closing.pollUnsafe())
      assert.strictEqual(ends.length, 1)
      assert.deepStrictEqual(ends[0]?.final, final)
    }).pipe(Effect.provide(world(answering)))
  )

  it.effect("ends a run whose observer takes too long", () =>
    Effect.gen(function* () {
      const heard = yield* Heard
      heard.answer = Effect.sleep("1 hour")
      const live = yield* run(request())
      const final = yield* finalAfter(live, "5 minutes")
      yield* TestClock.adjust("3 hours")
      assert.containSubset(final, { ok: true })
    }).pipe(Effect.scoped, Effect.provide(world(answering)))
  )

  for (const broken of ["annotate", "describe"] as const) {
    it.effect(`ends a run whose store fails in ${broken}`, () =>
      Effect.gen(function* () {
        const { ends } = yield* Heard
        const live = yield* run(request())
        yield* TestClock.adjust("4 seconds")
        yield* live.cancel
        assert.isDefined(yield* finalAfter(live, "5 minutes"))
        assert.strictEqual(ends.length, 1)
      }).pipe(
        Effect.scoped,
        Effect.provide(world(hanging, () => ({ [broken]: () => Effect.die(new Error("broken")) })))
      )
    )
  }

  it.effect("reports the usage of a run whose reader leaves when the agent is done", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const live = yield* run(request())
      const isOver = ({ phase, type }: { readonly type: string; readonly phase?: string }) =>
        type === "status" && phase === "agent"
      yield* Stream.runDrain(Stream.takeUntil(live.events, isOver))
      yield* finalAfter(live, "5 minutes")
      assert.strictEqual(ends[0]?.facts[0]?.inputTokens, 11)
    }).pipe(Effect.scoped, Effect.provide(world(answering)))
  )
})
