/** The flags and their parsers. Parsing is strict, and an error names the expected value. */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { depthMax } from "@cogni/sandbox-git-relay/RelaySteps"
import { Effect, Option, Result } from "effect"
import { Argument, CliError, Flag } from "effect/cli"
import { resolve } from "node:path"
import * as NumberFlag from "./NumberFlag.ts"
import * as Quantity from "./Quantity.ts"
import * as ShareFlag from "./ShareFlag.ts"

/** Parsed values of a set of flags. Optional flags may be absent. */
export type Typed<F> = {
  readonly [K in keyof F as undefined extends Value<F[K]> ? never : K]: Value<F[K]>
} & { readonly [K in keyof F as undefined extends Value<F[K]> ? K : never]?: Value<F[K]> }

type Value<F> = F extends Flag.Flag<infer A> ? A : F extends Argument.Argument<infer A> ? A : never

/** Removes flags that were not given. */
export const given = <A extends object>(typed: { readonly [K in keyof A]: A[K] | undefined }): Partial<A> =>
  Object.fromEntries(Object.entries(typed).filter(([, value]) => value !== undefined)) as Partial<A>

/** Parses the text of a flag. The error of a parser says what it expects. */
export const parsed =
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

/** Makes a flag optional. */
export const orUndefined = <A>(flag: Flag.Flag<A>): Flag.Flag<A | undefined> =>
  Flag.map(Flag.optional(flag), Option.getOrUndefined)

/** Flag for a text. */
export const text = (name: string, metavar: string, description: string) =>
  Flag.String(name).pipe(Flag.withMetavar(metavar), Flag.withDescription(description))

/** Refuses empty text, such as an unset variable of a script: as a path, it would mean the current directory. */
export const filled = (name: string, remedy: string) => (typed: string) =>
  typed === ""
    ? Effect.fail(new CliError.ValidationError({ message: `${name} is empty. ${remedy}` }))
    : Effect.succeed(typed)

/** Largest number of a port. */
export const portMax = 65_535

const directoryRemedy = "Name a directory (. for the current one), or leave it out"
const fileRemedy = "Name a file, or leave it out"

/** Flag for a directory, which becomes an absolute path. */
const directory = (name: string, description: string) =>
  text(name, "DIR", description).pipe(
    Flag.mapEffect(filled(`--${name}`, directoryRemedy)),
    Flag.map((path) => resolve(path))
  )

/** Flag for a file, whose path stays as typed. */
const file = (name: string, description: string) =>
  text(name, "FILE", description).pipe(Flag.mapEffect(filled(`--${name}`, fileRemedy)))

/** Argument for a prompt; - reads standard input. */
export const prompt = Argument.String("prompt").pipe(
  Argument.withDescription("Prompt; - reads it from standard input"),
  Argument.optional,
  Argument.map((typed) => Option.getOrUndefined(typed))
)

/** Argument for a configuration file. */
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

/** Flag for a size, in bytes. */
export const size = (name: string, description: string) =>
  quantity(name, "SIZE", description, Quantity.parseBytes)

const memoryOr = (fallback: string) =>
  size("memory", `Memory allowed, such as 512m or 1g (default ${fallback})`)

/** Flag for a count of something, such as `model calls`. */
export const count = (name: string, unit: string, example: number, description: string) =>
  orUndefined(
    NumberFlag.whole(name, "integer", `a whole number of ${unit}, 1 or more, such as ${example}`, description)
  )

/** Flag for an amount in US dollars. */
export const cost = (name: string, description: string) =>
  orUndefined(NumberFlag.number(name, "USD", "an amount in US dollars above 0, such as 0.50", description))

/** Flag for a text that may be absent. */
export const optional = (name: string, metavar: string, description: string) =>
  orUndefined(text(name, metavar, description))

/** Flag for a file that may be absent. */
export const optionalFile = (name: string, description: string) => orUndefined(file(name, description))

