/**
 * Exemplars of metrics: for each bucket of a histogram, the trace in which its newest value was observed.
 *
 * A histogram shows that some runs are slow. An exemplar leads to one of them. It has the IDs of a trace and of a span,
 * and nothing else: no name, no account, no text. Each bucket of a series keeps one, and a counter keeps one.
 */
import { Clock, Context, Effect, Metric } from "effect"
import * as TraceContext from "./internal/TraceContext.ts"

export interface Exemplar {
  /** 32 hexadecimal digits. */
  readonly traceId: string
  /** 16 hexadecimal digits. */
  readonly spanId: string
  /** The observed value, or the increment of a counter. */
  readonly value: number
  readonly atMillis: number
}

/** Exemplars of one series, by the index of the bucket. The last bucket has no upper bound. */
export type SeriesExemplars = ReadonlyArray<Exemplar | undefined>

/** Identifies a series: a metric with its labels. */
export type SeriesId = Pick<Metric.Metric.Snapshot, "attributes" | "id" | "type">

interface Series {
  readonly boundaries: ReadonlyArray<number>
  readonly exemplars: Array<Exemplar | undefined>
}

/** Exemplars live as long as the registry that has their series. */
const registries = new WeakMap<Metric.MetricRegistry, Map<string, Series>>()

const keyOf = ({ attributes, id, type }: SeriesId): string =>
  JSON.stringify([type, id, Object.entries(attributes ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1))])

/** Upper bounds of a histogram's buckets. A counter has none, so that it keeps one exemplar. */
const boundariesOf = (state: object): ReadonlyArray<number> =>
  "buckets" in state ? (state as Metric.HistogramState).buckets.map(([boundary]) => boundary) : []

const seriesOf = <State extends object>(
  metric: Metric.Metric<number, State>,
  context: Context.Context<never>
): Series => {
  const registry = Context.get(context, Metric.MetricRegistry)
  let all = registries.get(registry)
  if (all === undefined) registries.set(registry, (all = new Map()))
  const { id, type } = metric
  const attributes = { ...metric.attributes, ...Context.get(context, Metric.CurrentMetricAttributes) }
  const key = keyOf({ id, type, attributes })
  let series = all.get(key)
  if (series === undefined) {
    series = { boundaries: boundariesOf(metric.valueUnsafe(context)), exemplars: [] }
    all.set(key, series)
  }
  return series
}

const remember = <State extends object>(
  metric: Metric.Metric<number, State>,
  value: number,
  context: Context.Context<never>
): void => {
  const span = TraceContext.collected(context)
  if (span?.sampled !== true || !Number.isFinite(value)) return
  const { boundaries, exemplars } = seriesOf(metric, context)
  const bucket = boundaries.findIndex((boundary) => value <= boundary)
  exemplars[bucket === -1 ? boundaries.length : bucket] = {
    traceId: span.traceId,
    spanId: span.spanId,
    value,
    atMillis: Context.get(context, Clock.Clock).currentTimeMillisUnsafe()
  }
}

/**
 * Returns the same metric, which also keeps exemplars: an update within a sampled span that something collects replaces
 * the exemplar of its bucket.
 */
export const traced = <State extends object>(
  metric: Metric.Metric<number, State>
): Metric.Metric<number, State> =>
  Metric.mapInput(metric, (value: number, context) => {
    remember(metric, value, context)
    return value
  })

/** Returns the exemplars of a series in the current registry. */
export const reader: Effect.Effect<(series: SeriesId) => SeriesExemplars> = Effect.map(
  Effect.service(Metric.MetricRegistry),
  (registry) => (series) => registries.get(registry)?.get(keyOf(series))?.exemplars ?? []
)
