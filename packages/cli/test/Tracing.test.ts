import { assert, describe, it, layer } from "@effect/vitest"
import { Effect, Layer, Logger, Metric } from "effect"
import * as OtlpCollector from "../../../test/harness/OtlpCollector.ts"
import { layer as layerOf, layerStaying, serviceName, serviceNameOf } from "../src/Tracing.ts"

describe("Tracing", () => {
  it.each([
    [{}, serviceName],
    [{ OTEL_SERVICE_NAME: "" }, serviceName],
    [{ OTEL_SERVICE_NAME: "mine" }, "mine"]
  ])("names the service for %o", (environment, expected) => {
    assert.strictEqual(serviceNameOf(environment), expected)
  })
})

const work = Effect.logInfo("run run-1 started").pipe(
  Effect.annotateLogs({ "sandbox.run.id": "run-1", "sandbox.run.attempt": 0 }),
  Effect.andThen(Metric.update(Metric.counter("sandbox_test_total"), 1)),
  Effect.withSpan("SandboxRunner.run")
)

/** Does the work with an exporter that is closed afterwards, and returns what the collector received. */
const exported = Effect.fnUntraced(function* (
  exporter: typeof layerOf,
  environment: Readonly<Record<string, string>> = {}
) {
  const collector = yield* OtlpCollector.acquire
  const variables = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, ...environment }
  yield* work.pipe(
    Effect.provide(exporter(variables, "1.2.3").pipe(Layer.provide(Logger.layer([])))),
    Effect.provideService(Metric.MetricRegistry, new Map())
  )
  return {
    spans: yield* collector.spans,
    logs: yield* collector.logs,
    metrics: [...(yield* collector.metrics)]
  }
}, Effect.scoped)

layer(Layer.empty, { excludeTestServices: true })("the exporter", (it) => {
  it.effect("sends spans, log lines of their trace, and metrics for a command that stays", () =>
    Effect.gen(function* () {
      const { logs, metrics, spans } = yield* exported(layerStaying)
      assert.deepStrictEqual(metrics, ["sandbox_test_total"])
      const [span] = spans
      assert.strictEqual(span?.name, "SandboxRunner.run")
      assert.lengthOf(logs, 1)
      assert.containSubset(logs[0], {
        body: "run run-1 started",
        traceId: span!.traceId,
        spanId: span!.spanId,
        attributes: { "sandbox.run.id": "run-1", "sandbox.run.attempt": 0 }
      })
    })
  )

  it.effect("sends only spans for another command", () =>
    Effect.gen(function* () {
      const { logs, metrics, spans } = yield* exported(layerOf)
      assert.deepStrictEqual([spans.length, logs.length, metrics.length], [1, 0, 0])
    })
  )

  it.effect("sends no metrics if OTEL_METRICS_EXPORTER turns them off", () =>
    Effect.gen(function* () {
      const { logs, metrics, spans } = yield* exported(layerStaying, { OTEL_METRICS_EXPORTER: "none" })
      assert.deepStrictEqual([spans.length, logs.length, metrics.length], [1, 1, 0])
    })
  )
})