/** Flag for an identifier of the caller, of at most 200 characters. */
const identifier = (name: string, metavar: string, description: string) =>
  orUndefined(
    text(name, metavar, description).pipe(
      Flag.filter(
        (typed) => typed.length > 0 && typed.length <= 200,
        () => "an identifier of at most 200 characters"
      )
    )
  )

/** Flag for texts, which may be repeated. */
export const several = (name: string, metavar: string, description: string) =>
  text(name, metavar, description).pipe(Flag.atLeast(0))

/** Flag for the name of a model. */
export const modelNamed = (description: string) =>
  orUndefined(text("model", "NAME", description).pipe(Flag.withAlias("m")))

/** Flag for a whole number within bounds. */
export const whole = (name: string, minimum: number, maximum: number, description: string) =>
  NumberFlag.within(name, "integer", minimum, maximum, description)

/** Flag for a duration, in seconds. */
export const duration = (name: string, description: string) =>
  quantity(name, "DURATION", description, Quantity.parseSeconds)

/** Flag for a duration in seconds that may be zero. */
export const grace = (name: string, description: string) =>
  quantity(name, "DURATION", description, Quantity.parseGrace)

/** Flag without a value, off by default. */
export const toggle = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withoutNegation, Flag.withDescription(description), Flag.withDefault(false))

export const output = Flag.Literals("output", ["text", "json"]).pipe(
  Flag.withAlias("o"),
  Flag.withDescription("Output format: text for people, json for scripts (default text)"),
  Flag.withDefault("text")
)
/** Read by `Invocation`, before the command line is parsed. */
export const logFormat = Flag.Literals("log-format", ["text", "json"]).pipe(
  Flag.withDescription(
    "Format of standard error: text for people, json for one object a line, with the states of runs (default text)"
  ),
  Flag.withDefault("text")
)
const metricsPort = orUndefined(
  whole("metrics-port", 0, portMax, "Port of this machine for /metrics; 0 for any free port (default none)")
)
/** Flags for the sender of a message. */
export const sender = {
  channel: text("channel", "NAME", "Channel of a message, such as telegram"),
  sender: text("sender", "ID", "Sender ID in the channel; write --sender=-100 for an ID that begins with -")
}
export const quiet = toggle("quiet", "Suppress progress on standard error").pipe(Flag.withAlias("q"))
export const model = modelNamed("Model that the agent asks (default COGNI_LLM_MODEL)")

/** Flag for an output file, which becomes an absolute path. Refuses -, which elsewhere means a stream. */
export const outputFile = (name: string, description: string) =>
  orUndefined(
    parsed((path) =>
      path === "-"
        ? Result.fail("a file (/dev/stdout for standard output, ./- for a file with that name)")
        : Result.succeed(resolve(path))
    )(file(name, description))
  )

const patchFile = outputFile("patch", "Write the commits to a patch file instead of pushing them")

/** Flag for the branch of the commits. */
const branchOr = (fallback: string) =>
  optional("branch", "NAME", `Branch for the commits; fix-12 means sandbox/fix-12 (default ${fallback})`)

/** Flags for a run on a repository. */
const repo = {
  repo: orUndefined(
    text("repo", "URL|PATH", "Work in a clone of this repository, and push its commits to a branch").pipe(
      Flag.mapEffect(filled("--repo", "Name a repository (. for the current one), or leave it out"))
    )
  ),
  base: optional("base", "BRANCH", "Branch to start from (default the repository's HEAD)"),
  branch: branchOr("the run ID"),
  depth: orUndefined(whole("depth", 1, depthMax, "Commits of history that the agent sees (default 1)")),
  push: toggle("push", "Push the branch; this is the default without --patch"),
  pr: toggle("pr", "Open a draft pull request for the branch; requires a URL in --repo"),
  patch: patchFile,
  noCommit: toggle("no-commit", "Do not commit changes that the agent left uncommitted"),
  commitMessage: optional(
    "commit-message",
    "TEXT",
    "Commit message for changes that the agent left uncommitted"
  )
}

/** Flags of `relay retry`. */
export const retry = {
  branch: branchOr("the branch of the run"),
  pr: toggle("pr", "Open a draft pull request for the branch; the default if the run had --pr"),
  patch: patchFile,
  output,
  quiet
}

