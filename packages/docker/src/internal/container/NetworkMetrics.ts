/** Metrics of network namespaces that are ready for runs, in Effect's metric registry. */
import { type Effect, Metric } from "effect"

const claims = Metric.counter("sandbox_network_claims_total", {
  description:
    "Cold runs that asked for a ready network, by result: hit, miss (none was ready), failed (it could not be used)",
  incremental: true
})

const waiting = Metric.gauge("sandbox_networks_ready", {
  description: "Network namespaces of this process that are ready for a run"
})

export const claimed = (result: "failed" | "hit" | "miss"): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(claims, { result }), 1)

export const ready = (count: number): Effect.Effect<void> => Metric.update(waiting, count)
