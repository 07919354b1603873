/** The port for callers that do not use Effect: a promise that always settles, an iteration that can be left. */
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as GraphRunner from "@cogni/sandbox-graph-provider/graphs/GraphRunner"
import { SandboxGraphProvider } from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, ManagedRuntime, Option, Scope } from "effect"
import { getEventListeners } from "node:events"
import { context, envelope, request, world } from "./GraphWorld.ts"

const executor = AggregatingGraphExecutor.layer([SandboxGraphProvider])
const answering = Layer.provideMerge(
  executor,
  world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })
)
const hanging = Layer.provideMerge(executor, world({ program: () => Effect.never }))

const collect = async (stream: AsyncIterable<AiEvent>) => {
  const events: Array<AiEvent> = []
  for await (const event of stream) events.push(event)
  return events
}

describe("GraphRunner", () => {
  it("lives with its runtime, in a program without Effect", async () => {
    const runtime = ManagedRuntime.make(GraphRunner.layer.pipe(Layer.provide(answering)))
    const ending = ManagedRuntime.make(GraphRunner.layer.pipe(Layer.provide(hanging)))
    const { runGraph } = await runtime.runPromise(GraphRunner.GraphRunner)
    assert.containSubset(await runGraph(request(), context).final, { ok: true, content: "Lima" })
    const { final } = (await ending.runPromise(GraphRunner.GraphRunner)).runGraph(request(), context)
    await ending.dispose()
    assert.containSubset(await final, { ok: false, error: "aborted" })
    await runtime.dispose()
  })

  it.live("returns at once, and reports the same end in its events and its final", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context)
      const events = yield* Effect.promise(() => collect(stream))
      assert.strictEqual(events.at(-1)?.type, "done")
      assert.containSubset(yield* Effect.promise(() => final), { ok: true, content: "Lima" })
    }).pipe(Effect.scoped, Effect.provide(answering))
  )

  it.live("settles final without a reader, and keeps the events", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context)
      assert.isTrue((yield* Effect.promise(() => final)).ok)
      assert.strictEqual((yield* Effect.promise(() => collect(stream))).at(-1)?.type, "done")
    }).pipe(Effect.scoped, Effect.provide(answering))
  )

  it.live("ends the run when an iteration is left, or its body throws", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context)
      yield* Effect.promise(async () => {
        try {
          for await (const _ of stream) throw new Error("reader")
        } catch {
          return
        }
      })
      assert.containSubset(yield* Effect.promise(() => final), { ok: false, error: "aborted" })
      const record = yield* (yield* RunStore).get(context.runId)
      assert.strictEqual(record?.outcome.status, "interrupted")
    }).pipe(Effect.scoped, Effect.provide(hanging))
  )

  it.live("ends the run on an abort signal, and reports it in the events", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const controller = new AbortController()
      const { final, stream } = runGraph(request(), context, { abortSignal: controller.signal })
      controller.abort()
      const events = yield* Effect.promise(() => collect(stream))
      assert.containSubset(events.at(-2), { type: "error", error: "aborted" })
      assert.containSubset(yield* Effect.promise(() => final), { ok: false, error: "aborted" })
    }).pipe(Effect.scoped, Effect.provide(hanging))
  )

  it.live("ends a run whose signal was aborted before it began", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context, { abortSignal: AbortSignal.abort() })
      assert.containSubset(yield* Effect.promise(() => final), { ok: false, error: "aborted" })
      assert.strictEqual((yield* Effect.promise(() => collect(stream))).at(-1)?.type, "done")
    }).pipe(Effect.scoped, Effect.provide(hanging))
  )

  it.live("removes its listener from a signal that outlives the run", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { signal } = new AbortController()
      const { final } = runGraph(request(), context, { abortSignal: signal })
      yield* Effect.promise(() => final)
      for (let turn = 0; turn < 100 && getEventListeners(signal, "abort").length > 0; turn++)
        yield* Effect.yieldNow
      assert.deepStrictEqual(getEventListeners(signal, "abort"), [])
    }).pipe(Effect.scoped, Effect.provide(answering))
  )

  it.live("reports a provider that fails at once as an internal error, not as an abort", () =>
    Effect.gen(function* () {
      const broken = yield* AggregatingGraphExecutor.make([
        {
          providerId: "broken",
          canHandle: () => true,
          check: () => Effect.void,
          run: () => Effect.die(new Error("broken"))
        }
      ]).pipe(Effect.provide(GraphObserver.layerNone))
      const { runGraph } = yield* Effect.provideService(
        GraphRunner.make,
        AggregatingGraphExecutor.GraphExecutor,
        broken
      )
      const { final } = runGraph(request(), context)
      assert.containSubset(yield* Effect.promise(() => final), { ok: false, error: "internal" })
    }).pipe(Effect.scoped)
  )

  it.live("ends the run when an iteration is left before its first event", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context)
      yield* Effect.promise(async () => stream[Symbol.asyncIterator]().return?.())
      const ended = yield* Effect.timeoutOption(
        Effect.promise(() => final),
        "500 millis"
      )
      assert.isTrue(Option.isSome(ended))
    }).pipe(Effect.scoped, Effect.provide(hanging))
  )

  it.live("settles active and later runs when the executor is closed", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { runGraph } = yield* Scope.provide(GraphRunner.make, scope)
      const before = runGraph(request(), context)
      yield* Scope.close(scope, Exit.void)
      assert.containSubset(yield* Effect.promise(() => before.final), { ok: false, error: "aborted" })
      const after = runGraph(request(), context)
      assert.containSubset(yield* Effect.promise(() => after.final), { ok: false, error: "aborted" })
      assert.strictEqual((yield* Effect.promise(() => collect(after.stream))).at(-1)?.type, "done")
    }).pipe(Effect.provide(hanging))
  )
})
