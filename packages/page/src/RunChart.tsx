/** How the listed runs ended and how long they took, the newest on the right. */
"use client"

import { memo, type ReactElement } from "react"
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

/** Memoized, and of plain elements: it changes with each page of the list, which a chart library would hold up. */
export const RunChart = memo(({ runs }: { readonly runs: ReadonlyArray<Run> }): ReactElement => {
  const now = Date.now()
  const shown = runs
    .slice(0, runsMax)
    .map((run) => ({ run, millis: Format.between(run.startedAt, run.endedAt, now) ?? 0 }))
    .toReversed()
  const longest = Math.max(1, ...shown.map(({ millis }) => millis))
  return (
    <figure className="cs-overview">
      <figcaption>{wordsOf(runs)}</figcaption>
      {shown.length < runsMin ? null : (
        <div className="cs-bars" aria-hidden="true">
          {shown.map(({ millis, run }) => (
            <span
              key={run.runId}
              style={{ backgroundColor: colorOf(run), height: `${(millis / longest) * 100}%` }}
            />
          ))}
        </div>
      )}
    </figure>
  )
})
