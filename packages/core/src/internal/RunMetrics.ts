/**
 * Metrics of runs, in Effect's metric registry: `Metric.snapshot`, an exporter, and the server's `/metrics` read them.
 *
 * They are the only count. Every label has a small set of values, none of which a caller or an agent chooses.
 */
import { Cause, Effect, Exit, Metric } from "effect"
import type { LlmCall, LlmTraffic } from "../RunResult.ts"
import type { Reason } from "../SandboxError.ts"

const started = Metric.counter("sandbox_runs_started_total", {
  description: "Runs that were started, open sandboxes included",
  incremental: true
})

const ended = Metric.counter("sandbox_runs_total", {
  description: "Ended runs, by outcome: exited, closed, interrupted, or the reason of the failure",
  incremental: true
})

const refused = Metric.counter("sandbox_runs_refused_total", {
  description: "Specs that were refused before their run began, by reason",
  incremental: true
})

const duration = Metric.histogram("sandbox_run_duration_seconds", {
  description: "Duration of runs, from their start to the end of their sandbox",
  boundaries: [0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600]
})

const open = Metric.gauge("sandbox_open", { description: "Sandboxes of this process that exist now" })

const calls = Metric.counter("sandbox_model_calls_total", {
  description:
    "Requests of agents to their model, by outcome; unlisted are those beyond the first 1,000 of a run",
  incremental: true
})

const tokens = Metric.counter("sandbox_model_tokens_total", {
  description: "Tokens of model calls, by type",
  incremental: true
})

const cost = Metric.counter("sandbox_model_cost_usd_total", {
  description: "Known or estimated cost of model calls, in US dollars",
  incremental: true
})

export const begun: Effect.Effect<void> = Effect.andThen(Metric.update(started, 1), Metric.modify(open, 1))

/** Counts a spec that was refused. */
export const refusedAs = ({ _tag: reason }: Reason): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(refused, { reason }), 1)

/** Counts the end of a run that has begun, with what its proxy recorded. */
export const ends = (
  exit: Exit.Exit<unknown, Reason>,
  seconds: number,
  traffic: LlmTraffic | undefined
): Effect.Effect<void> =>
  Effect.gen(function* () {
    yield* Metric.modify(open, -1)
    yield* Metric.update(Metric.withAttributes(ended, { outcome: outcomeOf(exit) }), 1)
    yield* Metric.update(duration, seconds)
    if (traffic !== undefined) yield* used(traffic)
  })

const outcomeOf = (exit: Exit.Exit<unknown, Reason>): string => {
  if (Exit.isSuccess(exit)) return exit.value === undefined ? "closed" : "exited"
  const failure = exit.cause.reasons.find(Cause.isFailReason)
  if (failure !== undefined) return failure.error._tag
  return Cause.hasInterruptsOnly(exit.cause) ? "interrupted" : "Defect"
}

const used = (traffic: LlmTraffic): Effect.Effect<void> =>
  Effect.gen(function* () {
    for (const [outcome, count] of callsOf(traffic))
      yield* Metric.update(Metric.withAttributes(calls, { outcome }), count)
    const { usage } = traffic
    if (usage === undefined) return
    for (const [type, count] of [
      ["input", usage.inputTokens],
      ["output", usage.outputTokens],
      ["cache_read", usage.cacheReadTokens],
      ["cache_write", usage.cacheWriteTokens]
    ] as const)
      if (count > 0) yield* Metric.update(Metric.withAttributes(tokens, { type }), count)
    if (usage.costUsd !== undefined) yield* Metric.update(cost, usage.costUsd)
  })

/** Number of requests of each outcome. */
const callsOf = (traffic: LlmTraffic): ReadonlyMap<string, number> => {
  const counts = new Map<string, number>()
  for (const call of traffic.calls) counts.set(outcome(call), (counts.get(outcome(call)) ?? 0) + 1)
  const unlisted = traffic.callsTotal - traffic.calls.length
  if (unlisted > 0) counts.set("unlisted", unlisted)
  return counts
}

/** A proxy that does not read bodies reports no outcome. */
const outcome = ({ completed, outcome: reported }: LlmCall): string =>
  reported ?? (completed ? "completed" : "incomplete")
