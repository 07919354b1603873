/** Several providers behind one executor, which enforces the grammar of events. */
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import type { GraphProvider } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import * as EventGrammar from "../src/events/EventGrammar.ts"
import { SandboxGraphProvider } from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema, Stream } from "effect"
import { context, envelope, request, world } from "./GraphWorld.ts"

const final = { ok: true, runId: context.runId, requestId: "req-1" } as const

/** A provider that emits these events, and then continues with `end`. */
const saying = (
  providerId: string,
  events: ReadonlyArray<AiEvent>,
  end: Stream.Stream<AiEvent> = Stream.empty
): GraphProvider => ({
  providerId,
  canHandle: (graphId) => graphId.startsWith(`${providerId}:`),
  check: () => Effect.void,
  run: () =>
    Effect.succeed({
      runId: context.runId,
      events: Stream.concat(Stream.fromIterable(events), end),
      final: Effect.succeed(final),
      closed: Effect.void,
      cancel: Effect.void
    })
})

const make = (providers: ReadonlyArray<GraphProvider>) =>
  Effect.provide(AggregatingGraphExecutor.make(providers), GraphObserver.layerNone)

const collect = (providers: ReadonlyArray<GraphProvider>, graphId: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const executor = yield* make(providers)
      const run = yield* executor.run(request({ graphId }), context)
      return { events: [...(yield* Stream.runCollect(run.events))], final: yield* run.final }
    })
  )

const isWhole = (events: ReadonlyArray<AiEvent>) => {
  const end = events.reduce<Result.Result<EventGrammar.Grammar, string>>(
    (state, event) => Result.flatMap(state, (before) => EventGrammar.next(before, event)),
    Result.succeed(EventGrammar.initial)
  )
  return Result.isSuccess(end) && end.success.phase === "done"
}

const text: AiEvent = { type: "text_delta", delta: "hello" }

describe("AggregatingGraphExecutor", () => {
  it.effect("sends a graph to the first provider of its namespace", () =>
    Effect.gen(function* () {
      const providers = [saying("a", []), saying("b", [text]), saying("b", [])]
      assert.deepStrictEqual((yield* collect(providers, "b:x")).events[0], text)
      const executor = yield* make(providers)
      assert.isTrue(executor.canHandle(GraphId.make("b:x")))
      assert.isFalse(executor.canHandle(GraphId.make("c:x")))
    })
  )

  it.effect("distinguishes an unknown namespace from an unknown agent", () =>
    Effect.gen(function* () {
      const sandbox = yield* SandboxGraphProvider
      const unknown = yield* collect([sandbox], "nowhere:agent")
      assert.containSubset(unknown.final, { ok: false, error: "not_found", reason: "GraphNamespaceUnknown" })
      assert.include(unknown.final.message ?? "", "Known namespaces: sandbox:")
      const nobody = yield* collect([sandbox], "sandbox:nobody")
      assert.containSubset(nobody.final, { ok: false, error: "not_found", reason: "AgentNotFound" })
      for (const { events } of [unknown, nobody]) assert.isTrue(isWhole(events))
      const executor = yield* make([sandbox])
      const refused = yield* Effect.flip(executor.check(request({ graphId: "nowhere:agent" }), context))
      assert.strictEqual(refused.reason, "GraphNamespaceUnknown")
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })))
  )

  it.effect.each<[string, Stream.Stream<AiEvent>]>([
    ["ends early", Stream.empty],
    ["has a defect", Stream.die(new Error("broken"))]
  ])("completes the stream of a provider that %s with an error", ([, end]) =>
    Effect.gen(function* () {
      const { events, final: how } = yield* collect([saying("a", [text], end)], "a:x")
      assert.containSubset(how, { ok: false, error: "internal", reason: "ProviderBroke" })
      assert.deepStrictEqual(
        events.map(({ type }) => type),
        ["text_delta", "usage_report", "error", "done"]
      )
      assert.containSubset(events[2], { error: "internal", reason: "ProviderBroke" })
    })
  )

  it.effect("ends a stream at done, whether its provider ends it or not", () =>
    Effect.gen(function* () {
      const [reported] = yield* Effect.map(collect([saying("a", [])], "a:x"), ({ events }) => events)
      if (reported === undefined) return assert.fail("nothing was reported")
      const reading = yield* Effect.forkChild(
        collect([saying("a", [text, reported, { type: "done" }], Stream.never)], "a:x")
      )
      for (let turn = 0; turn < 100; turn++) yield* Effect.yieldNow
      assert.isDefined(reading.pollUnsafe())
    })
  )

  it.effect("reports unknown usage for a provider that failed", () =>
    Effect.gen(function* () {
      const { events } = yield* collect([saying("a", [text], Stream.die(new Error("broken")))], "a:x")
      const report = events.find((event) => event.type === "usage_report")
      assert.notProperty(report?.fact, "inputTokens")
    })
  )

  it.effect.prop(
    "makes every stream complete, whatever a provider emits",
    [Schema.Array(AiEvent)],
    ([events]) =>
      Effect.map(collect([saying("a", events)], "a:x"), (seen) => assert.isTrue(isWhole(seen.events))),
    { arbitrary: { runs: 300, seed: "providers-1" } }
  )
})
