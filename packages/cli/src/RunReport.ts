/**
 * Reports the result of a run, as text and as JSON. Pure.
 *
 * For an agent, standard output contains only the answer. An agent with a nonzero exit code has no answer, whatever it
 * printed.
 */
import { describeExhaustion, describeShare } from "@cogni/sandbox-core/BudgetWords"
import type { LlmObservation } from "@cogni/sandbox-core/LlmObservation"
import { type RunResult } from "@cogni/sandbox-core/RunResult"
import { hasReachedUpstream, type LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import type { AgentAnswer } from "@cogni/sandbox-graph-provider/agents/AgentOutput"
import type { AgentRunEnd } from "@cogni/sandbox-graph-provider/AgentRun"
import type { RunCost } from "@cogni/sandbox-ledger/RunCost"
import { Result } from "effect"
import { costOf } from "./CostWords.ts"
import { exitCode } from "./ExitCode.ts"
import { formatMillis, plural } from "./Quantity.ts"
import { oneLine } from "./TerminalText.ts"

/** The evaluation of an agent's run. */
export interface Verdict {
  readonly exitCode: number
  readonly answer: AgentAnswer | undefined
  /** Why there is no answer. */
  readonly problem:
    | { readonly code: string; readonly message: string; readonly textSoFar: string }
    | undefined
}

export const verdictOf = ({ judged, result }: Pick<AgentRunEnd<unknown>, "judged" | "result">): Verdict => {
  if (Result.isSuccess(judged)) return { exitCode: 0, answer: judged.success, problem: undefined }
  const { code, message, textSoFar } = judged.failure
  const logs = code === "exit" || code === "unreadable" ? `. See: cogni-sandbox logs ${result.runId}` : ""
  return {
    exitCode: result.exitCode === 0 ? exitCode.noAnswer : result.exitCode,
    answer: undefined,
    problem: { code: oneLine(code), message: `${oneLine(message)}${logs}`, textSoFar }
  }
}

/** Characters of an agent's text that are shown beside a failure. */
const shownCharsMax = 4000

/**
 * Shows the end of what an agent has said before its run failed; nothing if it has said nothing. Its lines are
 * indented, so that none of them looks like a line of this command.
 */
export const spoken = (textSoFar: string): string => {
  const text = textSoFar.trim()
  if (text === "") return ""
  const shown = `${text.length > shownCharsMax ? "…" : ""}${text.slice(-shownCharsMax)}`
  return `· the agent's text so far:\n  ${shown.split(/\r\n|[\n\u2028\u2029\r]/u).join("\n  ")}\n`
}

/** Describes what the proxy has observed during a run. */
export const warning = (
  observed: Extract<
    LlmObservation,
    { readonly _tag: "BudgetExhausted" | "ExfiltrationSuspected" | "SubagentShareSpent" }
  >
): string => {
  if (observed._tag === "SubagentShareSpent") return describeShare(observed.exhaustion)
  if (observed._tag === "BudgetExhausted") return describeExhaustion(observed.exhaustion)
  const { canary, channel, encoding } = observed.evidence
  return `a canary was detected in the ${channel.replace("_", " ")}: ${canary} (${encoding})`
}

/** Summarizes the end of a run in one line. */
export const summary = ({ durationMs, exitCode, llm, runId }: RunResult, cost?: RunCost): string => {
  const spent = cost === undefined || cost.calls === 0 ? "" : `, cost ${costOf(cost)}`
  const calls = llm === undefined ? "" : `, ${describeCalls(llm)}${spent}`
  return `${runId}: exit code ${exitCode} after ${formatMillis(durationMs)}${calls}`
}

/** Summarizes what a run used before it failed; nothing if it called no model. */
export const used = (runId: string, cost: RunCost | undefined): string | undefined =>
  cost === undefined || cost.calls === 0
    ? undefined
    : `${runId}: ${plural(cost.calls, "model call")} before it failed, cost ${costOf(cost)}`

/** Counts the calls that reached the model, and those that the proxy refused. */
const describeCalls = ({ calls, callsTotal, usage }: LlmTraffic): string => {
  const listed = calls.filter(hasReachedUpstream).length
  const sent = usage?.calls ?? listed + callsTotal - calls.length
  const neither = calls.filter((call) => !hasReachedUpstream(call) && call.outcome !== "refused").length
  const refused = callsTotal - sent - neither
  return `${plural(sent, "model call")}${refused > 0 ? `, ${refused} refused` : ""}`
}

/** Facts about a run that its result does not have. */
export interface Told {
  readonly demo: boolean
  readonly cost?: RunCost | undefined
}

/** Returns the properties that reports of agents and of commands share. */
export const facts = (result: RunResult, { cost, demo }: Told) => ({
  ...(demo ? { demo: true } : {}),
  ...(cost === undefined ? {} : { cost }),
  peak: result.peak,
  durationMs: Math.round(result.durationMs),
  timings: result.timings.map(({ durationMs, phase }) => ({
    phase,
    durationMs: Math.round(durationMs * 10) / 10
  })),
  ...(result.llm === undefined ? {} : { llm: result.llm }),
  ...(result.suspicions.length === 0 ? {} : { suspicions: result.suspicions })
})

export const commandJson = (result: RunResult, told: Told): object => ({
  ok: result.exitCode === 0,
  runId: result.runId,
  exitCode: result.exitCode,
  output: result.output,
  ...facts(result, told)
})

export const agentJson = (
  agent: Agent,
  result: RunResult,
  { answer, exitCode, problem }: Verdict,
  told: Told
): object => ({
  ok: problem === undefined,
  runId: result.runId,
  agent: agent.id,
  exitCode,
  ...(answer === undefined ? {} : { answer: answer.text, usage: answer.usage, sessionId: answer.sessionId }),
  ...(problem === undefined
    ? {}
    : {
        error: { code: "agent", reason: problem.code, message: problem.message, isRetryable: false },
        ...(problem.textSoFar === "" ? {} : { textSoFar: problem.textSoFar })
      }),
  ...facts(result, told)
})
