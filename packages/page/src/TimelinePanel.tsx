/** The timeline of a run, as a chart and as a table. */
"use client"

import type { ReactElement } from "react"
import { Button, Disclosure, DisclosurePanel, Heading } from "react-aria-components"
import { Bar, BarChart, CartesianGrid, Cell, ResponsiveContainer, Tooltip, XAxis, YAxis } from "recharts"
import { DataTable } from "./DataTable.tsx"
import * as Format from "./Format.ts"
import { Empty, Untrusted } from "./Parts.tsx"
import { barsOf, hiddenBars, type Bar as Step, type TimelineSource } from "./Timeline.ts"

const colors: Readonly<Record<Step["kind"], string>> = {
  phase: "var(--cs-series-1)",
  call: "var(--cs-series-2)",
  tool: "var(--cs-series-3)",
  approval: "var(--cs-warn)",
  warning: "var(--cs-bad)"
}

const kinds: Readonly<Record<Step["kind"], string>> = {
  phase: "Phase",
  call: "Model call",
  tool: "Tool",
  approval: "Approval",
  warning: "Warning or failure"
}

const columns = [
  { name: "What" },
  { name: "Kind" },
  { name: "Begins after", isFigure: true },
  { name: "Takes", isFigure: true }
]

const rowPixels = 24

/** Longest label beside a bar, in characters. The table has the whole one. */
const labelCharsMax = 18

const shortened = (label: string): string => {
  const letters = [...label]
  const short = letters.length > labelCharsMax ? `${letters.slice(0, labelCharsMax - 1).join("")}…` : label
  // The chart would break the line at a space.
  return short.replaceAll(" ", "\u00a0")
}

const kindOf = ({ isError, kind }: Step): string =>
  kind === "warning" ? "Warning" : isError ? `${kinds[kind]}, failed` : kinds[kind]

const Tip = ({
  active,
  payload
}: {
  readonly active?: boolean
  readonly payload?: ReadonlyArray<{ readonly payload?: Step }>
}) => {
  const step = payload?.[0]?.payload
  if (active !== true || step === undefined) return null
  return (
    <div className="cs-tip">
      <strong>{step.label}</strong> ({kindOf(step)})
      <br />
      {Format.duration(step.span[1] - step.span[0])}, from {Format.duration(step.span[0])}
    </div>
  )
}

export const TimelinePanel = ({
  now,
  source
}: {
  readonly source: TimelineSource
  readonly now: number
}): ReactElement => {
  const bars = barsOf(source, now)
  const hidden = hiddenBars(source, now)
  if (bars.length === 0) return <Empty>Nothing has happened yet.</Empty>
  return (
    <div className="cs-panel">
      <ul className="cs-legend" aria-label="Kinds">
        {Object.entries(kinds).map(([kind, label]) => (
          <li key={kind} className={`cs-legend-${kind}`}>
            {label}
          </li>
        ))}
      </ul>
      {hidden === 0 ? null : (
        <p className="cs-note">{Format.count(hidden)} earlier calls and tools are not shown.</p>
      )}
      <div className="cs-chart" aria-hidden="true">
        <ResponsiveContainer width="100%" height={bars.length * rowPixels + 40}>
          <BarChart
            accessibilityLayer={false}
            data={bars as Array<Step>}
            layout="vertical"
            margin={{ top: 4, right: 16, bottom: 0, left: 0 }}
          >
            <CartesianGrid horizontal={false} stroke="var(--cs-border)" />
            <XAxis
              type="number"
              tickFormatter={(millis: number) => Format.duration(millis)}
              stroke="var(--cs-muted)"
              fontSize={12}
            />
            <YAxis
              type="category"
              dataKey="id"
              tickFormatter={(id: string) => shortened(bars.find((step) => step.id === id)?.label ?? "")}
              interval={0}
              width={150}
              stroke="var(--cs-muted)"
              fontSize={12}
            />
            <Tooltip content={<Tip />} cursor={{ fill: "var(--cs-hover)" }} isAnimationActive={false} />
            <Bar dataKey="span" isAnimationActive={false} minPointSize={3} radius={2}>
              {bars.map((step) => (
                <Cell
                  key={step.id}
                  fill={step.isError ? "var(--cs-bad)" : colors[step.kind]}
                  fillOpacity={step.isOpen ? 0.6 : 1}
                />
              ))}
            </Bar>
          </BarChart>
        </ResponsiveContainer>
      </div>
      <Disclosure className="cs-disclosure" defaultExpanded={false}>
        <Heading level={3}>
          <Button slot="trigger" className="cs-button cs-quiet">
            The same as a table
          </Button>
        </Heading>
        <DisclosurePanel>
          <DataTable
            label="Timeline"
            columns={columns}
            rows={bars.map((step) => ({
              id: step.id,
              cells: [
                <Untrusted text={step.label} />,
                kindOf(step),
                Format.duration(step.span[0]),
                step.isOpen ? "under way" : Format.duration(step.span[1] - step.span[0])
              ]
            }))}
          />
        </DisclosurePanel>
      </Disclosure>
    </div>
  )
}
