/** Cost and use of a run, beside its budget and its limits. */
"use client"

import type { ReactElement } from "react"
import { Label, Meter } from "react-aria-components"
import * as Format from "./Format.ts"
import { costOf, costWords, Facts } from "./Parts.tsx"
import { figure, isActive, type Run } from "./RunModel.ts"

interface Use {
  readonly name: string
  readonly used: number | undefined
  readonly max: number | undefined
  readonly words: (figure: number) => string
}

/** A figure beside its maximum. From 80% on, its color warns. */
const UseMeter = ({ max, name, used, words }: Use) => {
  if (max === undefined || max <= 0 || used === undefined) return null
  const percent = (used / max) * 100
  const tone = percent >= 100 ? "bad" : percent >= 80 ? "warn" : "good"
  return (
    <Meter
      className="cs-meter"
      value={Math.min(used, max)}
      maxValue={max}
      valueLabel={`${words(used)} of ${words(max)} (${Format.share(used, max)})`}
    >
      {({ percentage, valueText }) => (
        <>
          <Label>{name}</Label>
          <span className="cs-note">{valueText}</span>
          <span className="cs-track">
            <span
              className={`cs-fill cs-fill-${tone}`}
              style={{ width: `${percentage === 0 ? 0 : Math.max(1, percentage)}%` }}
            />
          </span>
        </>
      )}
    </Meter>
  )
}

const budgetUses = (run: Run): ReadonlyArray<Use> => {
  const usage = run.llm?.usage
  const max = (name: string) => figure(run.budget, name)
  return [
    { name: "Cost", used: costOf(run), max: max("costUsdMax"), words: Format.usd },
    { name: "Model calls", used: usage?.calls, max: max("callsMax"), words: Format.count },
    { name: "Input tokens", used: usage?.inputTokens, max: max("inputTokensMax"), words: Format.count },
    { name: "Output tokens", used: usage?.outputTokens, max: max("outputTokensMax"), words: Format.count }
  ]
}

export const limitUses = (run: Run, durationMs: number | undefined): ReadonlyArray<Use> => {
  const max = (name: string) => figure(run.limits, name)
  const peak = (name: string) => figure(run.peak, name)
  const seconds = max("runtimeSecondsMax")
  const outputBytes = run.output && run.output.stdoutBytes + run.output.stderrBytes
  return [
    {
      name: "Time",
      used: durationMs,
      max: seconds === undefined ? undefined : seconds * 1000,
      words: Format.duration
    },
    { name: "Memory", used: peak("memoryBytes"), max: max("memoryBytesMax"), words: Format.bytes },
    { name: "Processes", used: peak("processes"), max: max("processesMax"), words: Format.count },
    { name: "Workspace", used: peak("workspaceBytes"), max: max("workspaceBytesMax"), words: Format.bytes },
    { name: "Output", used: outputBytes, max: max("outputBytesMax"), words: Format.bytes }
  ]
}

export const Uses = ({ uses }: { readonly uses: ReadonlyArray<Use> }): ReactElement => (
  <div className="cs-meters">
    {uses.map((use) => (
      <UseMeter key={use.name} {...use} />
    ))}
  </div>
)

const stateWords = (run: Run) => {
  const { cost } = run
  if (cost === undefined) return undefined
  const parts = Object.entries(cost.states).flatMap(([state, calls]) =>
    calls > 0 ? [`${Format.count(calls)} ${state}`] : []
  )
  return parts.length === 0 ? undefined : parts.join(", ")
}

/** The cost in large, or why it is not known. */
const Amount = ({ run }: { readonly run: Run }) => {
  const amount = costOf(run)
  const calls = run.llm?.callsTotal
  return amount === undefined ? (
    <p>
      {calls === 0 ? "The run called no model." : isActive(run) ? "Not known yet." : "Its cost is not known."}
    </p>
  ) : (
    <p className="cs-large">
      {Format.usd(amount)} <span className="cs-note">{costWords(run.cost)}</span>
    </p>
  )
}

export const CostPanel = ({ run }: { readonly run: Run }): ReactElement => {
  const { cost, llm } = run
  const usage = llm?.usage
  const uses = budgetUses(run)
  const hasBudget = uses.some(({ max, used }) => max !== undefined && used !== undefined)
  return (
    <section className="cs-card" aria-label="Cost and budget">
      <h2>Cost and budget</h2>
      <Amount run={run} />
      {hasBudget ? (
        <Uses uses={uses} />
      ) : (
        <p className="cs-note">The run has no budget for its model calls.</p>
      )}
      <Facts
        facts={[
          ["Calls by state", stateWords(run)],
          [
            "Estimated part",
            cost?.estimatedCostUsd === undefined ? undefined : Format.usd(cost.estimatedCostUsd)
          ],
          [
            "Calls without a cost",
            cost !== undefined && cost.callsWithoutCost > 0 ? Format.count(cost.callsWithoutCost) : undefined
          ],
          ["Input tokens", usage && Format.count(usage.inputTokens)],
          [
            "Cached input",
            usage && usage.cacheReadTokens > 0 ? Format.count(usage.cacheReadTokens) : undefined
          ],
          ["Output tokens", usage && Format.count(usage.outputTokens)],
          ["Model calls", llm && Format.count(llm.callsTotal)],
          [
            "Budget spent",
            llm?.exhausted === undefined ? undefined : llm.exhausted.budget.replaceAll("_", " ")
          ],
          [
            "Share of subagents spent",
            llm?.subagentsExhausted === undefined
              ? undefined
              : llm.subagentsExhausted.budget.replaceAll("_", " ")
          ]
        ]}
      />
    </section>
  )
}
