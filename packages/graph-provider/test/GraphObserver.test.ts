/** Every run of every provider reaches the observer, however the layers are composed and whatever a reader does. */
import { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import type { GraphProvider } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import type { GraphRun } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import * as GraphRunner from "@cogni/sandbox-graph-provider/graphs/GraphRunner"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Queue, Schema, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import type { UsageFact } from "../src/events/UsageFact.ts"
import { context, envelope, grantOf, Heard, observing, request } from "./GraphWorld.ts"

const needs = Layer.mergeAll(
  AgentRegistry.layer(),
  Layer.mock(GrantStore, { find: () => Effect.succeed(grantOf()) }),
  Repositories.layerNoop,
  SandboxRunner.layerMemory({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })
)

const provider = SandboxGraphProvider.layer({ enabled: true, models: ["gpt"] }).pipe(Layer.provide(needs))

const executor = AggregatingGraphExecutor.layer([SandboxGraphProvider.SandboxGraphProvider])

/** An observer that only the layer below it sees, and the ends that it has heard. */
const hidden = () => {
  const ends: Array<GraphObserver.ObservedEnd> = []
  return { ends, layer: GraphObserver.layer((end) => Effect.sync(() => void ends.push(end))) }
}

const drained = <R>(run: Effect.Effect<GraphRun, never, R>) =>
  Effect.scoped(Effect.flatMap(run, ({ events }) => Stream.runDrain(events)))

const viaProvider = SandboxGraphProvider.SandboxGraphProvider.use((one) =>
  drained(one.run(request(), context))
)

const viaExecutor = AggregatingGraphExecutor.GraphExecutor.use((one) => drained(one.run(request(), context)))

const viaRunner = Effect.scoped(
  Effect.flatMap(GraphRunner.make, ({ runGraph }) => Effect.promise(() => runGraph(request(), context).final))
)

/** A usage fact as a third-party provider may report it, with an owner that is not its own. */
const claimed = (over: Partial<UsageFact> = {}): UsageFact => ({
  runId: RunId.make("run-000000000099"),
  attempt: 9,
  source: "their-meter",
  executorType: "sandbox",
  billingAccountId: "acct-of-others",
  virtualKeyId: "vk-of-others",
  graphId: "sandbox:agent",
  usageUnitId: "unit-1",
  inputTokens: 7,
  outputTokens: 3,
  ...over
})

const usage = (over?: Partial<UsageFact>): AiEvent => ({ type: "usage_report", fact: claimed(over) })

const text: AiEvent = { type: "text_delta", delta: "hello" }
const final = { ok: true, runId: context.runId, requestId: "req-1" } as const

const local = (run: GraphProvider["run"]): GraphProvider => ({
  providerId: "local",
  canHandle: (graphId) => graphId.startsWith("local:"),
  check: () => Effect.void,
  run
})

const runOf = (events: Stream.Stream<AiEvent>, over: Partial<GraphRun> = {}) =>
  Effect.succeed<GraphRun>({
    runId: context.runId,
    events,
    final: Effect.succeed(final),
    closed: Effect.void,
    cancel: Effect.void,
    ...over
  })

/** A provider that emits these events and ends. */
const saying = (...events: ReadonlyArray<AiEvent>) => local(() => runOf(Stream.fromIterable(events)))

const run = (one: GraphProvider, graphId = "local:echo") =>
  Effect.flatMap(AggregatingGraphExecutor.make([one]), (made) => made.run(request({ graphId }), context))

/** Our own facts name the run and the account that the host knows. */
const own = {
  runId: context.runId,
  attempt: context.attempt,
  billingAccountId: "acct",
  virtualKeyId: "vk",
  graphId: "local:echo",
  executorType: "local"
}

describe("an observer", () => {
  it.effect.each<[string, (observer: Layer.Layer<GraphObserver.GraphObserver>) => Effect.Effect<unknown>]>([
    [
      "Layer.provide below the provider",
      (observer) => Effect.provide(viaProvider, Layer.provide(provider, observer))
    ],
    [
      "Layer.provideMerge below the provider",
      (observer) => Effect.provide(viaProvider, Layer.provideMerge(provider, observer))
    ],
    [
      "Layer.provide below provider and executor",
      (observer) =>
        Effect.provide(viaExecutor, executor.pipe(Layer.provide(provider), Layer.provide(observer)))
    ],
    [
      "Layer.provideMerge below provider and executor",
      (observer) =>
        Effect.provide(viaExecutor, executor.pipe(Layer.provideMerge(provider), Layer.provideMerge(observer)))
    ],
    [
      "Layer.provide to each of them",
      (observer) =>
        Effect.provide(
          viaExecutor,
          executor.pipe(Layer.provide(Layer.provide(provider, observer)), Layer.provide(observer))
        )
    ],
    [
      "GraphRunner.make over an executor with Layer.provide",
      (observer) => Effect.provide(viaRunner, executor.pipe(Layer.provide(provider), Layer.provide(observer)))
    ],
    [
      "GraphRunner.make over an executor with Layer.provideMerge",
      (observer) =>
        Effect.provide(viaRunner, executor.pipe(Layer.provide(provider), Layer.provideMerge(observer)))
    ]
  ])("hears each run once with %s", ([, compose]) =>
    Effect.gen(function* () {
      const { ends, layer } = hidden()
      yield* compose(layer)
      assert.deepStrictEqual(
        ends.map(({ final, request }) => [request.graphId, final.ok]),
        [["sandbox:agent", true]]
      )
      assert.isAtLeast(ends[0]?.facts.length ?? 0, 1)
    })
  )
})

describe("the observer of another provider's run", () => {
  it.effect("hears its facts, with the run and the account that the host knows", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      yield* drained(
        run(saying(text, { type: "assistant_final", content: "hello" }, usage(), { type: "done" }))
      )
      assert.strictEqual(ends.length, 1)
      assert.deepStrictEqual(ends[0]?.facts, [{ ...claimed(), ...own }])
      assert.deepStrictEqual(ends[0]?.final, final)
    }).pipe(Effect.provide(observing()))
  )

  it.effect("hears the same facts as the reader", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const events = yield* Effect.scoped(
        Effect.flatMap(
          run(saying(usage(), usage({ usageUnitId: "unit-2" }), { type: "done" })),
          ({ events }) => Stream.runCollect(events)
        )
      )
      const told = [...events].flatMap((event) => (event.type === "usage_report" ? [event.fact] : []))
      assert.deepStrictEqual(ends[0]?.facts, told)
      assert.deepStrictEqual(
        told.map(({ usageUnitId }) => usageUnitId),
        ["unit-1", "unit-2"]
      )
    }).pipe(Effect.provide(observing()))
  )

  it.effect(
    "hears unknown usage of a run that reports none, and the totals of its result if it has them",
    () =>
      Effect.gen(function* () {
        const { ends } = yield* Heard
        yield* drained(run(saying(text)))
        assert.deepStrictEqual(ends[0]?.facts, [{ ...own, source: "local" }])
        const totals = { promptTokens: 5, completionTokens: 2 }
        yield* drained(
          run(local(() => runOf(Stream.make(text), { final: Effect.succeed({ ...final, usage: totals }) })))
        )
        assert.deepStrictEqual(ends[1]?.facts, [{ ...own, source: "local", inputTokens: 5, outputTokens: 2 }])
      }).pipe(Effect.provide(observing()))
  )

  it.effect("hears of a provider that fails before it starts a run, and the run reports it", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const how = yield* Effect.scoped(
        Effect.flatMap(run(local(() => Effect.die(new Error("broken")))), (live) => live.final)
      )
      assert.containSubset(how, { ok: false, error: "internal", reason: "ProviderBroke" })
      assert.deepStrictEqual(ends[0]?.facts, [{ ...own, source: "local" }])
      assert.deepStrictEqual(ends[0]?.final, how)
    }).pipe(Effect.provide(observing()))
  )

  it.effect("hears of a graph that no provider runs, as the executor's own run without usage", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      yield* drained(run(saying(text), "nowhere:echo"))
      const fact = { source: "executor", executorType: "executor", inputTokens: 0, outputTokens: 0 }
      assert.deepStrictEqual(ends[0]?.facts, [{ ...own, graphId: "nowhere:echo", ...fact }])
      assert.strictEqual(ends[0]?.final.reason, "GraphNamespaceUnknown")
    }).pipe(Effect.provide(observing()))
  )

  it.effect("hears the usage that a provider reports after its reader left, and the run is cancelled", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const queue = yield* Queue.unbounded<AiEvent>()
      yield* Queue.offer(queue, text)
      const cancelled = yield* Deferred.make<void>()
      const cancel = Effect.andThen(
        Queue.offerAll(queue, [
          usage(),
          { type: "error", error: "aborted", message: "cancelled" },
          { type: "done" }
        ]),
        Deferred.succeed(cancelled, undefined)
      )
      const aborted = { ...final, ok: false, error: "aborted" } as const
      yield* Effect.scoped(
        Effect.gen(function* () {
          const live = yield* run(
            local(() =>
              runOf(Stream.fromQueue(queue), {
                cancel: Effect.asVoid(cancel),
                final: Effect.as(Deferred.await(cancelled), aborted)
              })
            )
          )
          yield* Stream.runHead(live.events)
          assert.deepStrictEqual(yield* live.final, aborted)
        })
      )
      assert.deepStrictEqual(ends[0]?.facts, [{ ...claimed(), ...own }])
    }).pipe(Effect.provide(observing()))
  )

  it.effect("hears the usage of a run whose scope is closed", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const queue = yield* Queue.unbounded<AiEvent>()
      const cancel = Queue.offerAll(queue, [usage(), { type: "done" }])
      const scope = yield* Scope.make()
      const live = yield* Scope.provide(
        run(local(() => runOf(Stream.fromQueue(queue), { cancel: Effect.asVoid(cancel) }))),
        scope
      )
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(ends.length, 1)
      assert.deepStrictEqual(ends[0]?.facts, [{ ...claimed(), ...own }])
      assert.deepStrictEqual(yield* live.final, ends[0]?.final)
    }).pipe(Effect.provide(observing()))
  )

  it.effect("hears unknown usage of a provider that neither ends nor reacts, within bounded time", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const stuck = local(() =>
        runOf(Stream.never, {
          cancel: Effect.never,
          final: Effect.never,
          closed: Effect.never
        })
      )
      const scope = yield* Scope.make()
      yield* Scope.provide(run(stuck), scope)
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("2 minutes")
      yield* Fiber.join(closing)
      assert.deepStrictEqual(ends[0]?.facts, [{ ...own, source: "local" }])
      assert.containSubset(ends[0]?.final, { ok: false, error: "aborted", reason: "Aborted" })
    }).pipe(Effect.provide(observing()))
  )

  it.effect("limits the facts of a run, and reports the rest as unknown", () =>
    Effect.gen(function* () {
      const { ends } = yield* Heard
      const many = Array.from({ length: 10_050 }, (_, at) => usage({ usageUnitId: `unit-${at}` }))
      yield* drained(run(saying(...many, { type: "done" })))
      assert.strictEqual(ends[0]?.facts.length, 10_001)
      assert.deepStrictEqual(ends[0]?.facts.at(-1), { ...own, source: "local", usageUnitId: "rest" })
    }).pipe(Effect.provide(observing()))
  )

  it.effect.prop(
    "hears each run once, with at least one fact of that run, whatever its provider emits",
    [Schema.Array(AiEvent)],
    ([events]) =>
      Effect.gen(function* () {
        const { ends, layer } = hidden()
        yield* Effect.provide(drained(run(saying(...events))), layer)
        assert.strictEqual(ends.length, 1)
        assert.isAtLeast(ends[0]?.facts.length ?? 0, 1)
        for (const fact of ends[0]?.facts ?? []) assert.deepInclude(fact, own)
      }),
    { arbitrary: { runs: 300, seed: "observed-1" } }
  )
})
