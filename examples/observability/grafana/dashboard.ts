/**
 * The Grafana dashboard of Cogni Sandbox. After a change, write the file that Grafana reads:
 *
 * `node examples/observability/grafana/dashboard.ts >examples/observability/grafana/dashboards/cogni-sandbox.json`
 */
import {
  type AnnotationQuery,
  type Dashboard,
  DashboardCursorSync,
  type VariableModel,
  VariableRefresh
} from "@grafana/schema"
import { logs, placed, prometheus, series, stat } from "./panels.ts"

const scope = 'job=~"$job",instance=~"$instance"'

/** Series of the chosen services, with more matchers if any. */
const of = (metric: string, matchers = ""): string =>
  `${metric}{${scope}${matchers === "" ? "" : `,${matchers}`}}`

const rate = (metric: string, by: string, matchers = ""): string =>
  `sum by (${by}) (rate(${of(metric, matchers)}[$__rate_interval]))`

/** Events in each interval of the graph. */
const events = (metric: string, by: string, matchers = ""): string =>
  `sum by (${by}) (increase(${of(metric, matchers)}[$__rate_interval]))`

/** Events in the range of the dashboard; 0 before the first. */
const total = (metric: string, matchers = ""): string =>
  `sum(increase(${of(metric, matchers)}[$__range])) or vector(0)`

const quantile = (q: number, metric: string, by = ""): string =>
  `histogram_quantile(${q}, sum by (${by === "" ? "le" : `le, ${by}`}) (rate(${of(`${metric}_bucket`)}[$__rate_interval])))`

const overview = [
  stat(
    "Active runs",
    "Runs of servers that are under way now.",
    "short",
    `sum(${of("sandbox_runs_active")})`
  ),
  stat(
    "Used capacity",
    "Active runs as a part of --max-runs. At 100 %, requests are refused with 503.",
    "percentunit",
    `sum(${of("sandbox_runs_active")}) / sum(${of("sandbox_runs_active_max")})`,
    { warning: 0.75, critical: 0.9 }
  ),
  stat("Open sandboxes", "Sandboxes that exist now.", "short", `sum(${of("sandbox_open")})`),
  stat("Runs ended", "Runs that ended in this range.", "short", total("sandbox_runs_total")),
  stat(
    "Cost",
    "Known or estimated cost of model calls in this range.",
    "currencyUSD",
    total("sandbox_model_cost_usd_total")
  ),
  stat(
    "Canaries detected",
    "Fake secrets that were seen leaving a sandbox in this range.",
    "short",
    total("sandbox_canaries_detected_total"),
    { critical: 1 }
  )
]

const runs = [
  series("Runs ended, by status", "Ended runs per second.", "reqps", [
    [rate("sandbox_runs_total", "status"), "{{status}}"]
  ]),
  series("Runs started, by agent", "Started runs per second.", "reqps", [
    [rate("sandbox_runs_started_total", "agent"), "{{agent}}"]
  ]),
  series("Active runs and their limit", "Nothing waits: a run beyond the limit is refused.", "short", [
    [`sum(${of("sandbox_runs_active")})`, "active"],
    [`sum(${of("sandbox_runs_active_max")})`, "limit"]
  ]),
  series("Duration of runs", "From the start to the end of the sandbox.", "s", [
    [quantile(0.5, "sandbox_run_duration_seconds", "agent"), "{{agent}} p50"],
    [quantile(0.95, "sandbox_run_duration_seconds", "agent"), "{{agent}} p95"]
  ]),
  series("Duration of phases, p95", "Phases overlap.", "s", [
    [quantile(0.95, "sandbox_run_phase_duration_seconds", "phase"), "{{phase}}"]
  ]),
  series("Requests for runs, by status", "Ended and refused requests of callers, per second.", "reqps", [
    [rate("sandbox_graph_runs_total", "status"), "{{status}}"]
  ]),
  series("Duration of requests for runs, p95", "As a caller sees them.", "s", [
    [quantile(0.95, "sandbox_graph_run_duration_seconds", "agent"), "{{agent}}"]
  ]),
  series(
    "Refused specs, by reason",
    "Specs that were invalid, so that no run began.",
    "short",
    [[events("sandbox_runs_refused_total", "reason"), "{{reason}}"]],
    "bars"
  )
]

