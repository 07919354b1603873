/** The server that the components below ask, and where their links lead. */
"use client"

import { AgentsProvider } from "@cogni/sandbox-react/Agents"
import {
  createContext,
  type ReactElement,
  type ReactNode,
  useContext,
  useMemo,
  useSyncExternalStore
} from "react"
import * as RunsClient from "./RunsClient.ts"

interface SandboxProviderProps {
  /** Address of the server or of your own backend, which adds the grant's token. Stable between renders. */
  readonly options?: RunsClient.ApiOptions
  /** URL of a run's page (default: no links). */
  readonly hrefOfRun?: (runId: string) => string
  /** Whether buttons are shown that change something. Defaults to true; the server decides. */
  readonly mayWrite?: boolean
  readonly children?: ReactNode
}

interface Value {
  readonly client: RunsClient.RunsClient
  /** Identifies the server in the keys of queries. */
  readonly scope: string
  readonly hrefOfRun: ((runId: string) => string) | undefined
  readonly mayWrite: boolean
}

const noOptions: RunsClient.ApiOptions = {}

const Context = createContext<Value>({
  client: RunsClient.make(noOptions),
  scope: "",
  hrefOfRun: undefined,
  mayWrite: true
})

export const SandboxProvider = ({
  children,
  hrefOfRun,
  mayWrite = true,
  options = noOptions
}: SandboxProviderProps): ReactElement => {
  const value = useMemo(
    () => ({ client: RunsClient.make(options), scope: options.baseUrl ?? "", hrefOfRun, mayWrite }),
    [options, hrefOfRun, mayWrite]
  )
  return (
    <Context.Provider value={value}>
      <AgentsProvider options={options}>{children}</AgentsProvider>
    </Context.Provider>
  )
}

export const useSandbox = (): Value => useContext(Context)

/** Shows what is known of the same run until the next answer. Its ID is the fourth part of a key. */
export const keepOfRun =
  (runId: string | undefined) =>
  <T,>(previous: T | undefined, query?: { readonly queryKey: ReadonlyArray<unknown> }): T | undefined =>
    query?.queryKey[3] === runId ? previous : undefined

const tickMillis = 1000

/** One clock for all that shows the time: a timer in each row of a list would render the rows one by one. */
const ticking = new Set<() => void>()
let timer: ReturnType<typeof setInterval> | undefined

const tick = (changed: () => void) => {
  ticking.add(changed)
  timer ??= setInterval(() => {
    for (const one of ticking) one()
  }, tickMillis)
  return () => {
    ticking.delete(changed)
    if (ticking.size > 0) return
    clearInterval(timer)
    timer = undefined
  }
}

const still = () => () => {}

/** The time does not change within a second, so that all of one rendering show the same. */
const thisSecond = () => Math.floor(Date.now() / tickMillis) * tickMillis

/** Returns the time, again each second while it matters. */
export const useNow = (isTicking: boolean): number =>
  useSyncExternalStore(isTicking ? tick : still, thisSecond, thisSecond)
