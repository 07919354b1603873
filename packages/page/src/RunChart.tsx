/** How the listed runs ended and how long they took, the newest on the right. */
"use client"

import type { ReactElement } from "react"
import { Bar, BarChart, Cell, ResponsiveContainer } from "recharts"
import * as Format from "./Format.ts"
import { isActive, type Run } from "./RunModel.ts"

/** Runs in the chart. More would be too thin to see, and fewer say nothing. */
const runsMax = 100
const runsMin = 8

const colorOf = (run: Run): string =>
  isActive(run)
    ? "var(--cs-series-1)"
    : run.status === "succeeded"
      ? "var(--cs-chart-good)"
      : run.status === "failed"
        ? "var(--cs-chart-bad)"
        : "var(--cs-chart-warn)"

/** The figures in words, which the chart only illustrates. */
const wordsOf = (runs: ReadonlyArray<Run>): string => {
  const under = runs.filter(isActive).length
  const succeeded = runs.filter(({ status }) => status === "succeeded").length
  const failed = runs.filter(({ status }) => status === "failed").length
  const known = runs.flatMap(({ cost, llm }) => cost?.costUsd ?? llm?.usage?.costUsd ?? [])
  const spent = known.reduce((sum, usd) => sum + usd, 0)
  return [
    `${runs.length} ${runs.length === 1 ? "run" : "runs"} listed`,
    `${under} under way`,
    `${succeeded} succeeded`,
    `${failed} failed`,
    ...(known.length > 0 ? [`${Format.usd(spent)} known cost`] : [])
  ].join(" · ")
}

export const RunChart = ({ runs }: { readonly runs: ReadonlyArray<Run> }): ReactElement => {
  const now = Date.now()
  const shown = runs
    .slice(0, runsMax)
    .map((run) => ({ run, millis: Format.between(run.startedAt, run.endedAt, now) ?? 0 }))
    .toReversed()
  return (
    <figure className="cs-overview">
      <figcaption>{wordsOf(runs)}</figcaption>
      {shown.length < runsMin ? null : (
        <div className="cs-chart" aria-hidden="true">
          <ResponsiveContainer width="100%" height={44}>
            <BarChart
              accessibilityLayer={false}
              data={shown}
              margin={{ top: 0, right: 0, bottom: 0, left: 0 }}
            >
              <Bar dataKey="millis" isAnimationActive={false} minPointSize={4} maxBarSize={24} radius={2}>
                {shown.map(({ run }) => (
                  <Cell key={run.runId} fill={colorOf(run)} />
                ))}
              </Bar>
            </BarChart>
          </ResponsiveContainer>
        </div>
      )}
    </figure>
  )
}
