/** The two formats of metrics: which one a scraper gets, and that both have the same series. */
import * as Exemplars from "@cogni/sandbox-core/Exemplars"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Metric, Tracer } from "effect"
import { TestClock } from "effect/testing"
import * as Await from "../../../test/harness/Await.ts"
import * as RecordingTracer from "../../../test/harness/RecordingTracer.ts"
import { formatFor } from "../src/internal/MetricsRoute.ts"
import * as MetricsText from "../src/internal/MetricsText.ts"
import { answering, asked, serve } from "./ServerWorld.ts"

/** Values of `Accept` that versions of Prometheus send. */
const prometheus = {
  "2.42":
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
  "3.5":
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
  "3.5 with escaped names":
    "application/openmetrics-text; version=1.0.0; escaping=underscores; q=0.6, text/plain; version=0.0.4; q=0.3",
  "2.42 that prefers the text format":
    "text/plain;version=0.0.4;q=0.75,application/openmetrics-text;version=1.0.0;q=0.5"
}

describe("the format of metrics", () => {
  it("is the one that the caller prefers", () => {
    for (const accept of [
      prometheus["2.42"],
      prometheus["3.5"],
      prometheus["3.5 with escaped names"],
      "application/openmetrics-text",
      "application/openmetrics-text; version=1.0.0; charset=utf-8",
      "APPLICATION/OpenMetrics-Text;Version=1.0.0",
      "text/*;q=0.1, application/*",
      "text/plain;q=0, */*"
    ])
      assert.strictEqual(formatFor(accept), MetricsText.openMetrics, accept)
  })

  it("is the text format if the caller prefers it, does not care, or accepts nothing that exists", () => {
    for (const accept of [
      undefined,
      "",
      "*/*",
      "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
      "text/plain",
      "text/plain;version=0.0.4",
      prometheus["2.42 that prefers the text format"],
      "application/openmetrics-text;version=0.0.1",
      "application/openmetrics-text;version=2.0.0, text/plain;q=0.1",
      "application/openmetrics-text;version=1.0.0;q=0",
      "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
      ";;;,,,=\u0001/",
      "a/b;c=d,".repeat(2000)
    ])
      assert.strictEqual(formatFor(accept), MetricsText.plain, accept)
  })
})

/** Samples of a text, without comments and exemplars. */
const samples = (text: string): ReadonlyArray<string> =>
  text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => line.split(" # ")[0]!)
    .toSorted()

/** Metrics of all kinds, some of them of another program in the same process. */
const counted = Effect.gen(function* () {
  const seconds = Metric.histogram("sandbox_test_seconds", { description: "A\n\\test", boundaries: [1, 2.5] })
  yield* Metric.update(Metric.withAttributes(Exemplars.traced(seconds), { agent: 'a"b\\c\nd' }), 2)
  yield* Metric.update(Exemplars.traced(Metric.counter("sandbox_test_total", { description: "Tests" })), 3)
  yield* Metric.update(Metric.gauge("sandbox_test_open"), -0.5)
  yield* Metric.update(Metric.counter("http.requests", { bigint: true }), 12n)
  yield* Metric.update(Metric.withAttributes(Metric.frequency("0words"), { "of.kind": "x" }), "y")
  const recent = Metric.summary("sandbox_test_recent", { maxAge: "1 minute", maxSize: 9, quantiles: [0.5] })
  yield* Metric.update(recent, 4)
}).pipe(Effect.withSpan("planted-span", { attributes: { planted: "planted-attribute" } }))

const isolated = <A, E, R>(test: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => Effect.provideService(test, Metric.MetricRegistry, new Map()))

