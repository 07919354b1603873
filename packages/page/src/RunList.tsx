/** The runs of an account, newest first. Updates while it is shown. */
"use client"

import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query"
import { type ReactElement, useState } from "react"
import { Button } from "react-aria-components"
import { FilterBar } from "./FilterBar.tsx"
import { Empty, Loading, Problem } from "./Parts.tsx"
import { RunChart } from "./RunChart.tsx"
import * as RunFilter from "./RunFilter.ts"
import { isActive, type RunPage } from "./RunModel.ts"
import { RunTable } from "./RunTable.tsx"
import { useSandbox } from "./SandboxProvider.tsx"

export interface RunListProps {
  /** The filter, if its owner keeps it, such as in a URL. */
  readonly filter?: RunFilter.RunFilter
  readonly onFilterChange?: (filter: RunFilter.RunFilter) => void
}

/** Time between two updates, in milliseconds: short while a run is under way. */
const liveMillis = 2000
const idleMillis = 15_000

/** Pages that are updated. With more pages, the list shows what it has, until it is opened again. */
const livePagesMax = 2

const pause = ({ pages }: { readonly pages: ReadonlyArray<RunPage> }): number | false =>
  pages.length > livePagesMax
    ? false
    : pages.some(({ runs }) => runs.some(isActive))
      ? liveMillis
      : idleMillis

export const RunList = ({ filter: owned, onFilterChange }: RunListProps): ReactElement => {
  const { client, scope } = useSandbox()
  const [own, setOwn] = useState<RunFilter.RunFilter>({})
  const filter = owned ?? own
  const { data, error, fetchNextPage, hasNextPage, isFetchingNextPage, refetch } = useInfiniteQuery({
    queryKey: ["@cogni/sandbox-page", scope, "runs", filter],
    queryFn: ({ pageParam, signal }) => client.runs(filter, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next }) => next,
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data === undefined ? idleMillis : pause(state.data))
  })
  const runs = data?.pages.flatMap((page) => page.runs) ?? []
  const known = [...new Map(runs.map((run) => [run.runId, run])).values()]
  const isPaused = data !== undefined && pause(data) === false
  return (
    <section aria-label="Runs" className="cs-runs">
      <FilterBar filter={filter} onChange={onFilterChange ?? setOwn} />
      {error === null ? null : <Problem error={error} onRetry={refetch} />}
      {data === undefined ? (
        error === null ? (
          <Loading what="runs" />
        ) : null
      ) : known.length === 0 ? (
        <Empty>
          {RunFilter.isEmpty(filter)
            ? "This account has no runs yet. Start one under Agents, or with cogni-sandbox run."
            : "No run fits this filter."}
        </Empty>
      ) : (
        <>
          <RunChart runs={known} />
          <RunTable runs={known} />
        </>
      )}
      {hasNextPage ? (
        <Button className="cs-button" isPending={isFetchingNextPage} onPress={() => void fetchNextPage()}>
          {isFetchingNextPage ? "Loading…" : "Older runs"}
        </Button>
      ) : null}
      {isPaused ? (
        <p className="cs-note">
          This long list is not updated.{" "}
          <Button className="cs-button" onPress={() => void refetch()}>
            Update
          </Button>
        </p>
      ) : null}
    </section>
  )
}
