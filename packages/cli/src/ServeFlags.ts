/** The flags of `serve`, besides those of its pool and of durable runs. */
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"

export const serve = {
  logFormat: Flags.logFormat,
  host: Flags.text("host", "ADDRESS", "Address to listen on (default 127.0.0.1)").pipe(
    Flag.withDefault("127.0.0.1")
  ),
  port: Flags.whole("port", 0, Flags.portMax, "Port to listen on; 0 for any free port (default 8787)").pipe(
    Flag.withDefault(8787)
  ),
  allowRemote: Flags.toggle(
    "allow-remote",
    "Allow addresses that other machines can reach; requires a TLS proxy in front"
  ),
  hostNames: Flags.several(
    "host-name",
    "NAME",
    "Accepted name in the Host header, besides localhost and the address of --host; may be repeated (default none)"
  ),
  trustedProxies: Flags.several(
    "trusted-proxy",
    "ADDRESS",
    "IP address of a proxy whose X-Forwarded-For names the caller; may be repeated (default none)"
  ),
  operatorPort: Flags.orUndefined(
    Flags.whole(
      "operator-port",
      0,
      Flags.portMax,
      "Port for readiness, metrics and the API description; 0 for any free port (default none)"
    )
  ),
  operatorHost: Flags.text(
    "operator-host",
    "ADDRESS",
    "Address of the operator's port (default 127.0.0.1)"
  ).pipe(Flag.withDefault("127.0.0.1")),
  noPage: Flags.toggle("no-page", "Do not serve the web page at /sandbox"),
  traceUrl: Flags.orUndefined(
    Flags.text(
      "trace-url",
      "URL",
      "Viewer of traces that the page links to, with {traceId} in the place of the ID (default none)"
    )
  ),
  shareEvents: Flags.toggle(
    "share-events",
    "Keep the events of runs in the run database too, for serve --durable on other hosts"
  ),
  auditBodies: Flags.toggle(
    "audit-bodies",
    "Keep prompts and answers, which grants of the run's account can read"
  ),
  demo: Flags.toggle("demo", "Use the embedded demo upstream; no model is asked"),
  model: Flags.modelNamed("Model for requests that name none (default COGNI_LLM_MODEL)"),
  offeredModels: Flags.several(
    "offer-model",
    "PATTERN",
    "Additional model for grants that name none; may be repeated (default only the server's model)"
  ),
  callsMax: Flags.count("max-calls", "model calls", 20, "Model calls allowed per run (default no limit)"),
  inputTokensMax: Flags.count(
    "max-input-tokens",
    "tokens",
    200000,
    "Input tokens allowed per run (default no limit)"
  ),
  outputTokensMax: Flags.count(
    "max-output-tokens",
    "tokens",
    20000,
    "Output tokens allowed per run (default no limit)"
  ),
  costUsdMax: Flags.cost("max-cost", "Cost of model calls allowed per run, in US dollars (default no limit)"),
  canaries: Flags.run.canaries,
  proxy: Flags.run.proxy,
  approvalWaitSecondsMax: Flags.duration(
    "approval-wait",
    "Time that a tool call waits for an approval, such as 10m, at most 1h (default 3m)"
  ),
  hostRepositories: Flags.toggle(
    "host-repositories",
    "Allow runs to work in repositories of this host, by path or over its loopback"
  ),
  bodyBytesMax: Flags.size("body-limit", "Size of a request body allowed, such as 20m (default 12m)"),
  runsMax: Flags.count("max-runs", "runs", 8, "Concurrent runs allowed in this server (default 32)"),
  runsPerGrantMax: Flags.count(
    "max-runs-per-grant",
    "runs",
    8,
    "Concurrent runs allowed per grant (default 8)"
  ),
  runsPerMinutePerGrantMax: Flags.count(
    "runs-per-minute",
    "runs",
    60,
    "Runs per minute allowed per grant (default 60)"
  ),
  unknownRequestsPerMinuteMax: Flags.count(
    "unknown-requests-per-minute",
    "requests",
    600,
    "Requests per minute allowed from one address with tokens not seen before (default 600)"
  ),
  requestsPerMinutePerGrantMax: Flags.count(
    "requests-per-minute",
    "requests",
    6000,
    "Requests per minute allowed per grant (default 6000)"
  ),
  connectionsMax: Flags.count(
    "max-connections",
    "connections",
    512,
    "Open connections allowed (default 512)"
  ),
  drainSecondsMax: Flags.grace(
    "drain",
    "Time from SIGTERM until active runs are cancelled, such as 10s (default 30s)"
  ),
  reconcileSeconds: Flags.grace(
    "reconcile-every",
    "Time between comparisons of the ledger with the upstream's rows, such as 5m; 0s for none (default 1m)"
  )
}
