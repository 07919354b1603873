/**
 * The fields of a sandbox's spec, with their limits and defaults.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

export const withDefault = <S extends Schema.Top>(schema: S, value: S["Encoded"]) =>
  schema.pipe(Schema.withDecodingDefaultKey(Effect.succeed(value)))

const isWithin = (minimum: number, maximum: number, what: string) =>
  Schema.isBetween({ minimum, maximum }, { expected: `a value from ${minimum} to ${maximum} (${what})` })

const between = (minimum: number, maximum: number, description: string) =>
  Schema.Int.check(isWithin(minimum, maximum, description)).annotate({ description })

const bounded = (minimum: number, maximum: number, fallback: number, description: string) =>
  withDefault(between(minimum, maximum, description), fallback)

const KiB = 1024

const MiB = 1024 * KiB

const GiB = 1024 * MiB

/** The kernel's cap on one argument or variable (`MAX_ARG_STRLEN`, 32 pages), less its closing NUL. */
export const argumentBytesMax = 128 * KiB - 1

/** Limit on one variable with its name, less the prefix that carries it into the sandbox (`COGNI_ENV_<n>=`). */
export const variableBytesMax = argumentBytesMax - 32

/** Limit on argv and env together. The kernel gives them a quarter of an 8 MiB stack. */
export const argumentsBytesMax = 1536 * KiB

/** Limit on one input file, such as a prompt. Put more into the workspace. */
export const inputBytesMax = 4 * MiB

/**
 * Path of the supervisor, the first process of a supervised container, which runs the commands sent to it. Every image
 * built on the runtime image has it.
 */
export const supervisor = "/usr/local/bin/cogni-supervisor"

export const bytesOf = (text: string) => new TextEncoder().encode(text).byteLength

/** Whether a text is longer in UTF-8. It is encoded only if necessary: a UTF-16 unit takes one to three bytes. */
export const exceeds = (text: string, bytesMax: number) =>
  text.length > bytesMax || (text.length * 3 > bytesMax && bytesOf(text) > bytesMax)

/** Resource limits of a run. */
export const Limits = Schema.Struct({
  runtimeSecondsMax: bounded(1, 86_400, 600, "wall clock from the agent's first instruction"),
  stopGraceSecondsMax: bounded(0, 120, 5, "from SIGTERM to SIGKILL"),
  memoryBytesMax: bounded(
    6 * MiB,
    1024 * GiB,
    GiB,
    "memory and tmpfs pages together; there is no swap. The engine's own minimum is 6 MiB"
  ),
  processesMax: bounded(4, 32_768, 256, "processes and threads at one time"),
  cpusMax: withDefault(Schema.Finite.check(isWithin(0.01, 1024, "processors")), 2),
  outputBytesMax: bounded(1, 16 * GiB, 64 * MiB, "stdout and stderr together, before the run is ended"),
  outputRetainedBytesMax: bounded(
    0,
    256 * MiB,
    4 * MiB,
    "bytes of each of stdout and stderr kept in the result"
  ),
  workspaceBytesMax: bounded(
    64 * KiB,
    1024 * GiB,
    2 * GiB,
    "bytes that a run may add to its workspace, or that all files may have: blocks of files and directories, and 512 bytes for each of them"
  ),
  temporaryBytesMax: bounded(
    64 * KiB,
    64 * GiB,
    256 * MiB,
    "bytes of each of /tmp and /home/agent; counted as memory"
  ),
  filesOpenMax: bounded(16, 16_384, 4096, "open files of one process")
})

export type Limits = typeof Limits.Type

/** One element of argv: without NUL, and no longer than the kernel accepts. */
export const Argument = Schema.String.check(
  Schema.makeFilter((text: string) =>
    text.includes("\0")
      ? "Expected an argument without NUL"
      : exceeds(text, argumentBytesMax)
        ? `Expected an argument of at most ${argumentBytesMax} bytes (the kernel's cap; put long text into a file: inputs or the workspace)`
        : undefined
  )
)

