/**
 * Logs each state of a run, with the names by which the run is found in traces, costs and records.
 *
 * A line contains no prompt, no output and no credential.
 */
import { Effect, type LogLevel, Option, Tracer } from "effect"
import type { RunId } from "../RunId.ts"
import type { LlmTraffic } from "../RunFigures.ts"
import type { Outcome } from "../RunRecord.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import { attribute } from "../Telemetry.ts"

type Values = Readonly<Record<string, string | number | undefined>>

const present = (values: Values): Record<string, string | number> =>
  Object.fromEntries(
    Object.entries(values).filter((entry): entry is [string, string | number] => entry[1] !== undefined)
  )

/** ID of the trace that collects the run's spans, if anything collects them. */
const collected = Effect.gen(function* () {
  if ((yield* Effect.tracer) === Tracer.nativeTracer) return undefined
  return Option.getOrUndefined(yield* Effect.option(Effect.currentSpan))?.traceId
})

export const make = (level: LogLevel.Severity, runId: RunId, spec: SandboxSpec) => {
  const { identity, model } = spec.llm ?? {}
  const agent = identity?.agentId ?? identity?.graphId

  const log = (state: "started" | "ready" | "ended", words: string, more: Values = {}) =>
    Effect.flatMap(collected, (traceId) =>
      Effect.annotateLogs(
        Effect.logWithLevel(level)(words),
        present({
          [attribute.runId]: runId,
          [attribute.runState]: state,
          [attribute.attempt]: identity?.attempt ?? 0,
          [attribute.agentId]: agent,
          [attribute.agentVariant]: agent,
          [attribute.accountId]: identity?.billingAccountId,
          [attribute.conversationId]: identity?.sessionId,
          [attribute.model]: model,
          [attribute.containerImage]: spec.image,
          [attribute.traceId]: traceId ?? identity?.existingTraceId,
          ...more
        })
      )
    )

  return {
    started: log("started", `run ${runId} started`),
    ready: log("ready", `run ${runId} is ready: its agent starts`),
    ended: (outcome: Outcome, durationMs: number, traffic: LlmTraffic | undefined) => {
      const reason = outcome.status === "failed" ? outcome.reason : undefined
      const exitCode = outcome.status === "exited" ? outcome.result.exitCode : undefined
      const how = reason ?? (exitCode === undefined ? outcome.status : `exit code ${exitCode}`)
      return log("ended", `run ${runId} ended: ${how}`, {
        [attribute.outcome]: outcome.status,
        [attribute.errorType]: reason,
        [attribute.exitCode]: exitCode,
        [attribute.durationMs]: durationMs,
        [attribute.inputTokens]: traffic?.usage?.inputTokens,
        [attribute.outputTokens]: traffic?.usage?.outputTokens,
        [attribute.costUsd]: traffic?.usage?.costUsd
      })
    }
  }
}

export type RunLog = ReturnType<typeof make>