/** Flags of `run`. */
export const run = {
  agent: text("agent", "ID", "Agent that works on the prompt (default agent)").pipe(
    Flag.withDefault("agent")
  ),
  personality: optional("personality", "NAME", "Personality of the agent, if it has any (default none)"),
  workspace: orUndefined(
    directory(
      "workspace",
      "Directory that the agent may change, as /workspace; . for the current one (default an empty one). " +
        "For root, it needs another owner: chown -R 1000:1000 DIR"
    ).pipe(Flag.withAlias("w"))
  ),
  thread: optional(
    "thread",
    "NAME",
    "Thread to continue, or to begin: its files and the agent's session are kept (default a run that remembers nothing)"
  ),
  ...repo,
  model,
  promptFile: orUndefined(file("prompt-file", "Read the prompt from a file")),
  timeoutSeconds: duration("timeout", "Wall-clock time allowed, such as 90s (default the agent's, or 10m)"),
  memoryBytes: memoryOr("the agent's, or 1g"),
  cpus: orUndefined(
    NumberFlag.number(
      "cpus",
      "number",
      "a number of CPUs from 0.01 to 1024, such as 0.5",
      "CPUs allowed, such as 0.5 (default 2)"
    )
  ),
  processes: orUndefined(
    NumberFlag.whole(
      "processes",
      "integer",
      "a whole number of processes and threads from 4 to 32768, such as 256",
      "Concurrent processes and threads allowed (default 256)"
    )
  ),
  diskBytes: size("disk", "Size that a run may add to its workspace, such as 500m (default 2g)"),
  outputBytes: size("output-limit", "Size of stdout and stderr allowed, such as 1m (default 64m)"),
  graceSeconds: grace("grace", "Time from SIGTERM to SIGKILL, such as 10s (default 5s)"),
  env: parsed(Quantity.parseAssignment)(
    text("env", "NAME=VALUE", "Environment variable of the sandbox; may be repeated (default none)")
  ).pipe(Flag.withAlias("e"), Flag.atLeast(0)),
  image: optional(
    "image",
    "IMAGE",
    "Image to run, built on the runtime image (default the agent's, or COGNI_RUNTIME_IMAGE)"
  ),
  runId: optional(
    "run-id",
    "ID",
    "ID of the run, not used before: 8 to 48 lower-case letters, digits and inner hyphens (default a random ID)"
  ),
  user: identifier(
    "user",
    "ID",
    "User that the run is for, as the upstream and the audit name them (default none)"
  ),
  session: identifier(
    "session",
    "ID",
    "Label of the conversation, for the upstream and the audit only; nothing is kept (default none)"
  ),
  proxy: Flag.Literals("proxy", [
    "gateway",
    "gateway-directory",
    "gateway-container",
    "nginx",
    "nginx-shared"
  ]).pipe(
    Flag.withDescription(
      "Proxy between the run and the model; gateway detects whether it needs a container (default gateway)"
    ),
    Flag.withDefault("gateway")
  ),
  callsMax: count(
    "max-calls",
    "model calls",
    20,
    "Calls sent to the model API, including failed and count_tokens calls (default no limit)"
  ),
  inputTokensMax: count(
    "max-input-tokens",
    "tokens",
    200000,
    "Input tokens allowed in all calls together (default no limit)"
  ),
  outputTokensMax: count(
    "max-output-tokens",
    "tokens",
    20000,
    "Output tokens allowed in all calls together (default no limit)"
  ),
  costUsdMax: cost(
    "max-cost",
    "Model cost allowed, in US dollars (default no limit). It needs an upstream that reports costs, or " +
      "COGNI_LLM_PRICES: after a call of unknown cost, the next one is refused"
  ),
  subagentShareMax: ShareFlag.make("the limits above and of --timeout"),
  stopWhenSpent: toggle(
    "stop-when-spent",
    "End the run when a budget is exhausted, instead of only refusing its calls"
  ),
  tools: several(
    "tool",
    "NAME",
    "Host tool that the agent may call, such as core__get_current_time; may be repeated (default none)"
  ),
  askTools: several(
    "ask-tool",
    "NAME",
    "Host tool that the agent may call if you approve each call on the terminal; may be repeated (default none)"
  ),
  packages: several(
    "packages",
    "PATTERN",
    "Packages that the sandbox may install from the host's mirror, such as npm:left-pad or npm:@types/*; " +
      "may be repeated (default none). Needs COGNI_PACKAGES_FILE"
  ),
  canaries: Flag.Literals("canaries", ["off", "warn", "stop"]).pipe(
    Flag.withDescription(
      "Canary tokens: plant fake secrets, and detect them leaving the sandbox (default off)"
    ),
    Flag.withDefault("off")
  ),
  strict: toggle(
    "strict",
    "Refuse requests with fields that the gateway does not know, instead of removing these fields"
  ),
  auditBodies: toggle("audit-bodies", "Keep request and response bodies in the audit, without secrets"),
  noModel: toggle("no-model", "Run a command without a model, even if one is configured"),
  demo: toggle("demo", "Use the embedded demo upstream; no model is asked"),
  output,
  quiet
}

