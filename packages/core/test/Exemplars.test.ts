/** Exemplars: which trace each bucket leads to, and when it leads to none. */
import { LlmProxy } from "@cogni/sandbox-core"
import * as Exemplars from "@cogni/sandbox-core/Exemplars"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Metric, Tracer } from "effect"
import { TestClock } from "effect/testing"
import * as RecordingTracer from "../../../test/harness/RecordingTracer.ts"
import { llm, run, runner, spec } from "./Specs.ts"

const histogram = Exemplars.traced(Metric.histogram("sandbox_test_seconds", { boundaries: [5, 1] }))
const counter = Exemplars.traced(Metric.counter("sandbox_test_total", { incremental: true }))

/** Gives each test its own registry. */
const isolated = <A, E, R>(test: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => Effect.provideService(test, Metric.MetricRegistry, new Map()))

/** Exemplars of every series, by name and labels. */
const all = Effect.gen(function* () {
  const exemplarsOf = yield* Exemplars.reader
  return Object.fromEntries(
    (yield* Metric.snapshot).map((series) => [
      [series.id, ...Object.values(series.attributes ?? {})].join(" "),
      exemplarsOf(series)
    ])
  )
})

/** Exemplars of the histogram without labels, as their values. */
const values = Effect.map(all, (found) =>
  [...(found["sandbox_test_seconds"] ?? [])].map((exemplar) => exemplar?.value)
)

const observe = (value: number, options?: Tracer.SpanOptions) =>
  Metric.update(histogram, value).pipe(Effect.withSpan("observed", options))

describe("Exemplars", () => {
  it.effect("keeps the newest observation of each bucket, with the current span", () =>
    Effect.gen(function* () {
      const { spans, tracer } = RecordingTracer.make()
      yield* TestClock.setTime(1_000)
      yield* Effect.forEach([0.25, 1, 7, 5.5, 9], (value) => observe(value)).pipe(Effect.withTracer(tracer))
      const { sandbox_test_seconds: found = [] } = yield* all
      assert.deepStrictEqual(
        [...found],
        [
          { traceId: spans[1]!.traceId, spanId: spans[1]!.spanId, value: 1, atMillis: 1_000 },
          // The boundaries are sorted, and nothing was between 1 and 5.
          undefined,
          { traceId: spans[4]!.traceId, spanId: spans[4]!.spanId, value: 9, atMillis: 1_000 }
        ]
      )
      assert.strictEqual((yield* Metric.value(histogram)).count, 5)
    }).pipe(isolated)
  )

  it.effect("keeps one exemplar for each bucket of a series, however many observations there are", () =>
    Effect.gen(function* () {
      const { tracer } = RecordingTracer.make()
      yield* Effect.forEach(
        Array.from({ length: 10_000 }, (_, index) => index / 1000),
        (value) =>
          Effect.andThen(
            Metric.update(Metric.withAttributes(histogram, { agent: value < 5 ? "a" : "b" }), value),
            Metric.update(counter, 1)
          ),
        { discard: true }
      ).pipe(Effect.withSpan("observed"), Effect.withTracer(tracer))
      const found = yield* all
      assert.deepStrictEqual(
        Object.entries(found).map(([name, exemplars]) => [name, exemplars.length]),
        [
          ["sandbox_test_seconds a", 2],
          ["sandbox_test_total", 1],
          ["sandbox_test_seconds b", 3]
        ]
      )
    }).pipe(isolated)
  )

  it.effect("keeps none without a span, without a collector, and for a trace that is not sampled", () =>
    Effect.gen(function* () {
      const { tracer } = RecordingTracer.make()
      yield* Metric.update(histogram, 1).pipe(Effect.withTracer(tracer))
      yield* observe(1)
      yield* observe(1, { sampled: false }).pipe(Effect.withTracer(tracer))
      yield* observe(Number.NaN).pipe(Effect.withTracer(tracer))
      assert.deepStrictEqual(yield* values, [])
      assert.strictEqual((yield* Metric.value(histogram)).count, 4)
    }).pipe(isolated)
  )

  it.effect("keeps no text of a tracer whose IDs are not those of W3C Trace Context", () =>
    Effect.gen(function* () {
      for (const [traceId, spanId] of [
        ['planted"} 1', "0".repeat(16)],
        ["0".repeat(31), "0".repeat(16)],
        ["a".repeat(32), "planted"]
      ]) {
        const tracer = Tracer.make({
          span: (options) =>
            Object.defineProperties(new Tracer.NativeSpan(options), {
              traceId: { value: traceId },
              spanId: { value: spanId }
            })
        })
        yield* observe(1).pipe(Effect.withTracer(tracer))
      }
      assert.notInclude(JSON.stringify(yield* all), "planted")
      assert.deepStrictEqual(yield* values, [])
    }).pipe(isolated)
  )

  it.effect("leads from each histogram of a run to its trace, and from its calls to their spans", () =>
    Effect.gen(function* () {
      const { spans, tracer } = RecordingTracer.make()
      const identity = { billingAccountId: "planted-account", agentId: "codex", attempt: 0 }
      const access = { ...llm, identity, model: "planted-model", budget: { callsMax: 9 } }
      yield* run({ ...spec, llm: access, argv: ["planted-argument"] }).pipe(Effect.withTracer(tracer))
      const found = yield* all
      const nameOf = (series: string) => {
        const exemplar = (found[series] ?? []).find((one) => one !== undefined)
        return spans.find(({ spanId }) => spanId === exemplar?.spanId)?.name
      }
      assert.strictEqual(nameOf("sandbox_run_duration_seconds codex"), "SandboxRunner.run")
      assert.strictEqual(nameOf("sandbox_runs_total codex succeeded"), "SandboxRunner.run")
      assert.strictEqual(nameOf("sandbox_run_budget_left_ratio calls"), "SandboxRunner.run")
      assert.strictEqual(nameOf("sandbox_run_phase_duration_seconds agent"), "SandboxRunner.agent")
      assert.strictEqual(nameOf("sandbox_model_call_duration_seconds"), "chat planted-model")
      const [{ traceId } = assert.fail("no span")] = spans
      const kept = Object.values(found)
        .flat()
        .filter((one) => one !== undefined)
      assert.deepStrictEqual([...new Set(kept.map((one) => one.traceId))], [traceId])
      assert.notInclude(JSON.stringify(kept), "planted")
    }).pipe(
      Effect.provide(
        runner({
          program: ({ stdout }) => Effect.as(stdout("planted-output"), 0),
          proxy: LlmProxy.layerMemory({ calls: [{ inputTokens: 7, outputTokens: 3 }] })
        })
      ),
      isolated
    )
  )
})
