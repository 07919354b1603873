/** The agents that can be asked, for menus: one query, shared by whoever uses it. */
import { queryOptions, useQuery, type UseQueryResult } from "@tanstack/react-query"
import { createContext, createElement, type ReactElement, type ReactNode, useContext } from "react"
import { type Agent, type AgentsOptions, type AgentsUnavailable, list } from "./AgentsClient.ts"

/** A catalog changes with the server's version, and hardly else. */
const staleMillis = 60_000

/** How often it is asked again before a failure is shown. */
const retriesMax = 2

const Options = createContext<AgentsOptions>({})

/** Says, for all below it, where the server is. */
export const AgentsProvider = ({
  children,
  options
}: {
  readonly options: AgentsOptions
  readonly children?: ReactNode
}): ReactElement => createElement(Options.Provider, { value: options }, children)

/** The query itself, to prefetch it or to use it otherwise; two servers are two queries. */
export const agentsQuery = (options: AgentsOptions = {}) =>
  queryOptions<ReadonlyArray<Agent>, AgentsUnavailable>({
    queryKey: ["@cogni/sandbox-react", "agents", options.baseUrl ?? ""],
    queryFn: ({ signal }) => list(options, signal),
    staleTime: staleMillis,
    retry: (failures, error) => error.isRetryable && failures < retriesMax
  })

/** By name. An answer that is no catalog is an error, never data. */
export const useAgents = (
  options?: AgentsOptions
): UseQueryResult<ReadonlyArray<Agent>, AgentsUnavailable> => {
  const around = useContext(Options)
  return useQuery(agentsQuery({ ...around, ...options }))
}