const environmentNameExpected =
  "a name of at most 128 letters, digits and underscores that does not start with a digit, and does not affect " +
  "the sandbox's entrypoint (LD_…, GLIBC_TUNABLES, OPTIND, COGNI_HOLD, COGNI_SOCKET, COGNI_ENV…; set them with env(1) in argv)"

const environmentName =
  /^(?!LD_|GLIBC_TUNABLES$|OPTIND$|COGNI_HOLD$|COGNI_SOCKET$|COGNI_ENV(?:_|$))[A-Za-z_][A-Za-z0-9_]{0,127}$/u

/**
 * Any name except those that the dynamic loader or the entrypoint's shell reads. Only the agent gets these variables:
 * no program of the sandbox itself has them in its environment (`ContainerEnvironment` of the Docker package).
 */
export const EnvironmentName = Schema.String.check(
  Schema.isPattern(environmentName, { expected: environmentNameExpected })
)

export const Environment = Schema.Record(EnvironmentName, Argument).annotate({
  messageUnexpectedKey: `Expected ${environmentNameExpected}`
})

/** `none`, or one internal network (no route out). Nothing wider exists. */
export const Network = Schema.Union([
  Schema.Struct({ mode: Schema.Literal("none") }),
  Schema.Struct({
    mode: Schema.Literal("internal"),
    networkName: Schema.String.check(Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/u))
  })
])

export type Network = typeof Network.Type

/** The files a run may change, at `/workspace`: a temporary directory that ends with the run, or a host directory. */
export const WorkspaceSource = Schema.Union([
  Schema.Struct({ type: Schema.Literal("temporary") }),
  Schema.Struct({
    type: Schema.Literal("directory"),
    path: Schema.String.check(
      Schema.isPattern(/^\/[^\0]{0,4094}$/u, { expected: "an absolute path without NUL" })
    ),
    /**
     * Files that count towards `workspaceBytesMax`: those `added` by this run (default), or `all`, for a directory that
     * successive runs fill. If it already exceeds the limit, a run cannot add anything, but can delete files.
     */
    counts: Schema.optionalKey(Schema.Literals(["added", "all"]))
  })
])

export type WorkspaceSource = typeof WorkspaceSource.Type

/** A file that the agent can read and never change: `/cogni/<name>`, and `/workspace/.cogni/<name>`. */
export const Input = Schema.Struct({
  name: Schema.String.check(
    Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/u, {
      expected:
        "a plain file name: at most 100 letters, digits, dots, underscores and hyphens, starting with neither dot nor hyphen"
    })
  ),
  content: Schema.String.check(
    Schema.makeFilter((text: string) =>
      exceeds(text, inputBytesMax)
        ? `Expected an input of at most ${inputBytesMax} bytes (put more into the workspace)`
        : undefined
    )
  )
})

export type Input = typeof Input.Type

const Identifier = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(200))

/** The account that pays, and the names for ledger and traces. Set by the host; a sandbox cannot change them. */
export const LlmIdentity = Schema.Struct({
  billingAccountId: Identifier,
  /** Key of the caller at the host, such as the ID of a grant. A proxy can choose the upstream's key by it. */
  virtualKeyId: Schema.optionalKey(Identifier),
  attempt: bounded(0, 1000, 0, "counts from 0"),
  userId: Schema.optionalKey(Identifier),
  graphId: Schema.optionalKey(Identifier),
  /** ID of the agent, for the ledger. No upstream learns it. */
  agentId: Schema.optionalKey(Identifier),
  existingTraceId: Schema.optionalKey(Identifier),
  sessionId: Schema.optionalKey(Identifier),
  traceUserId: Schema.optionalKey(Identifier)
})

export type LlmIdentity = typeof LlmIdentity.Type

const optionalBounded = (minimum: number, maximum: number, description: string) =>
  Schema.optionalKey(between(minimum, maximum, description))

