/** The runs of an account, newest first. Updates while it is shown. */
"use client"

import { keepPreviousData, useQuery } from "@tanstack/react-query"
import { type ReactElement, useDeferredValue, useState } from "react"
import { Button } from "react-aria-components"
import { WaitingCalls } from "./ApprovalPanel.tsx"
import { FilterBar } from "./FilterBar.tsx"
import * as Format from "./Format.ts"
import { Empty, Loading, Problem } from "./Parts.tsx"
import { RunChart } from "./RunChart.tsx"
import * as RunFilter from "./RunFilter.ts"
import { isActive } from "./RunModel.ts"
import { RunTable } from "./RunTable.tsx"
import { pageRuns } from "./RunsClient.ts"
import { useSandbox } from "./SandboxProvider.tsx"

interface RunListProps {
  /** The filter, if its owner keeps it, such as in a URL. */
  readonly filter?: RunFilter.RunFilter
  readonly onFilterChange?: (filter: RunFilter.RunFilter) => void
}

/** Time between two updates, in milliseconds: short while a run is under way. */
const liveMillis = 2000
const idleMillis = 15_000

/**
 * The page of the list that is shown: the cursors of the pages up to it. Only one page is ever in the document, so the
 * length of the list does not matter.
 */
const usePlace = (filter: RunFilter.RunFilter) => {
  const key = JSON.stringify(filter)
  const [place, setPlace] = useState<{ readonly key: string; readonly cursors: ReadonlyArray<string> }>({
    key,
    cursors: []
  })
  // Another filter begins at its newest runs, also one that was left before.
  if (place.key !== key) setPlace({ key, cursors: [] })
  const cursors = place.key === key ? place.cursors : []
  return { cursors, go: (to: ReadonlyArray<string>) => setPlace({ key, cursors: to }) }
}

/** `before`: number of runs in newer pages. `isWaiting`: another page is asked for, and its place is not known yet. */
const Pages = ({
  before,
  cursors,
  go,
  isWaiting,
  next,
  shown
}: ReturnType<typeof usePlace> & {
  readonly before: number
  readonly isWaiting: boolean
  readonly next: string | undefined
  readonly shown: number
}) => {
  if (before === 0 && cursors.length === 0 && next === undefined) return null
  return (
    <nav aria-label="Pages of the list" className="cs-bar">
      <span className="cs-note" role="status">
        Runs {Format.count(before + 1)} to {Format.count(before + shown)}, newest first
      </span>
      <span className="cs-actions cs-end">
        {cursors.length > 1 ? (
          <Button className="cs-button cs-quiet" onPress={() => go([])}>
            Newest runs
          </Button>
        ) : null}
        <Button
          className="cs-button"
          isDisabled={cursors.length === 0}
          onPress={() => go(cursors.slice(0, -1))}
        >
          Newer runs
        </Button>
        <Button
          className="cs-button"
          isDisabled={next === undefined}
          onPress={() => {
            if (next !== undefined && !isWaiting) go([...cursors, next])
          }}
        >
          Older runs
        </Button>
      </span>
    </nav>
  )
}

export const RunList = ({ filter: owned, onFilterChange }: RunListProps): ReactElement => {
  const { client, scope } = useSandbox()
  const [own, setOwn] = useState<RunFilter.RunFilter>({})
  const filter = owned ?? own
  const place = usePlace(filter)
  const after = place.cursors.at(-1)
  const {
    data: read,
    error,
    isPlaceholderData,
    refetch
  } = useQuery({
    queryKey: ["@cogni/sandbox-page", scope, "runs", filter, after],
    queryFn: async ({ signal }) => ({
      ...(await client.runs(filter, after, signal)),
      before: place.cursors.length * pageRuns
    }),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.runs.some(isActive) === true ? liveMillis : idleMillis)
  })
  // The rows of a page take longer than a frame. So they are rendered between the frames, and hold up no input.
  const data = useDeferredValue(read)
  return (
    <section aria-label="Runs" className="cs-runs">
      <FilterBar filter={filter} onChange={onFilterChange ?? setOwn} />
      <WaitingCalls refetchMillis={data?.runs.some(isActive) === true ? liveMillis : idleMillis} />
      {error === null ? null : <Problem error={error} onRetry={refetch} />}
      {data === undefined ? (
        error === null ? (
          <Loading what="runs" />
        ) : null
      ) : data.runs.length === 0 ? (
        <Empty>
          {RunFilter.isEmpty(filter)
            ? "This account has no runs yet. Start one under Agents, or with cogni-sandbox run."
            : "No run fits this filter."}
        </Empty>
      ) : (
        <>
          <RunChart runs={data.runs} />
          <RunTable runs={data.runs} />
        </>
      )}
      {data === undefined ? null : (
        <Pages
          {...place}
          before={data.before}
          isWaiting={isPlaceholderData || data !== read}
          next={data.next}
          shown={data.runs.length}
        />
      )}
    </section>
  )
}
