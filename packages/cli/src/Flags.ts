/** The flags, and how their values are read: strictly, each with what was expected when it is not that. */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { depthMax } from "@cogni/sandbox-git-relay/GitRelay"
import { Effect, Option, Result } from "effect"
import { Argument, CliError, Flag } from "effect/cli"
import { resolve } from "node:path"
import * as Quantity from "./Quantity.ts"

/** What was typed for some flags; those that may be left out are absent then. */
export type Typed<F> = {
  readonly [K in keyof F as undefined extends Value<F[K]> ? never : K]: Value<F[K]>
} & { readonly [K in keyof F as undefined extends Value<F[K]> ? K : never]?: Value<F[K]> }

type Value<F> = F extends Flag.Flag<infer A> ? A : F extends Argument.Argument<infer A> ? A : never

/** The values of these flags, as they were typed. */
export const given = <A extends object>(typed: { readonly [K in keyof A]: A[K] | undefined }): Partial<A> =>
  Object.fromEntries(Object.entries(typed).filter(([, value]) => value !== undefined)) as Partial<A>

const parsed =
  <A>(parse: (text: string) => Result.Result<A, string>) =>
  (flag: Flag.Flag<string>): Flag.Flag<A> =>
    Flag.mapTryCatch(
      flag,
      (text) => {
        const result = parse(text)
        if (result._tag === "Failure") throw new Error(result.failure)
        return result.success
      },
      messageOf
    )

const orUndefined = <A>(flag: Flag.Flag<A>): Flag.Flag<A | undefined> =>
  Flag.map(Flag.optional(flag), Option.getOrUndefined)

const text = (name: string, metavar: string, description: string) =>
  Flag.String(name).pipe(Flag.withMetavar(metavar), Flag.withDescription(description))

/** Refuses the empty text that an unset variable of a script becomes: as a path, it would be the current directory. */
const filled = (name: string, remedy: string) => (typed: string) =>
  typed === ""
    ? Effect.fail(new CliError.ValidationError({ message: `${name} is empty. ${remedy}` }))
    : Effect.succeed(typed)

const portMax = 65_535

const directoryRemedy = "Name a directory (. for this one), or leave it out"
const fileRemedy = "Name a file, or leave it out"

/** A directory by its absolute path. */
const directory = (name: string, description: string) =>
  text(name, "DIR", description).pipe(
    Flag.mapEffect(filled(`--${name}`, directoryRemedy)),
    Flag.map((path) => resolve(path))
  )

/** A file, as it was typed. */
const file = (name: string, description: string) =>
  text(name, "FILE", description).pipe(Flag.mapEffect(filled(`--${name}`, fileRemedy)))

/** The words for an agent; - is standard input. */
export const prompt = Argument.String("prompt").pipe(
  Argument.optional,
  Argument.map((typed) => Option.getOrUndefined(typed))
)

/** The file of a configuration. */
export const configuration = Argument.String("file").pipe(
  Argument.withDescription("Configuration file, in YAML"),
  Argument.mapEffect(filled("FILE", "Name the configuration, such as cogni.yaml"))
)

const quantity = <A>(
  name: string,
  metavar: string,
  description: string,
  parse: (text: string) => Result.Result<A, string>
) => orUndefined(parsed(parse)(text(name, metavar, description)))

const size = (name: string, description: string) => quantity(name, "SIZE", description, Quantity.parseBytes)

const count = (name: string, description: string) =>
  orUndefined(Flag.Int(name).pipe(Flag.withDescription(description)))

const cost = (name: string, description: string) =>
  orUndefined(Flag.Finite(name).pipe(Flag.withMetavar("USD"), Flag.withDescription(description)))

const optional = (name: string, metavar: string, description: string) =>
  orUndefined(text(name, metavar, description))

const several = (name: string, metavar: string, description: string) =>
  text(name, metavar, description).pipe(Flag.atLeast(0))

const modelNamed = (description: string) =>
  orUndefined(text("model", "NAME", description).pipe(Flag.withAlias("m")))

/** A whole number within bounds. */
const whole = (name: string, minimum: number, maximum: number, description: string) =>
  Flag.Int(name).pipe(
    Flag.withDescription(description),
    Flag.filter(
      (typed) => typed >= minimum && typed <= maximum,
      () => `a whole number from ${minimum} to ${maximum}`
    )
  )

