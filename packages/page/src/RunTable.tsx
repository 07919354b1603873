/** A table of runs. On a narrow screen, it shows fewer columns. */
"use client"

import { columnVisibilityFeature, createColumnHelper, tableFeatures, useTable } from "@tanstack/react-table"
import { memo, type ReactElement, useMemo, useSyncExternalStore } from "react"
import { Link } from "react-aria-components"
import { Ago } from "./Ago.tsx"
import { DataTable } from "./DataTable.tsx"
import * as Format from "./Format.ts"
import { Cost, StatusBadge, Untrusted } from "./Parts.tsx"
import { isActive, type Run } from "./RunModel.ts"
import { useNow, useSandbox } from "./SandboxProvider.tsx"

const features = tableFeatures({ columnVisibilityFeature })
const helper = createColumnHelper<typeof features, Run>()

const text = (value: string | undefined) =>
  value === undefined ? Format.unknown : <Untrusted text={value} />

const RunLink = ({ runId }: Pick<Run, "runId">) => {
  const { hrefOfRun } = useSandbox()
  return hrefOfRun === undefined ? (
    <span className="cs-mono">{runId}</span>
  ) : (
    <Link className="cs-link cs-mono" href={hrefOfRun(runId)}>
      {runId}
    </Link>
  )
}

const Duration = ({ run }: { readonly run: Run }) => {
  const now = useNow(isActive(run))
  return (
    <span className="cs-figure">
      {isActive(run) || run.endedAt !== undefined
        ? Format.duration(Format.between(run.startedAt, run.endedAt, now))
        : Format.unknown}
    </span>
  )
}

const tokensOf = ({ llm }: Run) =>
  llm?.usage === undefined ? undefined : llm.usage.inputTokens + llm.usage.outputTokens

/** Columns of figures, which are aligned at their end. */
const figures: ReadonlySet<string> = new Set(["duration", "tokens", "cost"])

const columns = helper.columns([
  helper.display({ id: "run", header: "Run", cell: ({ row }) => <RunLink runId={row.original.runId} /> }),
  helper.display({
    id: "status",
    header: "Status",
    cell: ({ row: { original } }) => <StatusBadge status={original.status} error={original.error} />
  }),
  helper.display({
    id: "agent",
    header: "Agent",
    cell: ({ row: { original } }) => text(original.agentId ?? original.graphId)
  }),
  helper.display({ id: "model", header: "Model", cell: ({ row }) => text(row.original.model) }),
  helper.display({
    id: "repository",
    header: "Repository",
    cell: ({ row }) => text(row.original.repository?.replace(/^https?:\/\/|\.git$/gu, ""))
  }),
  helper.display({
    id: "started",
    header: "Started",
    cell: ({ row: { original } }) => <Ago at={original.startedAt} />
  }),
  helper.display({ id: "duration", header: "Duration", cell: ({ row }) => <Duration run={row.original} /> }),
  helper.display({
    id: "tokens",
    header: "Tokens",
    cell: ({ row }) => <span className="cs-figure">{Format.count(tokensOf(row.original))}</span>
  }),
  helper.display({ id: "cost", header: "Cost", cell: ({ row }) => <Cost run={row.original} /> })
])

/** The columns that a screen of a width has no room for. */
const hiddenBelow: ReadonlyArray<readonly [query: string, columns: ReadonlyArray<string>]> = [
  ["(max-width: 76rem)", ["repository", "tokens"]],
  ["(max-width: 52rem)", ["model", "duration"]],
  ["(max-width: 36rem)", ["agent", "cost"]]
]

const subscribe = (changed: () => void) => {
  const lists = hiddenBelow.map(([query]) => matchMedia(query))
  for (const list of lists) list.addEventListener("change", changed)
  return () => {
    for (const list of lists) list.removeEventListener("change", changed)
  }
}

const matched = () => hiddenBelow.map(([query]) => (matchMedia(query).matches ? "1" : "0")).join("")

const useVisibility = (): Record<string, boolean> => {
  const widths = useSyncExternalStore(subscribe, matched, () => "")
  return useMemo(
    () =>
      Object.fromEntries(
        hiddenBelow.flatMap(([, hidden], index) =>
          widths[index] === "1" ? hidden.map((column) => [column, false]) : []
        )
      ),
    [widths]
  )
}

/** Memoized: the list is read again every few seconds, and mostly the same. */
export const RunTable = memo(({ runs }: { readonly runs: ReadonlyArray<Run> }): ReactElement => {
  const columnVisibility = useVisibility()
  const table = useTable({
    features,
    columns,
    data: runs as Array<Run>,
    state: { columnVisibility },
    getRowId: ({ runId }) => runId
  })
  return (
    <DataTable
      label="Runs"
      columns={(table.getHeaderGroups()[0]?.headers ?? []).map(({ column: { columnDef, id } }) => ({
        name: String(columnDef.header),
        isFigure: figures.has(id)
      }))}
      rows={table.getRowModel().rows.map((row) => ({
        id: row.id,
        cells: row.getVisibleCells().map((cell) => <table.FlexRender key={cell.id} cell={cell} />)
      }))}
    />
  )
})