/** Flags of `task`, most of them shared with `run`. */
export const task = {
  workspace: run.workspace,
  model,
  promptFile: run.promptFile,
  stepsMax: orUndefined(whole("steps-max", 1, 10_000, "Model answers allowed (default 50)")),
  patch: outputFile("patch", "Write the patch to a file outside the workspace (default standard output)"),
  timeoutSeconds: duration("timeout", "Wall-clock time allowed, such as 90s or 2h (default 30m)"),
  memoryBytes: memoryOr("1g"),
  cpus: run.cpus,
  processes: run.processes,
  diskBytes: run.diskBytes,
  image: run.image,
  env: run.env,
  runId: run.runId,
  user: run.user,
  session: run.session,
  callsMax: run.callsMax,
  inputTokensMax: run.inputTokensMax,
  outputTokensMax: run.outputTokensMax,
  costUsdMax: run.costUsdMax,
  tools: run.tools,
  askTools: run.askTools,
  packages: run.packages,
  canaries: run.canaries,
  proxy: run.proxy,
  auditBodies: run.auditBodies,
  demo: run.demo,
  output,
  quiet
}

const lasting = { logFormat, metricsPort }

/** Flags of `chat`. */
export const chat = {
  ...lasting,
  model: modelNamed("Model of all agents, if the file has no models (default COGNI_LLM_MODEL)"),
  hostDirectory: orUndefined(
    directory(
      "host-directory",
      "Directory of this host for agents without a sandbox (default none: such agents are refused)"
    )
  ),
  canaries: run.canaries,
  auditBodies: run.auditBodies,
  demo: run.demo,
  proxy: Flag.Literals("proxy", ["gateway", "gateway-directory", "gateway-container", "nginx-shared"]).pipe(
    Flag.withDescription(
      "Proxy between sessions and the model; gateway detects whether it needs a container (default gateway)"
    ),
    Flag.withDefault("gateway")
  ),
  askTools: several(
    "ask-tool",
    "PATTERN",
    "Host tools whose calls wait for an approval, such as github__comment or **:external_side_effect; may be " +
      "repeated (default none). Approve with approvals approve"
  ),
  closedTools: several(
    "close-tool",
    "PATTERN",
    "Host tools that no agent may call, whatever the file names; may be repeated (default none)"
  ),
  approvalWaitSecondsMax: duration(
    "approval-wait",
    "Time that a tool call waits for an approval, such as 10m, at most 1h (default 3m)"
  ),
  callsMax: count("max-calls", "model calls", 20, "Model calls allowed per session (default no limit)"),
  inputTokensMax: count(
    "max-input-tokens",
    "tokens",
    200000,
    "Input tokens allowed per session (default no limit)"
  ),
  outputTokensMax: count(
    "max-output-tokens",
    "tokens",
    20000,
    "Output tokens allowed per session (default no limit)"
  ),
  costUsdMax: cost("max-cost", "Cost of model calls allowed per session, in US dollars (default no limit)"),
  quiet: toggle("quiet", "Suppress notes on the sandboxes of sessions on standard error").pipe(
    Flag.withAlias("q")
  )
}

