/** The port for callers that do not speak Effect: a promise that always settles, an iteration that may be left. */
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as GraphRunner from "@cogni/sandbox-graph-provider/graphs/GraphRunner"
import { SandboxGraphProvider } from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Option, Scope } from "effect"
import { getEventListeners } from "node:events"
import { context, envelope, request, world } from "./GraphWorld.ts"

const executor = Layer.effect(
  AggregatingGraphExecutor.GraphExecutor,
  Effect.map(SandboxGraphProvider, (sandbox) => AggregatingGraphExecutor.make([sandbox]))
)
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
  it.live("answers at once; its events and its final say the same", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context)
      const events = yield* Effect.promise(() => collect(stream))
      assert.strictEqual(events.at(-1)?.type, "done")
      assert.containSubset(yield* Effect.promise(() => final), { ok: true, content: "Lima" })
    }).pipe(Effect.scoped, Effect.provide(answering))
  )

  it.live("final settles when nobody reads, and the events still wait to be read", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context)
      assert.isTrue((yield* Effect.promise(() => final)).ok)
      assert.strictEqual((yield* Effect.promise(() => collect(stream))).at(-1)?.type, "done")
    }).pipe(Effect.scoped, Effect.provide(answering))
  )

  it.live("an iteration that is left, or whose body throws, ends the run", () =>
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

  it.live("an abort signal ends the run, whose events say so; one that was given too late as well", () =>
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

  it.live("a signal that was aborted before the run began ends it as well", () =>
    Effect.gen(function* () {
      const { runGraph } = yield* GraphRunner.make
      const { final, stream } = runGraph(request(), context, { abortSignal: AbortSignal.abort() })
      assert.containSubset(yield* Effect.promise(() => final), { ok: false, error: "aborted" })
      assert.strictEqual((yield* Effect.promise(() => collect(stream))).at(-1)?.type, "done")
    }).pipe(Effect.scoped, Effect.provide(hanging))
  )

  it.live("a signal that outlives its run is let go of", () =>
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

  it.live("a provider that breaks at once is no abort", () =>
    Effect.gen(function* () {
      const broken = AggregatingGraphExecutor.make([
        {
          providerId: "broken",
          canHandle: () => true,
          check: () => Effect.void,
          run: () => Effect.die(new Error("broken"))
        }
      ])
      const { runGraph } = yield* Effect.provideService(
        GraphRunner.make,
        AggregatingGraphExecutor.GraphExecutor,
        broken
      )
      const { final } = runGraph(request(), context)
      assert.containSubset(yield* Effect.promise(() => final), { ok: false, error: "internal" })
    }).pipe(Effect.scoped)
  )

  it.live("an iteration that is left before its first event ends the run", () =>
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

  it.live("closing the executor settles what is under way, and what is asked of it afterwards", () =>
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
