/**
 * What to run and how tightly to hold it: the only input of a run.
 *
 * A spec is plain data and holds no secret: credentials belong to the proxy and the relay, which live outside the
 * sandbox. Every quantity has a limit and a default, with its unit in its name.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import { RunId } from "./RunId.ts"

const withDefault = <S extends Schema.Top>(schema: S, value: S["Encoded"]) =>
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

/** One variable with its name, less what carries it into the sandbox (`COGNI_ENV_<n>=`). */
const variableBytesMax = argumentBytesMax - 32

/** What all of argv and env may hold together; the kernel gives them a quarter of an 8 MiB stack. */
export const argumentsBytesMax = 1536 * KiB

/** One input file, such as a prompt. More than this belongs into the workspace. */
export const inputBytesMax = 4 * MiB

const bytesOf = (text: string) => new TextEncoder().encode(text).byteLength

/** Encoded only where it may matter: a character is one to three bytes for each of its units. */
export const exceeds = (text: string, bytesMax: number) =>
  text.length > bytesMax || (text.length * 3 > bytesMax && bytesOf(text) > bytesMax)

/** How much of everything a run may have. */
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
  outputRetainedBytesMax: bounded(0, 256 * MiB, 4 * MiB, "of each of stdout and stderr, kept in the result"),
  workspaceBytesMax: bounded(
    64 * KiB,
    1024 * GiB,
    2 * GiB,
    "what a run may add to its workspace, or what may be there in all: blocks of files and directories, and 512 bytes for each of them"
  ),
  temporaryBytesMax: bounded(
    64 * KiB,
    64 * GiB,
    256 * MiB,
    "of each of /tmp and /home/agent; counted as memory"
  ),
  filesOpenMax: bounded(16, 16_384, 4096, "open files of one process")
})

export type Limits = typeof Limits.Type

/** One element of argv: no NUL, and no longer than the kernel takes. */
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
  "a name of at most 128 letters, digits and underscores that starts with no digit, and is none of those that act on " +
  "the sandbox's entrypoint (LD_…, GLIBC_TUNABLES, OPTIND, COGNI_HOLD, COGNI_SOCKET, COGNI_ENV…; set them with env(1) in argv)"

const environmentName =
  /^(?!LD_|GLIBC_TUNABLES$|OPTIND$|COGNI_HOLD$|COGNI_SOCKET$|COGNI_ENV(?:_|$))[A-Za-z_][A-Za-z0-9_]{0,127}$/u

/**
 * Every name but those that the loader of programs or the entrypoint's own shell reads. All others are the agent's alone:
 * no program of the sandbox's own has them in its environment (`ContainerEnvironment` of the Docker package).
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

/** The files a run may change, at `/workspace`: a fresh directory that ends with the run, or one of the host's. */
export const WorkspaceSource = Schema.Union([
  Schema.Struct({ type: Schema.Literal("temporary") }),
  Schema.Struct({
    type: Schema.Literal("directory"),
    path: Schema.String.check(
      Schema.isPattern(/^\/[^\0]{0,4094}$/u, { expected: "an absolute path without NUL" })
    ),
    /**
     * What counts for `workspaceBytesMax`: what this run adds, or `all` that is there, for a directory that one run
     * after the other fills. Of one that is over it already nothing more may come, and files may go.
     */
    counts: Schema.optionalKey(Schema.Literals(["added", "all"]))
  })
])

export type WorkspaceSource = typeof WorkspaceSource.Type

/** A file the agent reads and can never change: `/cogni/<name>`, and `/workspace/.cogni/<name>`. */
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

/** Who pays, and what the ledger and the trace should say. Set by the host; nothing a sandbox sends can change it. */
export const LlmIdentity = Schema.Struct({
  billingAccountId: Identifier,
  attempt: bounded(0, 1000, 0, "counts from 0"),
  userId: Schema.optionalKey(Identifier),
  graphId: Schema.optionalKey(Identifier),
  existingTraceId: Schema.optionalKey(Identifier),
  sessionId: Schema.optionalKey(Identifier),
  traceUserId: Schema.optionalKey(Identifier)
})

export type LlmIdentity = typeof LlmIdentity.Type

const optionalBounded = (minimum: number, maximum: number, description: string) =>
  Schema.optionalKey(between(minimum, maximum, description))

/**
 * How much of a model a run may have. What is absent is not limited by the spec. Held by a proxy that reads bodies;
 * with any other a spec that has a budget is refused.
 *
 * Counted are the upstream's own figures. Before a call goes out, the cap of its answer and an estimate of its input
 * are reserved. A call that ends without figures, because the agent hung up or the answer was cut, is charged what was
 * reserved for it, so that hanging up early buys nothing. A call that names no cap is given one where output tokens or
 * cost are limited.
 */
export const LlmBudget = Schema.Struct({
  callsMax: optionalBounded(1, 1_000_000, "requests that are passed on to the model"),
  inputTokensMax: optionalBounded(1, 1e12, "input tokens of all calls"),
  outputTokensMax: optionalBounded(1, 1e12, "output tokens of all calls"),
  costUsdMax: Schema.optionalKey(Schema.Finite.check(isWithin(1e-6, 1e6, "US dollars"))),
  bytesMax: optionalBounded(1, 1e13, "bodies of all requests and answers"),
  concurrentCallsMax: optionalBounded(1, 10_000, "calls under way at one time"),
  requestsPerSecondMax: optionalBounded(1, 10_000, "requests of any kind in a second"),
  /** `refuse` answers the agent with an error; `stop` ends the run at once as well. */
  onExhausted: withDefault(Schema.Literals(["refuse", "stop"]), "refuse")
})