const duration = (name: string, description: string) =>
  quantity(name, "DURATION", description, Quantity.parseSeconds)

/** Off unless it is there. */
export const toggle = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withoutNegation, Flag.withDescription(description), Flag.withDefault(false))

export const output = Flag.Literals("output", ["text", "json"]).pipe(
  Flag.withAlias("o"),
  Flag.withDescription("text for people, json for scripts"),
  Flag.withDefault("text")
)
/** Who says something, and where. */
export const sender = {
  channel: text("channel", "NAME", "Channel of a message, such as telegram"),
  sender: text(
    "sender",
    "ID",
    "Sender of a message, as the channel names it (--sender=-100 for an ID that begins with -)"
  )
}
export const quiet = toggle("quiet", "No progress on standard error").pipe(Flag.withAlias("q"))
export const model = modelNamed("Which model the agent asks (COGNI_LLM_MODEL)")

/** An output file, absolute. Elsewhere - is a stream, so here it is no file. */
const patch = (description: string) =>
  orUndefined(
    parsed((path) =>
      path === "-"
        ? Result.fail("a file (/dev/stdout for standard output, ./- for a file of that name)")
        : Result.succeed(resolve(path))
    )(file("patch", description))
  )

const patchFile = patch("Write the commits into a file instead of pushing them")
const pullRequest = toggle("pr", "Open a pull request for the branch, as a draft")
const branch = optional("branch", "NAME", "Branch that gets the commits, below sandbox/ (the run's id)")

/** About a repository. */
const repo = {
  repo: orUndefined(
    text(
      "repo",
      "URL|PATH",
      "Work in a clone of this repository, and push what is committed to a branch"
    ).pipe(Flag.mapEffect(filled("--repo", "Name a repository (. for the one here), or leave it out")))
  ),
  base: optional("base", "BRANCH", "Branch to start from (the repository's HEAD)"),
  branch,
  depth: orUndefined(whole("depth", 1, depthMax, "Commits of history the agent sees (1)")),
  push: toggle("push", "Push the branch (the default without --patch)"),
  pr: pullRequest,
  patch: patchFile,
  noCommit: toggle("no-commit", "Do not commit changes that the agent left uncommitted"),
  commitMessage: optional("commit-message", "TEXT", "Message of the commit of such changes")
}

/** Flags of `relay retry`. */
export const retry = { branch, pr: pullRequest, patch: patchFile, output, quiet }

/** Flags that only `run` has. */
export const run = {
  agent: text("agent", "ID", "Agent that works on the prompt").pipe(Flag.withDefault("agent")),
  personality: optional("personality", "NAME", "Personality of the agent, if it has any"),
  workspace: orUndefined(
    directory("workspace", "Directory the agent may change, at /workspace (a fresh one)").pipe(
      Flag.withAlias("w")
    )
  ),
  ...repo,
  model,
  promptFile: orUndefined(file("prompt-file", "Read the prompt from a file")),
  timeoutSeconds: duration("timeout", "Wall clock, such as 90s or 2m (10m)"),
  memoryBytes: size("memory", "Memory, such as 512m or 1g (1g)"),
  cpus: orUndefined(Flag.Finite("cpus").pipe(Flag.withDescription("Processors (2)"))),
  processes: count("processes", "Processes and threads at one time (256)"),
  diskBytes: size("disk", "Bytes a run may add to its workspace (2g)"),
  outputBytes: size("output-limit", "Bytes a run may write to stdout and stderr (64m)"),
  graceSeconds: quantity("grace", "DURATION", "Time from SIGTERM to SIGKILL (5s)", Quantity.parseGrace),
  env: parsed(Quantity.parseAssignment)(
    text("env", "NAME=VALUE", "Variable of the sandbox; may be repeated")
  ).pipe(Flag.withAlias("e"), Flag.atLeast(0)),
  image: optional("image", "IMAGE", "Image to run, built on the runtime image (COGNI_RUNTIME_IMAGE)"),
  runId: optional("run-id", "ID", "ID of the run, not used before (generated)"),
  proxy: Flag.Literals("proxy", ["gateway", "gateway-directory", "gateway-container", "nginx"]).pipe(
    Flag.withDescription(
      "Proxy between the run and the model; the gateway decides by itself whether it needs a container"
    ),
    Flag.withDefault("gateway")
  ),
  callsMax: count("max-calls", "Model calls allowed (no limit)"),
  inputTokensMax: count("max-input-tokens", "Input tokens allowed, all calls together (no limit)"),
  outputTokensMax: count("max-output-tokens", "Output tokens allowed, all calls together (no limit)"),
  costUsdMax: cost(
    "max-cost",
    "Cost of model calls allowed, in US dollars; needs an upstream that reports it, or COGNI_LLM_PRICES (no limit)"
  ),
  stopWhenSpent: toggle(
    "stop-when-spent",
    "End the run when a budget is spent, instead of only refusing its calls"
  ),
  tools: several(
    "tool",
    "NAME",
    "Host tool that the agent may call, such as core__get_current_time; may be repeated (none)"
  ),
  canaries: Flag.Literals("canaries", ["off", "warn", "stop"]).pipe(
    Flag.withDescription("Canary tokens: plant fake secrets, and detect them leaving the sandbox"),
    Flag.withDefault("off")
  ),
  strict: toggle(
    "strict",
    "Refuse requests with fields the gateway does not know, instead of leaving them out"
  ),
  auditBodies: toggle("audit-bodies", "Keep request and response bodies in the audit, without secrets"),
  noModel: toggle("no-model", "Run without a model, whatever is configured"),
  demo: toggle("demo", "Ask the embedded demo upstream; no model is asked"),
  output,
  quiet
}

