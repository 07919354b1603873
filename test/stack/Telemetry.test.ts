/** A graph run in OpenTelemetry's exporters: one trace with every phase and every model call, and no secret. */
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as NodeSdk from "@effect/opentelemetry/NodeSdk"
import { assert, layer } from "@effect/vitest"
import { InMemoryLogRecordExporter, SimpleLogRecordProcessor } from "@opentelemetry/sdk-logs"
import { InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base"
import { Effect, Layer, Redacted } from "effect"
import * as CliProcess from "../harness/CliProcess.ts"
import * as GraphHarness from "../harness/GraphHarness.ts"
import * as Images from "../harness/Images.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as OtlpCollector from "../harness/OtlpCollector.ts"

const key = "sk-planted-telemetry-5e01"
const said = "a word that only the prompt has: vermilion"

layer(Layer.empty, { excludeTestServices: true })("telemetry", (it) => {
  it.effect("a graph run is one trace, and its log lines have that trace ID", () =>
    Effect.gen(function* () {
      const spans = new InMemorySpanExporter()
      const logs = new InMemoryLogRecordExporter()
      const { received, url } = yield* ModelApi.acquire
      const runId = yield* RunId.generate
      const sdk = NodeSdk.layer(() => ({
        resource: { serviceName: "test" },
        spanProcessor: new SimpleSpanProcessor(spans),
        loggerMergeWithExisting: false,
        logRecordProcessor: new SimpleLogRecordProcessor({ exporter: logs })
      }))
      const proxy = GatewayLlmProxy.layer({ url, key: Redacted.make(key), image: Images.gateway }).pipe(
        Layer.provide(UsageObserver.layerNone)
      )

      const { finishedLogs, finishedSpans } = yield* GraphHarness.told(
        GraphHarness.request({ graphId: "sandbox:agent", messages: [{ role: "user", content: said }] }),
        runId
      ).pipe(
        Effect.map(({ final }) => {
          assert.isTrue(final.ok, final.message)
          return { finishedSpans: spans.getFinishedSpans(), finishedLogs: logs.getFinishedLogRecords() }
        }),
        Effect.provide(
          // A failing observer causes a log line.
          GraphHarness.layer(proxy, { observe: () => Effect.die("the counter is broken") }).pipe(
            Layer.provideMerge(sdk)
          )
        )
      )
      assert.strictEqual((yield* received).length, 1)

      const named = (name: string) => finishedSpans.find((span) => span.name === name) ?? assert.fail(name)
      const graph = named("invoke_agent agent")
      assert.strictEqual(graph.attributes["sandbox.run.id"], runId)
      assert.strictEqual(graph.attributes["gen_ai.agent.id"], "agent")
      const { traceId } = graph.spanContext()
      const run = named("SandboxRunner.run")
      assert.strictEqual(run.spanContext().traceId, traceId)
      assert.strictEqual(run.attributes["process.exit.code"], 0)
      for (const phase of [
        "workspace",
        "socket",
        "create",
        "start",
        "proxy",
        "entrypoint",
        "agent",
        "collect"
      ]) {
        assert.strictEqual(named(`SandboxRunner.${phase}`).spanContext().traceId, traceId, phase)
      }

      const call = named("chat scripted")
      assert.strictEqual(call.parentSpanContext?.spanId, run.spanContext().spanId)
      assert.containSubset(call.attributes, {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 5,
        "http.response.status_code": 200
      })
      const agent = named("SandboxRunner.agent")
      const millis = ([seconds, nanos]: readonly [number, number]) => seconds * 1000 + nanos / 1e6
      assert.isAtLeast(millis(call.startTime) + 1, millis(agent.startTime))
      assert.isAtMost(millis(call.endTime) - 1, millis(agent.endTime))

      const [line] = finishedLogs
      assert.include(String(JSON.stringify(line?.body)), "an observer of runs failed")
      assert.containSubset(line?.attributes, {
        "sandbox.run.id": runId,
        "gen_ai.agent.id": "agent",
        trace_id: traceId
      })

      const everything = JSON.stringify([
        finishedSpans.map(({ attributes, events, name, status }) => ({ attributes, events, name, status })),
        finishedLogs.map(({ attributes, body }) => ({ attributes, body }))
      ])
      for (const secret of [key, "vermilion", "sunny"]) assert.notInclude(everything, secret)
    })
  )
})

layer(CliProcess.layer, { excludeTestServices: true })("telemetry of the command", (it) => {
  it.effect("sends an invocation as one trace to the OTLP endpoint, without prompts or answers", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const collector = yield* OtlpCollector.acquire
      const ended = yield* cli.run(["run", "--demo", said], {
        env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url }
      })
      assert.strictEqual(ended.code, 0, ended.stderr)
      const spans = yield* collector.spans
      const names = spans.map(({ name }) => name)
      for (const name of ["cogni-sandbox", "SandboxRunner.run", "SandboxRunner.agent"])
        assert.include(names, name)
      assert.isTrue(names.some((name) => name.startsWith("chat ")))
      assert.strictEqual(new Set(spans.map(({ traceId }) => traceId)).size, 1)
      const told = yield* collector.everything
      assert.include(told, "cogni-sandbox")
      assert.notInclude(told, "vermilion")
    })
  )
})
