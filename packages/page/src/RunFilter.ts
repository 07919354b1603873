/** The filter of a list of runs, as the query of a URL. Pure. An invalid value in a URL is ignored. */
import { RunState } from "@cogni/sandbox-core/RunFacts"

/** Values by name. Statuses and reasons are separated by commas. */
export interface RunFilter {
  readonly status?: string | undefined
  readonly reason?: string | undefined
  readonly agent?: string | undefined
  readonly model?: string | undefined
  readonly repository?: string | undefined
  readonly session?: string | undefined
  /** One of {@link periods}. */
  readonly since?: string | undefined
  readonly minCostUsd?: string | undefined
}

export const statuses = ["starting", ...RunState.literals] as const

/** Choices of a status: those that people look for together. */
export const statusChoices: ReadonlyArray<readonly [value: string, label: string]> = [
  ["starting,running", "Under way"],
  ["succeeded", "Succeeded"],
  ["failed", "Failed"],
  ["interrupted", "Interrupted"],
  ["abandoned", "Abandoned"],
  ["closed", "Closed"]
]

/** Choices of a period, in seconds. */
export const periods: ReadonlyArray<readonly [value: string, label: string, seconds: number]> = [
  ["1h", "Last hour", 3600],
  ["24h", "Last 24 hours", 86_400],
  ["7d", "Last 7 days", 604_800],
  ["30d", "Last 30 days", 2_592_000]
]

const names = ["status", "reason", "agent", "model", "repository", "session", "since", "minCostUsd"] as const

/** Longest value that the server accepts. */
const charsMax = 200

const isKnown = (name: (typeof names)[number], value: string): boolean =>
  name === "status"
    ? value.split(",").every((one) => statuses.some((known) => known === one))
    : name === "since"
      ? periods.some(([known]) => known === value)
      : name === "minCostUsd"
        ? /^\d{1,6}(?:\.\d{1,8})?$/u.test(value)
        : true

/** Reads a filter from the query of a URL. */
export const parse = (search: Readonly<Record<string, unknown>>): RunFilter =>
  Object.fromEntries(
    names.flatMap((name) => {
      const value = search[name]
      return typeof value === "string" && value !== "" && value.length <= charsMax && isKnown(name, value)
        ? [[name, value]]
        : []
    })
  )

/** Returns whether a filter selects all runs. */
export const isEmpty = (filter: RunFilter): boolean => names.every((name) => filter[name] === undefined)

/** Formats a filter as the query of a request. A period begins at a full minute, so that requests are equal. */
export const queryOf = ({ since, ...rest }: RunFilter, nowMillis: number): URLSearchParams => {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(rest)) if (value !== undefined) query.set(name, value)
  const seconds = periods.find(([known]) => known === since)?.[2]
  if (seconds !== undefined) {
    query.set("from", new Date(Math.floor(nowMillis / 60_000) * 60_000 - seconds * 1000).toISOString())
  }
  return query
}
