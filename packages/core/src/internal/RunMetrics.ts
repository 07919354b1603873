/**
 * Metrics of runs, in Effect's metric registry: `Metric.snapshot`, an exporter, and the server's `/metrics` read them.
 *
 * They are the only count. Every label has a small set of values. Names of agents are the host's, and only the first
 * {@link agentsMax} of them get a value of their own. Histograms, and counters of what an operator must look into, lead
 * to the trace of a run.
 */
import { Cause, Effect, Exit, Metric, type Tracer } from "effect"
import type { ApprovalStatus } from "../Approval.ts"
import * as Exemplars from "../Exemplars.ts"
import {
  type BudgetName,
  hasReachedUpstream,
  type LlmCall,
  type LlmTraffic,
  type LlmUsageTotal,
  type Phase
} from "../RunFigures.ts"
import type { Reason } from "../SandboxError.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import type { LlmBudget } from "../SpecFields.ts"

/** Maximum number of agents with a label of their own. */
const agentsMax = 50

const seconds = [0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600]

const started = Metric.counter("sandbox_runs_started_total", {
  description: "Runs that were started, open sandboxes included, by agent",
  incremental: true
})

const ended = Exemplars.traced(
  Metric.counter("sandbox_runs_total", {
    description:
      "Ended runs, by agent and status: succeeded, exited (with a nonzero code), closed, interrupted, or the reason of the failure",
    incremental: true
  })
)

const refused = Metric.counter("sandbox_runs_refused_total", {
  description: "Specs that were refused before their run began, by reason",
  incremental: true
})

const duration = Exemplars.traced(
  Metric.histogram("sandbox_run_duration_seconds", {
    description: "Duration of runs, from their start to the end of their sandbox, by agent",
    boundaries: seconds
  })
)

const phases = Exemplars.traced(
  Metric.histogram("sandbox_run_phase_duration_seconds", {
    description: "Duration of the phases of runs, by phase; phases overlap",
    boundaries: [0.01, 0.025, 0.05, 0.1, 0.25, ...seconds]
  })
)

const open = Metric.gauge("sandbox_open", { description: "Sandboxes of this process that exist now" })

const calls = Metric.counter("sandbox_model_calls_total", {
  description:
    "Requests of agents to their model, by outcome; unlisted are those beyond the first 1,000 of a run",
  incremental: true
})

const callDuration = Exemplars.traced(
  Metric.histogram("sandbox_model_call_duration_seconds", {
    description: "Duration of model calls that went upstream, from the request to the end of the answer",
    boundaries: [0.1, 0.25, ...seconds.slice(0, 10)]
  })
)

const gatewayAdded = Exemplars.traced(
  Metric.histogram("sandbox_gateway_added_seconds", {
    description: "Time that a gateway added to model calls: from the whole request to its sending",
    boundaries: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5]
  })
)

const tokens = Metric.counter("sandbox_model_tokens_total", {
  description: "Tokens of model calls, by type",
  incremental: true
})

const cost = Metric.counter("sandbox_model_cost_usd_total", {
  description: "Known or estimated cost of model calls, in US dollars",
  incremental: true
})

const budgetLeft = Exemplars.traced(
  Metric.histogram("sandbox_run_budget_left_ratio", {
    description: "Part of a budget that was left when its run ended, by budget; 0 is spent",
    boundaries: [0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1]
  })
)

const exhausted = Exemplars.traced(
  Metric.counter("sandbox_budgets_exhausted_total", {
    description: "Runs that spent a budget, by budget",
    incremental: true
  })
)

const sharesSpent = Exemplars.traced(
  Metric.counter("sandbox_subagent_shares_exhausted_total", {
    description: "Runs whose subagents spent their share, by budget",
    incremental: true
  })
)

const canaries = Exemplars.traced(
  Metric.counter("sandbox_canaries_detected_total", {
    description: "Canaries that were seen leaving a sandbox, by channel",
    incremental: true
  })
)

const approvals = Metric.counter("sandbox_tool_approvals_total", {
  description: "Ended approvals of tool calls, by decision: approved, denied, expired or cancelled",
  incremental: true
})

/** Returns labels for names, of which only the first `max` get one of their own. The others share `other`. */
export const makeLabels = (max: number) => {
  const known = new Set<string>()
  return (name: string | undefined): string => {
    if (name === undefined) return "none"
    if (known.has(name)) return name
    if (known.size === max || !/^[\w.:-]{1,64}$/u.test(name)) return "other"
    known.add(name)
    return name
  }
}

