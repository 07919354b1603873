/** Metrics of a pool of waiting sandboxes, in Effect's metric registry. */
import { type Effect, Metric } from "effect"
import type { ColdReason } from "../PoolUse.ts"

const claims = Metric.counter("sandbox_pool_claims_total", {
  description:
    "Runs that asked the pool, by result: hit, miss (none was ready), cold (no pooled sandbox can serve it), failed (it was taken, and the run started cold)",
  incremental: true
})

const coldly = Metric.counter("sandbox_pool_cold_total", {
  description: "Runs that no waiting sandbox can serve, by reason",
  incremental: true
})

const waiting = Metric.gauge("sandbox_pool_waiting", {
  description: "Sandboxes of this process that wait for a run"
})

const made = Metric.counter("sandbox_pool_started_total", {
  description: "Waiting sandboxes that were started, by result: ready or failed",
  incremental: true
})

const dropped = Metric.counter("sandbox_pool_dropped_total", {
  description:
    "Waiting sandboxes that no run got, by reason: age, demand, memory, unusable (it ended, or its image changed), or end of the pool",
  incremental: true
})

const wait = Metric.histogram("sandbox_pool_wait_seconds", {
  description: "Time from asking the pool to its answer",
  boundaries: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5]
})

const age = Metric.histogram("sandbox_pool_age_seconds", {
  description: "How long a sandbox had waited when a run got it",
  boundaries: [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600]
})

type ClaimResult = "cold" | "failed" | "hit" | "miss"

export type Dropped = "age" | "demand" | "end" | "memory" | "unusable"

export const claimed = (result: ClaimResult): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(claims, { result }), 1)

export const cold = (reason: ColdReason): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(coldly, { reason }), 1)

export const waited = (seconds: number): Effect.Effect<void> => Metric.update(wait, seconds)

export const aged = (seconds: number): Effect.Effect<void> => Metric.update(age, seconds)

export const started = (result: "failed" | "ready"): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(made, { result }), 1)

export const changed = (by: number): Effect.Effect<void> => Metric.modify(waiting, by)

export const drop = (reason: Dropped): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(dropped, { reason }), 1)
