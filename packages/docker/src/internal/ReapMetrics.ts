/** Counts the resources of dead host processes that were removed, in Effect's metric registry. */
import { type Effect, Metric } from "effect"

const reaped = Metric.counter("sandbox_leftovers_reaped_total", {
  description: "Resources of dead host processes that were found, by kind and result: removed or failed",
  incremental: true
})

/** Counts one resource. */
export const found = (
  kind: "container" | "network" | "run" | "volume" | "waiting",
  result: "failed" | "removed"
): Effect.Effect<void> => Metric.update(Metric.withAttributes(reaped, { kind, result }), 1)
