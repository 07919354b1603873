/** Many providers behind one executor, each held to the grammar whatever it does. */
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import type { GraphProvider } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import * as EventGrammar from "../src/events/EventGrammar.ts"
import { SandboxGraphProvider } from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema, Stream } from "effect"
import { context, envelope, request, world } from "./GraphWorld.ts"

const final = { ok: true, runId: context.runId, requestId: "req-1" } as const

/** Says these events, and then does something. */
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

const collect = (providers: ReadonlyArray<GraphProvider>, graphId: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const run = yield* AggregatingGraphExecutor.make(providers).run(request({ graphId }), context)
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
  it.effect("a graph goes to the provider of its namespace; the first one, of two", () =>
    Effect.gen(function* () {
      const providers = [saying("a", []), saying("b", [text]), saying("b", [])]
      assert.deepStrictEqual((yield* collect(providers, "b:x")).events[0], text)
      const executor = AggregatingGraphExecutor.make(providers)
      assert.isTrue(executor.canHandle(GraphId.make("b:x")))
      assert.isFalse(executor.canHandle(GraphId.make("c:x")))
    })
  )

  it.effect("an unknown namespace and an unknown agent are told apart", () =>
    Effect.gen(function* () {
      const sandbox = yield* SandboxGraphProvider
      const unknown = yield* collect([sandbox], "nowhere:agent")
      assert.containSubset(unknown.final, { ok: false, error: "not_found", reason: "GraphNamespaceUnknown" })
      assert.include(unknown.final.message ?? "", "There are graphs of sandbox:")
      const nobody = yield* collect([sandbox], "sandbox:nobody")
      assert.containSubset(nobody.final, { ok: false, error: "not_found", reason: "AgentNotFound" })
      for (const { events } of [unknown, nobody]) assert.isTrue(isWhole(events))
      const executor = AggregatingGraphExecutor.make([sandbox])
      const refused = yield* Effect.flip(executor.check(request({ graphId: "nowhere:agent" }), context))
      assert.strictEqual(refused.reason, "GraphNamespaceUnknown")
    }).pipe(Effect.provide(world({ program: (io) => Effect.as(io.stdout(envelope("Lima")), 0) })))
  )

  it.effect.each<[string, Stream.Stream<AiEvent>]>([
    ["ends without a word", Stream.empty],
    ["has a defect", Stream.die(new Error("broken"))]
  ])("a provider that %s is brought to an end that says so", ([, end]) =>
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

  it.effect("a stream is over when it is done, whether its provider ends it or not", () =>
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

  it.effect("of what a provider has used that broke, nothing is known", () =>
    Effect.gen(function* () {
      const { events } = yield* collect([saying("a", [text], Stream.die(new Error("broken")))], "a:x")
      const report = events.find((event) => event.type === "usage_report")
      assert.notProperty(report?.fact, "inputTokens")
    })
  )

  it.effect.prop(
    "whatever a provider says, its reader sees a whole stream",
    [Schema.Array(AiEvent)],
    ([events]) =>
      Effect.map(collect([saying("a", events)], "a:x"), (seen) => assert.isTrue(isWhole(seen.events))),
    { arbitrary: { runs: 300, seed: "providers-1" } }
  )
})
