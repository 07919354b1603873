/** The catalog of agents as a React hook, for menus. All users of the hook share one query. */
"use client"

import { queryOptions, useQuery, type UseQueryResult } from "@tanstack/react-query"
import { createContext, createElement, type ReactElement, type ReactNode, useContext } from "react"
import { type Agent, type AgentsOptions, type AgentsUnavailable, list } from "./AgentsClient.ts"

/** A catalog changes with the server's version, and rarely otherwise. */
const staleMillis = 60_000

/** Number of retries before a failure is shown. */
const retriesMax = 2

const Options = createContext<AgentsOptions>({})

/** Provides the server's options to all components below it. */
export const AgentsProvider = ({
  children,
  options
}: {
  readonly options: AgentsOptions
  readonly children?: ReactNode
}): ReactElement => createElement(Options.Provider, { value: options }, children)

/** The query itself, for prefetching or other uses. Each server has its own query. */
export const agentsQuery = (options: AgentsOptions = {}) =>
  queryOptions<ReadonlyArray<Agent>, AgentsUnavailable>({
    queryKey: ["@cogni/sandbox-react", "agents", options.baseUrl ?? ""],
    queryFn: ({ signal }) => list(options, signal),
    staleTime: staleMillis,
    retry: (failures, error) => error.isRetryable && failures < retriesMax
  })

/** Returns the agents, sorted by name. An invalid catalog is an error, never data. */
export const useAgents = (
  options?: AgentsOptions
): UseQueryResult<ReadonlyArray<Agent>, AgentsUnavailable> => {
  const around = useContext(Options)
  return useQuery(agentsQuery({ ...around, ...options }))
}