export const doctorWorkspace = orUndefined(
  directory(
    "workspace",
    "Also check this workspace for sockets, FIFOs and devices that an agent could reach"
  ).pipe(Flag.withAlias("w"))
)

/** Flags of `mcp`, most of them shared with `run`. */
export const mcp = {
  ...lasting,
  workspace: run.workspace,
  image: optional(
    "image",
    "IMAGE",
    "Image of the sandbox, built on the runtime image (default COGNI_RUNTIME_IMAGE, or the one of this version)"
  ),
  profile: Flag.Literals("profile", ["minimal", "messaging", "coding", "full"]).pipe(
    Flag.withDescription("Set of tools to offer (default coding)"),
    Flag.withDefault("coding")
  ),
  allow: several(
    "allow",
    "TOOL",
    "Tool to offer in addition to the profile, such as shell.exec; may be repeated (default none)"
  ),
  deny: several(
    "deny",
    "TOOL",
    "Tool or group not to offer, such as process.*; may be repeated (default none)"
  ),
  idleSeconds: duration(
    "idle",
    "Idle time after which a sandbox closes, such as 1h; requires --workspace (default 15m)"
  ),
  timeoutSeconds: duration("timeout", "Lifetime of one sandbox, such as 2h (default 24h)"),
  memoryBytes: memoryOr("1g"),
  diskBytes: size("disk", "Size that one sandbox may add to its workspace, such as 500m (default 2g)"),
  cpus: run.cpus,
  processes: run.processes,
  packages: run.packages,
  canaries: run.canaries,
  env: run.env
}

/** Flags of `acp`, most of them shared with `run`, of which each prompt is one. */
export const acp = {
  ...lasting,
  agent: run.agent,
  personality: run.personality,
  workspace: Flag.Literals("workspace", ["cwd", "fresh", "clone"]).pipe(
    Flag.withAlias("w"),
    Flag.withDescription(
      "Files of a session: the editor's directory itself, an empty directory, or a clone of the repository for each prompt (default cwd)"
    ),
    Flag.withDefault("cwd")
  ),
  depth: orUndefined(
    whole("depth", 1, depthMax, "With --workspace clone: commits that the agent sees (default 1)")
  ),
  ignoreMcpServers: toggle(
    "ignore-mcp-servers",
    "Accept sessions for which the editor offers MCP servers, without these servers (default: refuse such sessions)"
  ),
  model,
  timeoutSeconds: duration(
    "timeout",
    "Wall-clock time allowed for each prompt, such as 90s or 2h (default the agent's, or 10m)"
  ),
  memoryBytes: run.memoryBytes,
  cpus: run.cpus,
  processes: run.processes,
  diskBytes: run.diskBytes,
  outputBytes: run.outputBytes,
  graceSeconds: run.graceSeconds,
  env: run.env,
  image: run.image,
  proxy: run.proxy,
  user: run.user,
  callsMax: count(
    "max-calls",
    "model calls",
    20,
    "Calls sent to the model API for each prompt (default no limit)"
  ),
  inputTokensMax: count(
    "max-input-tokens",
    "tokens",
    200000,
    "Input tokens allowed for each prompt (default no limit)"
  ),
  outputTokensMax: count(
    "max-output-tokens",
    "tokens",
    20000,
    "Output tokens allowed for each prompt (default no limit)"
  ),
  costUsdMax: cost("max-cost", "Model cost allowed for each prompt, in US dollars (default no limit)"),
  subagentShareMax: run.subagentShareMax,
  stopWhenSpent: run.stopWhenSpent,
  tools: run.tools,
  askTools: several(
    "ask-tool",
    "NAME",
    "Host tool that the agent may call if the editor's user allows each call; may be repeated (default none)"
  ),
  packages: run.packages,
  canaries: run.canaries,
  strict: run.strict,
  auditBodies: run.auditBodies,
  demo: run.demo,
  quiet
}
