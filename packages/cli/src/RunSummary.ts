/**
 * Summarizes the record of a run for people: how it ended, its limits beside their peaks, its calls and its delivery.
 *
 * Pure. Names and texts can be an agent's or a caller's, so each is one visible line.
 */
import { describeShare } from "@cogni/sandbox-core/BudgetWords"
import * as PoolUse from "@cogni/sandbox-core/PoolUse"
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import { outputOf } from "@cogni/sandbox-core/RecordForms"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import type { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import type { RunCost } from "@cogni/sandbox-ledger/RunCost"
import { Option, Schema } from "effect"
import * as CostWords from "./CostWords.ts"
import { formatMillis, plural } from "./Quantity.ts"
import * as RecordReport from "./RecordReport.ts"
import { clip, columns, oneLine } from "./TerminalText.ts"

type Row = readonly [name: string, text: string]

const textMax = 200

const shown = (text: string): string => clip(oneLine(text), textMax)

const row = (name: string, text: string | undefined): ReadonlyArray<Row> =>
  text === undefined || text === "" ? [] : [[name, text]]

const listed = (...parts: ReadonlyArray<string | undefined>): string =>
  parts.filter((part) => part !== undefined && part !== "").join(", ")

const peakOf = ({ outcome }: RunRecord) =>
  outcome.status === "exited" ? outcome.result.peak : outcome.status === "failed" ? (outcome.peak ?? {}) : {}

const limitsOf = (record: RunRecord, now: Date): ReadonlyArray<Row> => {
  const { cpusMax, memoryBytesMax, processesMax, runtimeSecondsMax, workspaceBytesMax } = record.spec.limits
  const peak = peakOf(record)
  const of = (used: string | undefined, max: string) =>
    used === undefined ? `at most ${max}` : `${used} of ${max}`
  const bytes = (used: number | undefined, max: number) =>
    of(used === undefined ? undefined : formatBytes(used), formatBytes(max))
  return [
    ["memory", bytes(peak.memoryBytes, memoryBytesMax)],
    [
      "processes",
      of(peak.processes === undefined ? undefined : String(peak.processes), String(processesMax))
    ],
    ["workspace", bytes(peak.workspaceBytes, workspaceBytesMax)],
    ["processors", `at most ${cpusMax}`],
    ["time", of(formatMillis(RecordReport.millisOf(record, now)), formatMillis(runtimeSecondsMax * 1000))]
  ]
}

const budgetOf = ({ llm, spec }: RunRecord): string => {
  const budget: LlmBudget | undefined = spec.llm?.budget
  const usage = llm?.usage
  const of = (name: string, used: number | string | undefined, max: number | string | undefined) =>
    max === undefined ? undefined : `${name} ${used ?? "?"} of ${max}`
  return listed(
    of("calls", usage?.calls, budget?.callsMax),
    of("input tokens", usage?.inputTokens, budget?.inputTokensMax),
    of("output tokens", usage?.outputTokens, budget?.outputTokensMax),
    of(
      "cost",
      usage?.costUsd === undefined ? undefined : CostWords.usd(usage.costUsd),
      budget?.costUsdMax === undefined ? undefined : CostWords.usd(budget.costUsdMax)
    ),
    budget?.subagentShareMax === undefined
      ? undefined
      : `subagents at most ${Math.round(budget.subagentShareMax * 100)}%`,
    llm?.subagentsExhausted === undefined ? undefined : describeShare(llm.subagentsExhausted),
    llm?.exhausted === undefined ? undefined : `${llm.exhausted.budget.replaceAll("_", " ")} is spent`
  )
}

const callsOf = ({ llm }: RunRecord): string | undefined =>
  llm &&
  listed(
    plural(llm.callsTotal, "call"),
    llm.usage && `${llm.usage.inputTokens} input tokens`,
    llm.usage && `${llm.usage.outputTokens} output tokens`,
    llm.toolCallsTotal === undefined || llm.toolCallsTotal === 0
      ? undefined
      : `${plural(llm.toolCallsTotal, "call")} of host tools`
  )

const decodeRelay = Schema.decodeUnknownOption(DeliveryRecord.DeliveryRecord)

const deliveryOf = ({ annotations }: RunRecord): ReadonlyArray<Row> => {
  const relay = Option.getOrUndefined(decodeRelay(annotations?.["relay"]))
  if (relay === undefined) return []
  return [
    ...row("repository", shown(relay.origin)),
    ...row("branch", `${shown(relay.branch)} (${relay.status})`),
    ...row("pull request", relay.pullRequestUrl && shown(relay.pullRequestUrl)),
    ...row("not delivered", relay.message && shown(relay.message))
  ]
}

const outputWords = (record: RunRecord): string | undefined => {
  const output = outputOf(record)
  const channel = (
    name: string,
    { bytes, truncated }: { readonly bytes: number; readonly truncated: boolean }
  ) => `${formatBytes(bytes)} ${name}${truncated ? " (only the beginning is stored)" : ""}`
  return (
    output &&
    `${listed(channel("stdout", output.stdout), channel("stderr", output.stderr))}. See: cogni-sandbox logs ${record.runId}`
  )
}

/** Describes how a run got its sandbox, if its process had a pool. */
const poolOf = ({ pool }: RunRecord): string | undefined =>
  pool === undefined
    ? undefined
    : pool === "hit"
      ? "waited for this run"
      : `started for this run, because ${PoolUse.reasonOf(pool)}`

/** Summarizes a run in lines. */
export const lines = (record: RunRecord, cost: RunCost | undefined, now: Date): ReadonlyArray<string> => {
  const facts = RunFacts.of(record)
  const { endedAt, outcome, posture, runId, spec, startedAt, suspicions = [], timings } = record
  const identity = spec.llm?.identity
  const named = (name: string, value: string | undefined) =>
    value === undefined ? undefined : `${name} ${shown(value)}`
  const rows: ReadonlyArray<Row> = [
    ...row("reason", facts.reason && shown(facts.reason)),
    ...row("message", outcome.status === "failed" ? shown(outcome.message) : undefined),
    ...row("agent", listed(facts.agentId && shown(facts.agentId), named("graph", facts.graphId))),
    ...row("model", facts.model && shown(facts.model)),
    ...row(
      "account",
      listed(
        facts.billingAccountId && shown(facts.billingAccountId),
        named("user", identity?.userId),
        named("session", facts.sessionId),
        named("grant", facts.grantId)
      )
    ),
    ...row("image", shown(spec.image)),
    ...row("started", `${startedAt}${endedAt === undefined ? "" : `, ended ${endedAt}`}`),
    ...row(
      "phases",
      timings.map(({ durationMs, phase }) => `${phase} ${formatMillis(durationMs)}`).join(", ")
    ),
    ...row("sandbox", poolOf(record)),
    ...limitsOf(record, now),
    ...row("model calls", callsOf(record)),
    ...row("cost", cost && CostWords.costOf(cost)),
    ...row("budget", budgetOf(record)),
    ...row(
      "canaries",
      suspicions.map(({ canary, channel, encoding }) => `${canary} in ${channel} (${encoding})`).join(", ")
    ),
    ...row("isolation", posture && `verified by ${posture.confirmedBy.join(", ")}`),
    ...row("output", outputWords(record)),
    ...deliveryOf(record),
    ...row(
      "audit",
      record.llm?.auditHead &&
        `${plural(record.llm.auditHead.entries, "entry", "entries")}. See: cogni-sandbox audit verify ${runId}`
    ),
    ...row("trace", identity?.existingTraceId && shown(identity.existingTraceId))
  ]
  return [`${runId}  ${facts.state} (${RecordReport.status(outcome)})`, ...columns(rows, "  ")]
}