const labelOf = makeLabels(agentsMax)

/** Returns the label of a run's agent. */
const agentOf = ({ llm }: Pick<SandboxSpec, "llm">): string =>
  labelOf(llm?.identity.agentId ?? llm?.identity.graphId)

/** Counts a run that has begun. */
export const begun = (spec: SandboxSpec): Effect.Effect<void> =>
  Effect.andThen(
    Metric.update(Metric.withAttributes(started, { agent: agentOf(spec) }), 1),
    Metric.modify(open, 1)
  )

/** Counts a phase that has ended well. */
export const phaseEnded = (phase: Phase, durationMs: number): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(phases, { phase }), durationMs / 1000)

/** Counts a canary that was seen leaving the sandbox. */
export const suspected = (channel: string): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(canaries, { channel }), 1)

/** Counts a budget that is spent. */
export const spent = (budget: BudgetName): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(exhausted, { budget }), 1)

/** Counts a share of subagents that is spent. */
export const shareSpent = (budget: BudgetName): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(sharesSpent, { budget }), 1)

/** Counts an approval of a tool call that has ended. */
export const approvalEnded = (decision: ApprovalStatus): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(approvals, { decision }), 1)

/** Counts a spec that was refused. */
export const refusedAs = ({ _tag: reason }: Reason): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(refused, { reason }), 1)

/** Spans of model calls, where they exist. */
type SpansOfCalls = ReadonlyMap<LlmCall, Tracer.AnySpan>

/** Counts the end of a run that has begun, with what its proxy recorded. */
export const ends = (
  spec: SandboxSpec,
  exit: Exit.Exit<{ readonly exitCode: number } | undefined, Reason>,
  runSeconds: number,
  traffic: LlmTraffic | undefined,
  spans: SpansOfCalls
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const agent = agentOf(spec)
    yield* Metric.modify(open, -1)
    yield* Metric.update(Metric.withAttributes(ended, { agent, status: statusOf(exit) }), 1)
    yield* Metric.update(Metric.withAttributes(duration, { agent }), runSeconds)
    if (traffic === undefined) return
    yield* used(traffic, spans)
    for (const [budget, left] of leftOf(spec.llm?.budget, traffic.usage))
      yield* Metric.update(Metric.withAttributes(budgetLeft, { budget }), left)
  })

const statusOf = (exit: Exit.Exit<{ readonly exitCode: number } | undefined, Reason>): string => {
  if (Exit.isSuccess(exit))
    return exit.value === undefined ? "closed" : exit.value.exitCode === 0 ? "succeeded" : "exited"
  const failure = exit.cause.reasons.find(Cause.isFailReason)
  if (failure !== undefined) return failure.error._tag
  return Cause.hasInterruptsOnly(exit.cause) ? "interrupted" : "Defect"
}

/** Returns the part that is left of each budget whose use is known. */
const leftOf = (
  budget: LlmBudget | undefined,
  usage: LlmUsageTotal | undefined
): ReadonlyArray<readonly [BudgetName, number]> => {
  if (budget === undefined || usage === undefined) return []
  const { callsMax, costUsdMax, inputTokensMax, outputTokensMax } = budget
  return (
    [
      ["calls", callsMax, usage.calls],
      ["input_tokens", inputTokensMax, usage.inputTokens],
      ["output_tokens", outputTokensMax, usage.outputTokens],
      ["cost_usd", costUsdMax, usage.costUsd]
    ] as const
  ).flatMap(([name, max, used]) =>
    max === undefined || used === undefined ? [] : [[name, Math.max(0, 1 - used / max)] as const]
  )
}

/** Times a call that went upstream. Its exemplars lead to its own span, or else to the run's. */
const timed = (call: LlmCall, span: Tracer.AnySpan | undefined): Effect.Effect<void> => {
  const { durationMs, gatewayMs } = call
  const update = Effect.andThen(
    Metric.update(callDuration, durationMs / 1000),
    gatewayMs === undefined ? Effect.void : Metric.update(gatewayAdded, gatewayMs / 1000)
  )
  return span === undefined ? update : Effect.withParentSpan(update, span)
}

const used = (traffic: LlmTraffic, spans: SpansOfCalls): Effect.Effect<void> =>
  Effect.gen(function* () {
    for (const [outcome, count] of callsOf(traffic))
      yield* Metric.update(Metric.withAttributes(calls, { outcome }), count)
    for (const call of traffic.calls.filter(hasReachedUpstream)) yield* timed(call, spans.get(call))
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