/** Flags of `task`: some it shares with `run`, and its own. */
export const task = {
  workspace: run.workspace,
  model,
  promptFile: run.promptFile,
  stepsMax: orUndefined(whole("steps-max", 1, 10_000, "Model answers allowed (50)")),
  patch: patch("Write the patch to a file outside the workspace, instead of to standard output"),
  timeoutSeconds: duration("timeout", "Wall clock, such as 90s or 2h (30m)"),
  memoryBytes: run.memoryBytes,
  cpus: run.cpus,
  processes: run.processes,
  diskBytes: run.diskBytes,
  image: run.image,
  runId: run.runId,
  callsMax: run.callsMax,
  inputTokensMax: run.inputTokensMax,
  outputTokensMax: run.outputTokensMax,
  costUsdMax: run.costUsdMax,
  canaries: run.canaries,
  demo: run.demo,
  output,
  quiet
}

/** Flags that only `chat` has. */
export const chat = {
  model: modelNamed("Model of agents whose tier has none in the file (COGNI_LLM_MODEL)"),
  hostDirectory: orUndefined(
    directory(
      "host-directory",
      "Directory of this host for agents without a sandbox (such agents are refused)"
    )
  )
}

export const doctorWorkspace = orUndefined(
  directory(
    "workspace",
    "Directory to look at too: sockets, FIFOs and devices that an agent could reach"
  ).pipe(Flag.withAlias("w"))
)

/** Flags that only `mcp` has; it shares the others with `run`. */
export const mcp = {
  workspace: run.workspace,
  image: run.image,
  profile: Flag.Literals("profile", ["minimal", "messaging", "coding", "full"]).pipe(
    Flag.withDescription("Set of tools to offer"),
    Flag.withDefault("coding")
  ),
  allow: several(
    "allow",
    "TOOL",
    "Tool to offer besides those of the profile, such as shell.exec; may be repeated"
  ),
  deny: several("deny", "TOOL", "Tool to leave out, or a group such as process.*; may be repeated"),
  idleSeconds: duration("idle", "Idle time until a sandbox is closed, with --workspace (15m)"),
  timeoutSeconds: duration("timeout", "Time that one sandbox may live, such as 2h (24h)"),
  memoryBytes: run.memoryBytes,
  diskBytes: run.diskBytes,
  cpus: run.cpus,
  processes: run.processes,
  env: run.env
}