export type LlmBudget = typeof LlmBudget.Type

/** That a run may speak to a model, to which one, and in whose name. */
export const LlmAccess = Schema.Struct({
  /** What the agent gets when it names none. */
  model: Identifier,
  /** Further names the agent may use, and what the upstream calls each. Any other name is refused. */
  models: withDefault(Schema.Record(Identifier, Identifier), {}),
  identity: LlmIdentity,
  budget: Schema.optionalKey(LlmBudget),
  /** What happens to fields of a request that are not on the proxy's list: left out and noted, or the request refused. */
  unknownFields: withDefault(Schema.Literals(["drop", "refuse"]), "drop"),
  /**
   * Who speaks to the model: the agent inside, or a loop on the host, for which the sandbox only executes. The same
   * proxy either way, with the same key, identity, budget and audit; with `host` nothing of it is seen inside.
   */
  caller: withDefault(Schema.Literals(["sandbox", "host"]), "sandbox")
})

export type LlmAccess = typeof LlmAccess.Type

/** A tool of the host's, such as `core__get_current_time`. */
export const ToolName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9]{0,31}__[a-z][a-z0-9_]{0,63}$/u, {
    expected: "the name of a tool, such as core__get_current_time"
  })
)

/**
 * Whether secrets that open nothing are laid where a thief would look, and what happens when one is seen on a way out.
 */
export const CanaryPolicy = Schema.Literals(["off", "warn", "stop"])

export type CanaryPolicy = typeof CanaryPolicy.Type

export const SandboxSpec = Schema.Struct({
  /** Made by the runner when absent. */
  runId: Schema.optionalKey(RunId),
  /** An image built on the runtime image, so that its entrypoint reports the posture. */
  image: Schema.String.check(
    Schema.isPattern(/^[a-z0-9][A-Za-z0-9._:/@-]{0,254}$/u, {
      expected: "the name of an image, such as cogni/agent:1"
    })
  ),
  /** Executed as it is; no shell is involved. */
  argv: Schema.NonEmptyArray(
    Argument.pipe(Schema.annotateKey({ messageMissingKey: "Expected a program to run, then its arguments" }))
  ),
  env: withDefault(Environment, {}),
  workspace: withDefault(WorkspaceSource, { type: "temporary" }),
  inputs: withDefault(Schema.Array(Input).check(Schema.isMaxLength(64)), []),
  limits: withDefault(Limits, {}),
  /**
   * `/workspace/.cogni` is the agent's own, to keep what it knows of the workspace in (`index.json`); inputs are then at
   * `/cogni` only.
   */
  memory: withDefault(Schema.Boolean, false),
  network: withDefault(Network, { mode: "none" }),
  /** Absent: the run has no way out at all. */
  llm: Schema.optionalKey(LlmAccess),
  /** Tools of the host that the agent may call, over the same socket as its model. None, unless named. */
  tools: withDefault(Schema.Array(ToolName).check(Schema.isMaxLength(64)), []),
  canaries: withDefault(CanaryPolicy, "off")
}).check(
  Schema.makeFilter((spec) => {
    const bytes = [...spec.argv, ...Object.entries(spec.env).flat()].reduce(
      (sum, text) => sum + bytesOf(text) + 1,
      0
    )
    const [name] =
      Object.entries(spec.env).find(([own, value]) => bytesOf(own) + bytesOf(value) + 1 > variableBytesMax) ??
      []
    if (name !== undefined) {
      return {
        path: ["env", name],
        issue: `Expected at most ${variableBytesMax} bytes with its name (the kernel's cap; put long text into a file: inputs or the workspace)`
      }
    }
    return bytes > argumentsBytesMax
      ? `Expected argv and env of at most ${argumentsBytesMax} bytes together (put long text into a file: inputs or the workspace)`
      : undefined
  })
)

export type SandboxSpec = typeof SandboxSpec.Type

/** What a caller writes: everything with a default may be left out. */
export type SandboxSpecInput = typeof SandboxSpec.Encoded

/** Fails with every problem of the input, not just the first. */
export const decode = Schema.decodeUnknownEffect(SandboxSpec, { errors: "all", onExcessProperty: "error" })

const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1()

/** What is wrong at one place of an input. */
export interface InputIssue {
  readonly path: ReadonlyArray<string>
  /** The rule, such as `Expected …`. */
  readonly message: string
}

/** All that is wrong with an input, as data. */
export const issuesOf = ({ issue }: Schema.SchemaError): ReadonlyArray<InputIssue> =>
  formatIssues(issue).issues.map(({ message, path = [] }) => ({
    path: path.map((key) => String(typeof key === "object" ? key.key : key)),
    message
  }))

/** An issue as a sentence, with the path of its place. */
export const describeIssue = ({ message, path }: InputIssue): string =>
  path.length === 0 ? message : `${path.join(".")}: ${message}`

/** All that is wrong with an input, in sentences. */
export const problemsOf = (error: Schema.SchemaError): ReadonlyArray<string> =>
  issuesOf(error).map(describeIssue)
