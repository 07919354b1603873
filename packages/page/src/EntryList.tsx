/** A list of an account that is read page by page, as a table. */
"use client"

import { useInfiniteQuery } from "@tanstack/react-query"
import type { ReactElement, ReactNode } from "react"
import { Button } from "react-aria-components"
import { type DataColumn, DataTable } from "./DataTable.tsx"
import { Empty, Loading, Problem } from "./Parts.tsx"
import { useSandbox } from "./SandboxProvider.tsx"

/** Pages that are read at most. The document then has at most 1000 rows of a list. */
const pagesMax = 20

/** Time between two readings, in milliseconds. */
const idleMillis = 30_000

interface EntryPage<A> {
  readonly entries: ReadonlyArray<A>
  readonly next?: string | undefined
}

interface EntryListProps<A> {
  /** Name of the entries, such as `grants`. Also the last part of the key of the query. */
  readonly what: string
  readonly label: string
  readonly columns: ReadonlyArray<DataColumn>
  readonly empty: ReactNode
  readonly read: (after: string | undefined, signal: AbortSignal) => Promise<EntryPage<A>>
  readonly idOf: (entry: A) => string
  readonly cellsOf: (entry: A) => ReadonlyArray<ReactNode>
}

export const EntryList = <A,>({
  cellsOf,
  columns,
  empty,
  idOf,
  label,
  read,
  what
}: EntryListProps<A>): ReactElement => {
  const { scope } = useSandbox()
  const { data, error, fetchNextPage, hasNextPage, isFetchingNextPage, refetch } = useInfiniteQuery({
    queryKey: ["@cogni/sandbox-page", scope, what],
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next }, pages) => (pages.length < pagesMax ? next : undefined),
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) > 1 ? false : idleMillis)
  })
  if (data === undefined)
    return error === null ? <Loading what={what} /> : <Problem error={error} onRetry={refetch} />
  const entries = data.pages.flatMap((page) => page.entries)
  return (
    <section className="cs-panel" aria-label={label}>
      <h2>{label}</h2>
      {error === null ? null : <Problem error={error} onRetry={refetch} />}
      {entries.length === 0 ? (
        <Empty>{empty}</Empty>
      ) : (
        <DataTable
          label={label}
          columns={columns}
          rows={entries.map((entry) => ({ id: idOf(entry), cells: cellsOf(entry) }))}
        />
      )}
      {hasNextPage ? (
        <Button
          className="cs-button"
          isPending={isFetchingNextPage}
          aria-label={`More ${what}`}
          onPress={() => void fetchNextPage()}
        >
          {isFetchingNextPage ? "Loading…" : "More"}
        </Button>
      ) : null}
    </section>
  )
}