const pool = [
  series("Runs that asked the pool", "By result, per second.", "reqps", [
    [rate("sandbox_pool_claims_total", "result"), "{{result}}"]
  ]),
  series("Runs that no waiting sandbox can serve", "By reason, per second.", "reqps", [
    [rate("sandbox_pool_cold_total", "reason"), "{{reason}}"]
  ]),
  series("Waiting sandboxes", "Sandboxes that wait for a run.", "short", [
    [`sum(${of("sandbox_pool_waiting")})`, "waiting"]
  ]),
  series("Waiting sandboxes started and dropped", "Per second.", "reqps", [
    [rate("sandbox_pool_started_total", "result"), "started: {{result}}"],
    [rate("sandbox_pool_dropped_total", "reason"), "dropped: {{reason}}"]
  ]),
  series("Time until the pool answers", "From a run's question to the answer.", "s", [
    [quantile(0.5, "sandbox_pool_wait_seconds"), "p50"],
    [quantile(0.99, "sandbox_pool_wait_seconds"), "p99"]
  ]),
  series("Age of waiting sandboxes", "When a run gets them.", "s", [
    [quantile(0.5, "sandbox_pool_age_seconds"), "p50"]
  ]),
  series("Cold runs that asked for a ready network", "By result, per second.", "reqps", [
    [rate("sandbox_network_claims_total", "result"), "{{result}}"]
  ]),
  series("Ready networks", "Networks that are ready for a cold run.", "short", [
    [`sum(${of("sandbox_networks_ready")})`, "ready"]
  ])
]

const threads = [
  series("Files of threads", "Bytes at the last turn or sweep, on each host.", "short", [
    [of("sandbox_thread_files_bytes"), "{{instance}}"]
  ])
]

const models = [
  series("Model calls, by outcome", "Requests of agents to their model, per second.", "reqps", [
    [rate("sandbox_model_calls_total", "outcome"), "{{outcome}}"]
  ]),
  series("Duration of model calls", "From the request to the end of the answer.", "s", [
    [quantile(0.5, "sandbox_model_call_duration_seconds"), "p50"],
    [quantile(0.95, "sandbox_model_call_duration_seconds"), "p95"]
  ]),
  series("Time that the gateway added", "Before a call was sent upstream.", "s", [
    [quantile(0.5, "sandbox_gateway_added_seconds"), "p50"],
    [quantile(0.99, "sandbox_gateway_added_seconds"), "p99"]
  ]),
  series("Tokens, by type", "Tokens per second.", "short", [
    [rate("sandbox_model_tokens_total", "type"), "{{type}}"]
  ]),
  series("Cost per hour", "At the current rate.", "currencyUSD", [
    [`3600 * sum(rate(${of("sandbox_model_cost_usd_total")}[$__rate_interval]))`, "cost"]
  ]),
  series("Budget left at the end of runs", "Part of a budget that most runs leave at least.", "percentunit", [
    [quantile(0.1, "sandbox_run_budget_left_ratio", "budget"), "{{budget}} p10"],
    [quantile(0.5, "sandbox_run_budget_left_ratio", "budget"), "{{budget}} p50"]
  ]),
  series(
    "Spent budgets",
    "Runs that spent a budget, or whose subagents spent their share.",
    "short",
    [
      [events("sandbox_budgets_exhausted_total", "budget"), "{{budget}}"],
      [events("sandbox_subagent_shares_exhausted_total", "budget"), "{{budget}} of subagents"]
    ],
    "bars"
  )
]

const security = [
  series(
    "Canaries, by channel",
    "Where fake secrets were seen leaving a sandbox.",
    "short",
    [[events("sandbox_canaries_detected_total", "channel"), "{{channel}}"]],
    "bars"
  ),
  series(
    "Approvals of tool calls, by decision",
    "How calls that needed an approval ended. Expired: there was no decision in time.",
    "short",
    [[events("sandbox_tool_approvals_total", "decision"), "{{decision}}"]],
    "bars"
  ),
  series(
    "Leftovers of dead processes",
    "Containers, volumes, networks and runs that were found, and whether they were removed.",
    "short",
    [[events("sandbox_leftovers_reaped_total", "kind, result"), "{{kind}} {{result}}"]],
    "bars"
  )
]

