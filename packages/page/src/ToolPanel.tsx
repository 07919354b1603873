/** The tools that a run has called, as the audit or the agent says. */
"use client"

import { memo, type ReactElement, useState } from "react"
import { Button } from "react-aria-components"
import { DataTable } from "./DataTable.tsx"
import * as Format from "./Format.ts"
import { Empty, Untrusted } from "./Parts.tsx"
import type { Tool } from "./RunModel.ts"

const columns = [
  { name: "Tool" },
  { name: "Source" },
  { name: "Result" },
  { name: "Takes", isFigure: true },
  { name: "Time" },
  { name: "Content" }
]

const millisOf = ({ at, durationMs, endedAt }: Tool): number | undefined =>
  durationMs ?? (endedAt === undefined ? undefined : Format.between(at, endedAt, 0))

const resultOf = ({ endedAt, isError, outcome }: Tool): string =>
  outcome ?? (isError === true ? "failed" : endedAt === undefined ? "under way" : "ok")

/** Arguments and result of a tool call. Shown on request, because it can be long. */
const Content = ({ number, tool }: { readonly tool: Tool; readonly number: number }) => {
  const [isOpen, setOpen] = useState(false)
  if (tool.arguments === undefined) return Format.unknown
  if (isOpen) return <Untrusted isBlock text={`${Format.pretty(tool.arguments)}\n\n${tool.result ?? ""}`} />
  return (
    <Button
      className="cs-button cs-quiet"
      aria-label={`Show content of call ${number}`}
      onPress={() => setOpen(true)}
    >
      Show
    </Button>
  )
}

/** Memoized: a run under way is rendered again each second. */
const Tools = memo(({ tools }: { readonly tools: ReadonlyArray<Tool> }) => (
  <DataTable
    label="Tool calls"
    columns={columns}
    rows={tools.map((tool, index) => ({
      id: `${tool.toolCallId}/${index}`,
      cells: [
        <Untrusted text={tool.tool} />,
        <Untrusted text={tool.source} />,
        <span className={tool.isError === true ? "cs-bad-text" : ""}>
          <Untrusted text={resultOf(tool)} />
        </span>,
        Format.duration(millisOf(tool)),
        Format.time(tool.at),
        <Content tool={tool} number={index + 1} />
      ]
    }))}
  />
))

export const ToolPanel = ({
  isElsewhere,
  isTruncated,
  tools
}: {
  readonly isElsewhere: boolean
  readonly tools: ReadonlyArray<Tool>
  readonly isTruncated: boolean
}): ReactElement =>
  tools.length === 0 ? (
    <Empty>
      {isElsewhere
        ? "The agent has reported no tool call. Another host has the calls of host tools."
        : "The run has not called a tool."}
    </Empty>
  ) : (
    <div className="cs-panel">
      <p className="cs-note">
        Calls of host tools are from the audit. Calls of the agent's own tools are what the agent reported.
      </p>
      <Tools tools={tools} />
      {isElsewhere ? <p className="cs-note">Another host has the calls of host tools.</p> : null}
      {isTruncated ? <p className="cs-note">There are more calls than are listed.</p> : null}
    </div>
  )
