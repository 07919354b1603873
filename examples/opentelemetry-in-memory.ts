import { SandboxRunner, Telemetry } from "@cogni/sandbox-core"
import * as OtelLogger from "@effect/opentelemetry/OtelLogger"
import * as OtelTracer from "@effect/opentelemetry/OtelTracer"
import { trace } from "@opentelemetry/api"
import { InMemoryLogRecordExporter, LoggerProvider, SimpleLogRecordProcessor } from "@opentelemetry/sdk-logs"
import { InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base"
import { NodeTracerProvider } from "@opentelemetry/sdk-trace-node"
import { Effect, Layer } from "effect"

// The SDK of a program that exports spans and logs already.
const spans = new InMemorySpanExporter()
new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }).register()
const logs = new InMemoryLogRecordExporter()
const loggers = new LoggerProvider({ processors: [new SimpleLogRecordProcessor({ exporter: logs })] })

// Sends the spans and log lines of runs through that SDK.
const telemetry = Layer.mergeAll(
  OtelTracer.layerGlobal,
  OtelLogger.layer({ mergeWithExisting: false }).pipe(
    Layer.provide(Layer.succeed(OtelLogger.OtelLoggerProvider, loggers))
  ),
  Layer.succeed(Telemetry.RunLogLevel, "Info")
)

const memory = SandboxRunner.layerMemory({ program: ({ stdout }) => Effect.as(stdout("hello"), 0) })
const run = SandboxRunner.SandboxRunner.use((runner) => runner.run({ image: "any", argv: ["greet"] }))

// A span of the program, which the run continues.
await trace.getTracer("my-service").startActiveSpan("handle request", async (span) => {
  await Effect.runPromise(
    run.pipe(
      OtelTracer.withSpanContext(span.spanContext()),
      Effect.provide(Layer.provideMerge(memory, telemetry))
    )
  )
  span.end()
})

const all = spans.getFinishedSpans()
for (const { name, parentSpanContext } of all) {
  const parent = all.find((one) => one.spanContext().spanId === parentSpanContext?.spanId)
  console.log(`${name} in ${parent?.name ?? "nothing"}`)
}
const [root] = all.slice(-1)
for (const { body, spanContext } of logs.getFinishedLogRecords())
  console.log(
    `${String(body).replace(/run-\S+/u, "RUN")}, in the same trace: ${spanContext?.traceId === root?.spanContext().traceId}`
  )
