/** Flags of the commands for durable runs, and those with which `serve` submits its runs. */
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"
import * as NumberFlag from "./NumberFlag.ts"
import * as Quantity from "./Quantity.ts"

/** Queue of commands that name none. */
export const queueDefault = "cogni-sandbox"

/** Flags of every command that needs a Temporal server: see `TemporalSettings.serverOf`. */
export const temporal = {
  address: Flags.optional(
    "temporal",
    "HOST:PORT",
    "Address of the Temporal server (default COGNI_TEMPORAL_ADDRESS, or 127.0.0.1:7233)"
  ),
  namespace: Flags.optional(
    "namespace",
    "NAME",
    "Namespace of the Temporal server (default COGNI_TEMPORAL_NAMESPACE, or default)"
  ),
  taskQueue: Flags.text("queue", "NAME", "Task queue that all hosts share (default cogni-sandbox)").pipe(
    Flag.withDefault(queueDefault)
  ),
  temporalTls: Flags.toggle(
    "temporal-tls",
    "Encrypt the connection to Temporal. The flags for certificates and for an API key do so too"
  ),
  temporalCaFile: Flags.optionalFile(
    "temporal-ca-file",
    "Certificates of the authorities of the Temporal server, in PEM (default COGNI_TEMPORAL_CA_FILE, or those of the system)"
  ),
  temporalCertFile: Flags.optionalFile(
    "temporal-cert-file",
    "Certificate of this client for the Temporal server, in PEM (default COGNI_TEMPORAL_CERT_FILE, or none)"
  ),
  temporalKeyFile: Flags.optionalFile(
    "temporal-key-file",
    "Private key of that certificate, in PEM, which only its owner can open (default COGNI_TEMPORAL_KEY_FILE, or none)"
  ),
  temporalServerName: Flags.optional(
    "temporal-server-name",
    "NAME",
    "Name in the certificate of the Temporal server (default COGNI_TEMPORAL_SERVER_NAME, or the host of --temporal)"
  ),
  temporalApiKeyFile: Flags.optionalFile(
    "temporal-api-key-file",
    "File that contains only the API key for Temporal, read again each minute (default COGNI_TEMPORAL_API_KEY_FILE, or none)"
  ),
  temporalInsecure: Flags.toggle(
    "temporal-insecure",
    "Allow an address of another machine without TLS: prompts are then sent in the clear"
  )
}

const noSearch = Flags.toggle(
  "no-search",
  "Set no search attributes, for a namespace that does not have them"
)

const limits = {
  wallSecondsMax: Flags.duration("time-limit", "Time limit of everything, such as 3h (default 2h)"),
  placementSecondsMax: Flags.duration(
    "placement-limit",
    "Time to find a host with room, such as 10m (default 1h)"
  )
}

const labels = (description: string) => Flags.several("label", "NAME", description)

const size = (name: string, description: string) =>
  Flags.orUndefined(Flags.parsed(Quantity.parseBytes)(Flags.text(name, "SIZE", description)))

const amount = (name: string, description: string) =>
  Flags.orUndefined(
    NumberFlag.number(name, "number", "a number of processor cores above 0, such as 2 or 0.5", description)
  )

export const worker = {
  name: Flags.text("name", "NAME", "Name of this host, which no other host has, and which stays the same"),
  keeper: Flags.text(
    "keeper",
    "URL",
    "Address of this host's cogni-sandbox serve (default http://127.0.0.1:8787)"
  ).pipe(Flag.withDefault("http://127.0.0.1:8787")),
  tokenFiles: Flags.text(
    "token-file",
    "FILE",
    "File with the token of a grant whose runs this host takes; may be repeated"
  ).pipe(Flag.atLeast(1)),
  runsMax: Flags.count("max-runs", "runs", 8, "Concurrent runs that this host takes (default 8)"),
  cores: amount(
    "cores",
    "Processor cores that runs of this host may ask for (default those of this machine)"
  ),
  memoryBytes: size(
    "memory",
    "Memory that runs of this host may ask for, such as 8g (default that of this machine)"
  ),
  deployment: Flags.optional(
    "deployment",
    "NAME",
    "Deployment in Temporal that versions of workers belong to (default none: workers have no version)"
  ),
  buildId: Flags.optional(
    "build-id",
    "ID",
    "Version of this worker in --deployment (default that of this command)"
  ),
  // The SDK could not tell which free port it has chosen.
  metricsPort: Flags.orUndefined(
    Flags.whole(
      "metrics-port",
      1,
      65_535,
      "Port of this machine for /metrics, as Temporal's SDK has them (default none)"
    )
  ),
  labels: labels("Label of this host, such as gpu or region=eu; may be repeated (default none)"),
  drainSeconds: Flags.duration(
    "drain",
    "Time from SIGTERM in which runs are followed to their end, such as 1h (default none: the next worker follows them)"
  ),
  ...temporal
}