const server = [
  series("HTTP answers, by status", "Answers per second.", "reqps", [
    [rate("sandbox_http_requests_total", "status"), "{{status}}"]
  ]),
  series("HTTP requests, by route", "Requests per second.", "reqps", [
    [rate("sandbox_http_requests_total", "method, route"), "{{method}} {{route}}"]
  ]),
  series("Readers of events", "Connections that follow a run.", "short", [
    [`sum(${of("sandbox_run_readers")})`, "readers"]
  ]),
  series("Event-loop lag", "Delay of the process, by quantile of the last 5 seconds.", "s", [
    [`max by (quantile) (${of("sandbox_event_loop_lag_seconds")})`, "{{quantile}}"]
  ])
]

const billing = [
  series(
    "Verdicts, by state",
    "Calls that were compared with the rows of the upstream.",
    "short",
    [[events("sandbox_reconciled_calls_total", "state, reason"), "{{state}} {{reason}}"]],
    "bars"
  ),
  series(
    "Passes, by outcome",
    "Passes of reconciliation.",
    "short",
    [[events("sandbox_reconciliations_total", "outcome"), "{{outcome}}"]],
    "bars"
  ),
  series("Calls without a verdict", "Their row may still come, or could not be read.", "short", [
    [`max(${of("sandbox_reconciliation_waiting_calls")})`, "calls"]
  ]),
  series("Age of the oldest of them", "An hour is too long.", "s", [
    [`max(${of("sandbox_reconciliation_oldest_seconds")})`, "oldest"]
  ])
]

const ends = logs(
  "Ends of runs",
  "Open a line to see its run, account and session, and to go to its trace.",
  '{service_name="cogni-sandbox"} | sandbox_run_state="ended"'
)

const chosen = (name: string, label: string, filter: string): VariableModel => {
  const query = `label_values(sandbox_event_loop_lag_seconds${filter}, ${name})`
  return {
    name,
    label,
    type: "query",
    datasource: prometheus,
    query: { query, refId: name },
    refresh: VariableRefresh.onTimeRangeChanged,
    includeAll: true,
    multi: true,
    allValue: ".*",
    current: { text: "All", value: "$__all" }
  }
}

/** Firing alerts, as marks in every graph. Prometheus's fields are not in the schema of annotations. */
const alerts: AnnotationQuery & { readonly expr: string; readonly titleFormat: string } = {
  name: "Alerts",
  datasource: prometheus,
  enable: true,
  iconColor: "red",
  expr: 'ALERTS{alertname=~"Sandbox.+",alertstate="firing"}',
  titleFormat: "{{alertname}}"
}

export const dashboard: Dashboard = {
  uid: "cogni-sandbox",
  title: "Cogni Sandbox",
  description: "Runs, model calls, cost and safety of Cogni Sandbox.",
  tags: ["cogni-sandbox"],
  schemaVersion: 42,
  editable: true,
  graphTooltip: DashboardCursorSync.Crosshair,
  refresh: "30s",
  time: { from: "now-6h", to: "now" },
  timezone: "browser",
  templating: {
    list: [
      { name: "datasource", label: "Metrics", type: "datasource", query: "prometheus" },
      { name: "logs", label: "Logs", type: "datasource", query: "loki" },
      chosen("job", "Job", ""),
      chosen("instance", "Instance", '{job=~"$job"}')
    ]
  },
  annotations: { list: [alerts] },
  panels: placed([
    ["Overview", overview],
    ["Runs", runs],
    ["Pool", pool],
    ["Threads", threads],
    ["Models", models],
    ["Security", security],
    ["Server", server],
    ["Billing", billing],
    ["Logs", [ends]]
  ])
}

if (import.meta.main) process.stdout.write(`${JSON.stringify(dashboard, undefined, 2)}\n`)