/** Flags that only `serve` has. */
export const serve = {
  host: text("host", "ADDRESS", "Address to listen on").pipe(Flag.withDefault("127.0.0.1")),
  port: whole("port", 0, portMax, "Port to listen on; 0 for any that is free").pipe(Flag.withDefault(8787)),
  allowRemote: toggle("allow-remote", "Listen where other machines can connect; put TLS before it"),
  hostNames: several(
    "host-name",
    "NAME",
    "Name in the Host header to answer to, besides localhost and the address of --host; may be repeated"
  ),
  operatorPort: orUndefined(
    whole(
      "operator-port",
      0,
      portMax,
      "Port for readiness, metrics and the API's description; 0 for any (none of them)"
    )
  ),
  operatorHost: text("operator-host", "ADDRESS", "Address of the operator's port").pipe(
    Flag.withDefault("127.0.0.1")
  ),
  demo: toggle("demo", "Ask the embedded demo upstream; no model is asked"),
  model: modelNamed("Model of requests that name none (COGNI_LLM_MODEL)"),
  offeredModels: several(
    "offer-model",
    "PATTERN",
    "Further model for grants that name none themselves; may be repeated (the server's model only)"
  ),
  callsMax: count("max-calls", "Model calls allowed per run (no limit)"),
  outputTokensMax: count("max-output-tokens", "Output tokens allowed per run (no limit)"),
  costUsdMax: cost("max-cost", "Cost of model calls allowed per run, in US dollars (no limit)"),
  hostRepositories: toggle(
    "host-repositories",
    "Also let runs work in repositories of this host, by their path or on its loopback"
  ),
  bodyBytesMax: size("body-limit", "Size allowed for the body of a request (12m)"),
  runsMax: count("max-runs", "Concurrent runs allowed in this server (32)"),
  runsPerGrantMax: count("max-runs-per-grant", "Concurrent runs allowed per grant (8)"),
  runsPerMinutePerGrantMax: count("runs-per-minute", "Runs per minute allowed per grant (60)"),
  unknownRequestsPerMinuteMax: count(
    "unknown-requests-per-minute",
    "Requests per minute with tokens not seen before, from one address (600)"
  ),
  requestsPerMinutePerGrantMax: count("requests-per-minute", "Requests per minute allowed per grant (6000)"),
  connectionsMax: count("max-connections", "Open connections allowed (512)"),
  drainSecondsMax: quantity(
    "drain",
    "DURATION",
    "Time from SIGTERM until runs still under way are cancelled (30s)",
    Quantity.parseGrace
  )
}

/** Flags that only `grants create` has. */
export const grant = {
  user: text("user", "ID", "User that runs are made for"),
  account: text("account", "ID", "Account that is charged for them"),
  graphs: several("graph", "ID", "Graph that may be run, such as sandbox:agent; may be repeated (all)"),
  allowSandbox: toggle(
    "allow-sandbox",
    "Let the grant open sandboxes; without this, graphs of sandbox: are refused"
  ),
  expiresSeconds: duration("expires-in", "How long the grant is valid, such as 12h (until it is revoked)"),
  tools: several(
    "tool",
    "PATTERN",
    "Host tool that runs may call, such as core__get_current_time or core__*; may be repeated (none)"
  ),
  models: several(
    "model",
    "PATTERN",
    "Model that requests may name, such as gpt-5 or openai/*; may be repeated (those the server offers)"
  ).pipe(Flag.withAlias("m")),
  repositories: several(
    "repository",
    "PATTERN",
    "Repository that runs may work in, such as https://github.com/acme/* or /srv/git/**; may be repeated (none)"
  ),
  concurrentRunsMax: count("max-runs", "Concurrent runs allowed in one server (as the server says)"),
  callsMax: count("max-calls", "Model calls allowed per run (as the request says)"),
  inputTokensMax: count("max-input-tokens", "Input tokens allowed per run (as the request says)"),
  outputTokensMax: count("max-output-tokens", "Output tokens allowed per run (as the request says)"),
  costUsdMax: cost("max-cost", "Cost of model calls allowed per run, in US dollars (as the request says)"),
  stopWhenSpent: toggle(
    "stop-when-spent",
    "End a run when a budget is spent, instead of only refusing its calls"
  ),
  output
}

/** Flags that only `prune` has. */
export const prune = {
  all: toggle("all", "Also remove resources whose owner cannot be checked from this host").pipe(
    Flag.withAlias("a")
  ),
  force: toggle("force", "With --all: also remove resources of runs that are still alive"),
  records: toggle("records", "Also delete records and audits of runs that have ended"),
  output
}
