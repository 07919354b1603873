/** A collector of OpenTelemetry that keeps the spans, log records and metrics that it receives as OTLP/HTTP in JSON. */
import { Effect, type Scope } from "effect"
import { text } from "node:stream/consumers"
import { respond, serve } from "./LocalServer.ts"

export type Attributes = Readonly<Record<string, string | number | boolean>>

export interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly attributes: Attributes
}

export interface LogRecord {
  readonly traceId: string | undefined
  readonly spanId: string | undefined
  readonly body: string
  readonly attributes: Attributes
}

export interface OtlpCollector {
  readonly url: string
  readonly spans: Effect.Effect<ReadonlyArray<Span>>
  readonly logs: Effect.Effect<ReadonlyArray<LogRecord>>
  /** Names of the metrics. */
  readonly metrics: Effect.Effect<ReadonlySet<string>>
  /** All bodies, to search for what must not be in them. */
  readonly everything: Effect.Effect<string>
}

interface Value {
  readonly stringValue?: string
  readonly intValue?: string | number
  readonly doubleValue?: number
  readonly boolValue?: boolean
}

interface Fields {
  readonly attributes: ReadonlyArray<{ readonly key: string; readonly value: Value }>
}

interface Sent {
  readonly resourceSpans?: ReadonlyArray<{
    readonly scopeSpans: ReadonlyArray<{ readonly spans: ReadonlyArray<Omit<Span, "attributes"> & Fields> }>
  }>
  readonly resourceLogs?: ReadonlyArray<{
    readonly scopeLogs: ReadonlyArray<{
      readonly logRecords: ReadonlyArray<
        Omit<LogRecord, "attributes" | "body"> & Fields & { readonly body: Value }
      >
    }>
  }>
  readonly resourceMetrics?: ReadonlyArray<{
    readonly scopeMetrics: ReadonlyArray<{ readonly metrics: ReadonlyArray<{ readonly name: string }> }>
  }>
}

const valueOf = ({ boolValue, doubleValue, intValue, stringValue }: Value): string | number | boolean =>
  stringValue ?? doubleValue ?? boolValue ?? Number(intValue)

const attributesOf = ({ attributes }: Fields): Attributes =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, valueOf(value)]))

export const acquire: Effect.Effect<OtlpCollector, never, Scope.Scope> = Effect.gen(function* () {
  const bodies: Array<string> = []
  const url = yield* serve((request, response) => {
    void text(request).then((body) => {
      bodies.push(body)
      return respond(response, 200, {})
    })
  })
  const sent = Effect.sync(() => bodies.map((body): Sent => JSON.parse(body)))
  return {
    url,
    everything: Effect.sync(() => bodies.join("\n")),
    spans: Effect.map(sent, (all) =>
      all
        .flatMap(({ resourceSpans = [] }) => resourceSpans)
        .flatMap(({ scopeSpans }) => scopeSpans)
        .flatMap(({ spans }) => spans)
        .map((span) => ({ ...span, attributes: attributesOf(span) }))
    ),
    logs: Effect.map(sent, (all) =>
      all
        .flatMap(({ resourceLogs = [] }) => resourceLogs)
        .flatMap(({ scopeLogs }) => scopeLogs)
        .flatMap(({ logRecords }) => logRecords)
        .map((record) => ({
          ...record,
          body: String(valueOf(record.body)),
          attributes: attributesOf(record)
        }))
    ),
    metrics: Effect.map(
      sent,
      (all) =>
        new Set(
          all
            .flatMap(({ resourceMetrics = [] }) => resourceMetrics)
            .flatMap(({ scopeMetrics }) => scopeMetrics)
            .flatMap(({ metrics }) => metrics)
            .map(({ name }) => name)
        )
    )
  }
})