/**
 * How much of a model a run may use. The spec does not limit what is absent. Only a proxy that reads bodies can enforce
 * a budget; with any other proxy, a spec with a budget is refused.
 *
 * The upstream's own figures count. Before a call is sent, the cap of its answer and an estimate of its input are
 * reserved. A call that ends without figures, because the agent disconnected or the answer was truncated, is charged
 * what was reserved for it, so that disconnecting early gains nothing. A call without a cap gets one if output tokens
 * or cost are limited.
 */
export const LlmBudget = Schema.Struct({
  callsMax: optionalBounded(1, 1_000_000, "requests that are passed on to the model"),
  inputTokensMax: optionalBounded(1, 1e12, "input tokens of all calls"),
  outputTokensMax: optionalBounded(1, 1e12, "output tokens of all calls"),
  costUsdMax: Schema.optionalKey(Schema.Finite.check(isWithin(1e-6, 1e6, "US dollars"))),
  bytesMax: optionalBounded(1, 1e13, "bodies of all requests and answers"),
  concurrentCallsMax: optionalBounded(1, 10_000, "concurrent calls"),
  requestsPerSecondMax: optionalBounded(1, 10_000, "requests of any kind per second"),
  /** Part of the calls, tokens, cost and bytes above, and of the run's time limit, for all its subagents together. */
  subagentShareMax: Schema.optionalKey(Schema.Finite.check(isWithin(0.01, 1, "as a part of the whole"))),
  /** `refuse` answers the agent with an error; `stop` ends the run at once as well. */
  onExhausted: withDefault(Schema.Literals(["refuse", "stop"]), "refuse")
})

export type LlmBudget = typeof LlmBudget.Type

/**
 * Marks a run whose usage an observer must hear, with the names that the observer knows. Set by graph providers. The
 * run store keeps such a run unsettled until its observer has accepted the usage, also if the host process dies before.
 */
const LlmObserved = Schema.Struct({
  /** Unique for each start, so that a refused start never settles the run that has the run ID. */
  token: Schema.String.check(
    Schema.isPattern(/^[0-9a-f-]{36}$/u, { expected: "a UUID in lower-case hexadecimal" })
  ),
  virtualKeyId: Identifier,
  grantId: Identifier,
  requestId: Identifier,
  ingressRequestId: Identifier,
  threadId: Schema.optionalKey(Identifier)
})

/** A run's access to models: which ones, and on whose account. */
export const LlmAccess = Schema.Struct({
  /** Default model, for requests that name no other. */
  model: Identifier,
  /** Further model names that the agent may use, with their names at the upstream. Any other name is refused. */
  models: withDefault(Schema.Record(Identifier, Identifier), {}),
  identity: LlmIdentity,
  budget: Schema.optionalKey(LlmBudget),
  /** Request fields that the proxy does not know: `drop` omits and records them, `refuse` refuses the request. */
  unknownFields: withDefault(Schema.Literals(["drop", "refuse"]), "drop"),
  /**
   * Caller of the model: the agent in the sandbox, or a loop on the host, for which the sandbox only executes. Both use
   * the same proxy, with the same key, identity, budget and audit. With `host`, the sandbox sees nothing of it.
   */
  caller: withDefault(Schema.Literals(["sandbox", "host"]), "sandbox"),
  /** If absent, the run's record alone has its usage. */
  observed: Schema.optionalKey(LlmObserved)
})

export type LlmAccess = typeof LlmAccess.Type

/** Name of a host tool, such as `core__get_current_time`. */
export const ToolName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9]{0,31}__[a-z][a-z0-9_]{0,63}$/u, {
    expected: "the name of a tool, such as core__get_current_time"
  })
)

/**
 * Whether canaries are planted, and what happens if one leaves the sandbox: `warn` reports it, and `stop` also ends
 * the run.
 */
export const CanaryPolicy = Schema.Literals(["off", "warn", "stop"])

export type CanaryPolicy = typeof CanaryPolicy.Type
