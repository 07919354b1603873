/**
 * Metrics of the server, with Prometheus names, beside those that the library counts for each run. Label values come
 * from small sets: an agent of the catalog, a code, a route template of the API.
 */
import * as Exemplars from "@cogni/sandbox-core/Exemplars"
import type { GraphFinal } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import { Effect, Metric } from "effect"

const runsTotal = Exemplars.traced(
  Metric.counter("sandbox_graph_runs_total", {
    description: "Ended runs of graphs, by agent and status; refused requests too",
    incremental: true
  })
)

const runDuration = Exemplars.traced(
  Metric.histogram("sandbox_graph_run_duration_seconds", {
    description: "Duration of runs of graphs, from the request to the end of the sandbox",
    boundaries: [0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600]
  })
)

const runsActive = Metric.gauge("sandbox_runs_active", { description: "Runs under way in this process" })

const runsActiveMax = Metric.gauge("sandbox_runs_active_max", {
  description:
    "Runs that this process may have under way; one more is refused, because nothing waits in a queue"
})

const readers = Metric.gauge("sandbox_run_readers", {
  description: "Readers that follow the events of runs of this process"
})

const requestsTotal = Metric.counter("sandbox_http_requests_total", {
  description: "Answered requests, by method, route and status",
  incremental: true
})

/** A run that has ended. */
export interface EndedRun {
  readonly graphId: string
  readonly final: Pick<GraphFinal, "error" | "ok">
  readonly durationMs: number
}

/** Counts an ended run. Agents that are not in the catalog share one label, because callers can invent names. */
export const runEnded = (
  known: ReadonlySet<string>,
  { durationMs, final, graphId }: EndedRun
): Effect.Effect<void> => {
  const agent = known.has(graphId) ? graphId : "unknown"
  const status = final.ok ? "ok" : (final.error ?? "internal")
  return Effect.andThen(
    Metric.update(Metric.withAttributes(runsTotal, { agent, status }), 1),
    Metric.update(Metric.withAttributes(runDuration, { agent }), durationMs / 1000)
  )
}

export const activeRuns = (count: number): Effect.Effect<void> => Metric.update(runsActive, count)

/** States the limit of active runs. A gauge that does not exist yet is no 0 for a dashboard or an alert. */
export const serving = (runsMax: number): Effect.Effect<void> =>
  Effect.all([Metric.update(runsActiveMax, runsMax), activeRuns(0), Metric.modify(readers, 0)], {
    discard: true
  })

/** Changes the number of readers. */
export const readersChanged = (change: 1 | -1): Effect.Effect<void> => Metric.modify(readers, change)

const routes: ReadonlyArray<readonly [pattern: RegExp, route: string]> = [
  [/^\/api\/v1\/ai\/agents$/u, "/api/v1/ai/agents"],
  [/^\/api\/v1\/ai\/chat$/u, "/api/v1/ai/chat"],
  [/^\/api\/v1\/runs$/u, "/api/v1/runs"],
  [/^\/api\/v1\/runs\/[^/]+$/u, "/api/v1/runs/{id}"],
  ...["events", "stdout", "stderr", "calls", "tools", "audit", "audit/entries", "patch", "relay/retry"].map(
    (part) => [new RegExp(`^/api/v1/runs/[^/]+/${part}$`, "u"), `/api/v1/runs/{id}/${part}`] as const
  ),
  [/^\/api\/v1\/runs\/[^/]+\/calls\/[^/]+\/request$/u, "/api/v1/runs/{id}/calls/{callId}/request"],
  [/^\/api\/v1\/runs\/[^/]+\/calls\/[^/]+\/answer$/u, "/api/v1/runs/{id}/calls/{callId}/answer"],
  [/^\/api\/v1\/sign-in$/u, "/api/v1/sign-in"],
  [/^\/api\/v1\/host$/u, "/api/v1/host"],
  [/^\/sandbox(?:\/.*)?$/u, "/sandbox"],
  [/^\/health(?:\/ready)?$/u, "/health"],
  [/^\/metrics$/u, "/metrics"]
]

const methods = new Set(["GET", "HEAD", "POST", "DELETE", "OPTIONS"])

export const methodOf = (method: string): string => (methods.has(method) ? method : "other")

export const routeOf = (url: string): string => {
  const [path = ""] = url.split("?")
  return routes.find(([pattern]) => pattern.test(path))?.[1] ?? "other"
}

export const requestAnswered = (method: string, url: string, status: number): Effect.Effect<void> =>
  Metric.update(
    Metric.withAttributes(requestsTotal, {
      method: methodOf(method),
      route: routeOf(url),
      status: String(status)
    }),
    1
  )