/** The run of `submit` and of `schedule add`. */
const submitted = {
  promptFile: Flags.optionalFile("prompt-file", "Read the prompt from a file; - reads standard input"),
  request: Flags.optionalFile("request", "Read the whole request from a JSON file, instead of a prompt"),
  grant: Flags.text("grant", "ID", "ID of the grant that permits the run, from cogni-sandbox grants list"),
  graph: Flags.text("graph", "ID", "Graph to run (default sandbox:agent)").pipe(
    Flag.withDefault("sandbox:agent")
  ),
  model: Flags.optional("model", "NAME", "Model that the agent asks (default that of the host's server)"),
  repo: Flags.optional("repo", "URL", "Work in a clone of this repository, and push the commits to a branch"),
  base: Flags.optional("base", "BRANCH", "Branch to start from (default the repository's HEAD)"),
  pr: Flags.toggle("pr", "Open a draft pull request for the branch"),
  runtimeSecondsMax: Flags.duration(
    "timeout",
    "Time limit of the agent, such as 10m (default that of the host's server)"
  ),
  callsMax: Flags.count("max-calls", "model calls", 20, "Model calls allowed (default no limit)"),
  costUsdMax: Flags.cost("max-cost", "Cost of model calls allowed, in US dollars (default no limit)"),
  attempts: Flags.count(
    "attempts",
    "attempts",
    2,
    "Attempts allowed if a host is lost and its cost is known (default 1)"
  ),
  ...limits,
  cores: amount("cores", "Processor cores that the host must have free (default no condition)"),
  memoryBytes: size("memory", "Memory that the host must have free, such as 2g (default no condition)"),
  labels: labels("Label that the host must have; may be repeated (default none)"),
  noSearch,
  output: Flags.output,
  ...temporal
}

/** Flags of `serve` in addition to its own. All but the first have an effect only with it. */
export const serve = {
  durable: Flags.toggle(
    "durable",
    "Submit runs to Temporal, whose workers run them, instead of running them here"
  ),
  noSearch,
  ...limits,
  wallSecondsMax: Flags.duration(
    "time-limit",
    "Time limit of a durable run, waiting included, such as 3h (default 2h)"
  ),
  ...temporal
}

export const submit = {
  ...submitted,
  runId: Flags.optional("run-id", "ID", "ID of the run, which was never used (default a new one)"),
  wait: Flags.toggle("wait", "Wait for the end of the run, and exit with its code")
}

export const scheduleAdd = {
  ...submitted,
  cron: Flags.several(
    "cron",
    "TEXT",
    'Times as a cron expression, such as "0 3 * * MON-FRI"; may be repeated. Needs no --every'
  ),
  everySeconds: Flags.duration("every", "Interval instead of --cron, such as 6h"),
  timeZone: Flags.optional("time-zone", "NAME", "Time zone of --cron, such as Europe/Berlin (default UTC)"),
  jitterSecondsMax: Flags.duration("jitter", "Longest random delay of a run, such as 5m (default none)"),
  overlap: Flag.Literals("overlap", ["skip", "queue", "cancel", "allow"]).pipe(
    Flag.withDescription(
      "If the last run is under way: skip the new one, queue one, cancel the last one first, or allow both (default skip)"
    ),
    Flag.withDefault("skip")
  ),
  catchUpSecondsMax: Flags.duration(
    "catch-up",
    "Runs that are late by more than this, because Temporal was down, are left out, such as 1h (default 10m)"
  )
}

export const schedules = { output: Flags.output, ...temporal }

export const schedulePause = {
  note: Flags.optional("note", "TEXT", "Why the schedule is paused (default none)"),
  ...schedules
}
