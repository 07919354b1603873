/**
 * Writes Effect's metric registry as text for Prometheus, in either of its formats. `prom-client` writes both, from one
 * list of series. A series has the same name and labels in both, and only OpenMetrics has exemplars.
 */
import * as Exemplars from "@cogni/sandbox-core/Exemplars"
import { Effect, Metric } from "effect"
import { type Metric as Registrable, Registry } from "prom-client"

export const plain = Registry.PROMETHEUS_CONTENT_TYPE
export const openMetrics = Registry.OPENMETRICS_CONTENT_TYPE

/** Content type of a format. */
export type Format = typeof plain | typeof openMetrics

type Labels = Readonly<Record<string, string>>

interface Value {
  readonly metricName?: string
  readonly labels: Labels
  readonly value: number
  readonly exemplar?: {
    readonly labelSet: Labels
    readonly value: number
    readonly timestamp: number
  }
}

/** A metric with all its series, in the form that `prom-client` writes. */
interface Family {
  readonly name: string
  readonly help: string
  readonly type: "counter" | "gauge" | "histogram" | "summary" | "unknown"
  readonly values: Array<Value>
}

/** Programs that embed the server may have metrics with names of other systems, such as `http.requests`. */
const nameOf = (text: string): string => text.replace(/[^\w:]/gu, "_").replace(/^(?=\d)/u, "_")

const labelsOf = ({ attributes = {} }: Metric.Metric.Snapshot): Labels =>
  Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [nameOf(name).replaceAll(":", "_"), value])
  )

/** OpenMetrics gives every counter the suffix `_total`. One without it keeps its name, and has no type there. */
const typeOf = ({ id, type }: Metric.Metric.Snapshot, format: Format): Family["type"] => {
  switch (type) {
    case "Counter":
    case "Frequency":
      return format === openMetrics && !id.endsWith("_total") ? "unknown" : "counter"
    case "Gauge":
      return "gauge"
    case "Histogram":
      return "histogram"
    case "Summary":
      return "summary"
  }
}

const exemplarOf = (exemplar: Exemplars.Exemplar | undefined): Pick<Value, "exemplar"> =>
  exemplar === undefined
    ? {}
    : {
        exemplar: {
          labelSet: { trace_id: exemplar.traceId, span_id: exemplar.spanId },
          value: exemplar.value,
          timestamp: exemplar.atMillis / 1000
        }
      }

/** Samples of a histogram or a summary that all their series have. */
const totals = (
  name: string,
  labels: Labels,
  { count, sum }: { readonly count: number; readonly sum: number }
) => [
  { metricName: `${name}_sum`, labels, value: sum },
  { metricName: `${name}_count`, labels, value: count }
]

const valuesOf = (
  series: Metric.Metric.Snapshot,
  exemplars: Exemplars.SeriesExemplars
): ReadonlyArray<Value> => {
  const labels = labelsOf(series)
  switch (series.type) {
    case "Counter":
      return [{ labels, value: Number(series.state.count), ...exemplarOf(exemplars[0]) }]
    case "Gauge":
      return [{ labels, value: Number(series.state.value) }]
    case "Frequency":
      return [...series.state.occurrences].map(([key, value]) => ({ labels: { ...labels, key }, value }))
    case "Histogram": {
      const name = nameOf(series.id)
      const finite = series.state.buckets
        .filter(([boundary]) => Number.isFinite(boundary))
        .map(([boundary, count]) => [String(boundary), count] as const)
      return [
        ...[...finite, ["+Inf", series.state.count] as const].map(([le, value], index) => ({
          metricName: `${name}_bucket`,
          labels: { ...labels, le },
          value,
          ...exemplarOf(exemplars[index])
        })),
        ...totals(name, labels, series.state)
      ]
    }
    case "Summary":
      return [
        ...series.state.quantiles.flatMap(([quantile, value]) =>
          value === undefined ? [] : [{ labels: { ...labels, quantile: String(quantile) }, value }]
        ),
        ...totals(nameOf(series.id), labels, series.state)
      ]
  }
}

/** Returns the metrics of the current registry. Series of one name belong together. */
const families = (format: Format): Effect.Effect<ReadonlyArray<Family>> =>
  Effect.gen(function* () {
    const exemplarsOf = yield* Exemplars.reader
    const byName = new Map<string, Family>()
    for (const series of yield* Metric.snapshot) {
      const name = nameOf(series.id)
      let family = byName.get(name)
      if (family === undefined) {
        family = { name, help: series.description ?? name, type: typeOf(series, format), values: [] }
        byName.set(name, family)
      }
      family.values.push(...valuesOf(series, exemplarsOf(series)))
    }
    return [...byName.values()]
  })

/** Writes the current registry. */
export const make = (format: Format): Effect.Effect<string> =>
  Effect.flatMap(families(format), (all) => {
    const registry = new Registry<Format>()
    registry.setContentType(format)
    for (const family of all) {
      // The form in which `prom-client` registers metrics of other processes. Its types know only its own classes.
      const registrable: object = Object.assign(family, { get: () => family })
      registry.registerMetric(registrable as Registrable)
    }
    // Without any metric, the text would begin with an empty line, which is not valid.
    return Effect.map(
      Effect.promise(() => registry.metrics()),
      (text) => text.trimStart()
    )
  })