describe("the text of metrics", () => {
  it.effect("has the same series in both formats", () =>
    Effect.gen(function* () {
      yield* counted
      const plain = yield* MetricsText.make(MetricsText.plain)
      const openMetrics = yield* MetricsText.make(MetricsText.openMetrics)
      assert.deepStrictEqual(samples(openMetrics), samples(plain))
      assert.deepStrictEqual(samples(plain), [
        '_0words{of_kind="x",key="y"} 1',
        "http_requests 12",
        "sandbox_test_open -0.5",
        "sandbox_test_recent_count 1",
        "sandbox_test_recent_sum 4",
        'sandbox_test_recent{quantile="0.5"} 4',
        'sandbox_test_seconds_bucket{agent="a\\"b\\\\c\\nd",le="+Inf"} 1',
        'sandbox_test_seconds_bucket{agent="a\\"b\\\\c\\nd",le="1"} 0',
        'sandbox_test_seconds_bucket{agent="a\\"b\\\\c\\nd",le="2.5"} 1',
        'sandbox_test_seconds_count{agent="a\\"b\\\\c\\nd"} 1',
        'sandbox_test_seconds_sum{agent="a\\"b\\\\c\\nd"} 2',
        "sandbox_test_total 3"
      ])
      const types = (text: string) => text.match(/(?<=^# TYPE ).*$/gmu)
      assert.deepStrictEqual(types(plain), [
        "sandbox_test_seconds histogram",
        "sandbox_test_total counter",
        "sandbox_test_open gauge",
        "http_requests counter",
        "_0words counter",
        "sandbox_test_recent summary"
      ])
      assert.deepStrictEqual(types(openMetrics), [
        "sandbox_test_seconds histogram",
        "sandbox_test counter",
        "sandbox_test_open gauge",
        // A counter without the suffix of counters would get another name.
        "http_requests unknown",
        "_0words unknown",
        "sandbox_test_recent summary"
      ])
      assert.include(plain, "# HELP sandbox_test_seconds A\\n\\\\test\n")
      assert.isTrue(openMetrics.endsWith("\n# EOF\n"))
      assert.notMatch(openMetrics, /\n\n/u)
    }).pipe(isolated)
  )

  it.effect("is valid without any metric", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* MetricsText.make(MetricsText.plain)).trim(), "")
      // A scraper refuses an empty line.
      assert.strictEqual(yield* MetricsText.make(MetricsText.openMetrics), "# EOF\n")
    }).pipe(isolated)
  )

  it.effect("has exemplars in OpenMetrics alone, with IDs and nothing else", () =>
    Effect.gen(function* () {
      const { spans, tracer } = RecordingTracer.make()
      yield* TestClock.setTime(1_769_860_800_250)
      yield* counted.pipe(Effect.withTracer(tracer))
      const [span = assert.fail("no span")] = spans
      const ids = `# {trace_id="${span.traceId}",span_id="${span.spanId}"}`
      const openMetrics = yield* MetricsText.make(MetricsText.openMetrics)
      assert.deepStrictEqual(
        openMetrics.split("\n").filter((line) => line.includes(" # {")),
        [
          `sandbox_test_seconds_bucket{agent="a\\"b\\\\c\\nd",le="2.5"} 1 ${ids} 2 1769860800.25`,
          `sandbox_test_total 3 ${ids} 3 1769860800.25`
        ]
      )
      const plain = yield* MetricsText.make(MetricsText.plain)
      assert.notInclude(plain, span.traceId)
      assert.notInclude(openMetrics + plain, "planted")
    }).pipe(isolated)
  )

  it.effect("is served in both formats, and leads to the request that caused a run", () =>
    Effect.gen(function* () {
      const { spans, tracer } = RecordingTracer.make()
      const server = yield* serve({ program: answering("planted-answer") }).pipe(
        Effect.provideService(Tracer.Tracer, tracer)
      )
      const caller = yield* server.caller()
      const { runId } = yield* caller.chat()
      const scraped = (accept: string) => asked(`${server.operatorUrl}/metrics`, { headers: { accept } })
      // The end of a request for a run is counted after its answer.
      yield* Await.until(
        "the request is counted",
        Effect.map(scraped("*/*"), ({ body }) => body.includes("\nsandbox_graph_runs_total{"))
      )
      const { body, headers } = yield* scraped(prometheus["3.5"])
      assert.strictEqual(headers.get("content-type"), MetricsText.openMetrics)
      assert.include(headers.get("vary")?.toLowerCase(), "accept")
      const request = spans.find(({ name }) => name === "POST /api/v1/ai/chat") ?? assert.fail("no span")
      for (const name of [
        "sandbox_run_duration_seconds_bucket",
        "sandbox_run_phase_duration_seconds_bucket",
        "sandbox_graph_run_duration_seconds_bucket",
        "sandbox_runs_total",
        "sandbox_graph_runs_total"
      ])
        assert.match(
          body,
          new RegExp(`^${name}\\{.* # \\{trace_id="${request.traceId}",span_id=`, "mu"),
          name
        )
      assert.notMatch(body, new RegExp(`planted|${runId}`, "u"))
      const plain = yield* scraped("text/plain")
      assert.strictEqual(plain.headers.get("content-type"), MetricsText.plain)
      assert.notInclude(plain.body, request.traceId)
    })
  )
})
