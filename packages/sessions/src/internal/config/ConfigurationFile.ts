/**
 * The schema of a configuration file, key by key, for editors and for validation.
 *
 * Decoding fills in defaults and converts nothing else, so that the published JSON Schema matches what is read. Rules
 * that relate several keys are in `ConfigurationRules`.
 */
import * as PackagePattern from "@cogni/sandbox-core/PackagePattern"
import { SandboxSpec } from "@cogni/sandbox-core/SandboxSpec"
import { Limits } from "@cogni/sandbox-core/SpecFields"
import { ByteSize, Effect, Option, Schema } from "effect"
import { AgentName, ModelTier, ToolEntry } from "../../config/AgentConfig.ts"
import { ToolProfile } from "@cogni/sandbox-loop/ToolProfile"
import { keyExpected, keyPattern } from "./SenderPattern.ts"

/** Longest system prompt, in UTF-8: the most that is reasonable to send before every conversation. */
const promptBytesMax = 64 * 1024

/** Limit on the number of agents, of channels and of senders. */
const entriesMax = 2000

/** An optional key with a default. */
const key = <S extends Schema.Top>(
  schema: S,
  fallback: S["Rebuild"]["Encoded"],
  description?: string
): Schema.withDecodingDefaultKey<S["Rebuild"]> =>
  schema
    .annotate({ default: fallback, ...(description === undefined ? {} : { description }) })
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed(fallback)))

const flag = (fallback: boolean, description: string) =>
  key(
    Schema.Boolean.annotate({
      message: "Expected true or false (yes, no, on and off are strings in YAML 1.2)"
    }),
    fallback,
    description
  )

const oneOf = <const L extends ReadonlyArray<string>>(
  schema: Schema.Literals<L>,
  fallback: L[number],
  description: string
) => key(schema.annotate({ message: `Expected one of ${schema.literals.join(", ")}` }), fallback, description)

const matching = (pattern: RegExp, message: string) =>
  Schema.String.check(Schema.isPattern(pattern, { message }))

const whole = (minimum: number, maximum: number) =>
  Schema.Int.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` })
  )

/** A mapping whose error for an unknown key lists the valid keys. */
const struct = <const F extends Schema.Struct.Fields>(fields: F, description: string) =>
  Schema.Struct(fields).annotate({
    description,
    message: "Expected a mapping (KEY: VALUE)",
    messageUnexpectedKey: `Unknown key. Valid keys: ${Object.keys(fields).join(", ")}`
  })

const table = <K extends Schema.Record.Key, V extends Schema.Top>(
  name: K,
  value: V,
  expected: string,
  description: string
) =>
  Schema.Record(name, value)
    .annotate({ description, messageUnexpectedKey: expected })
    .check(Schema.isMaxProperties(entriesMax, { expected: `at most ${entriesMax} entries` }))

/** A container limit: a number, or a string that contains one. */
const quantity = (pattern: RegExp, isAllowed: (written: string | number) => boolean, message: string) => {
  const allowed = Schema.makeFilter((written: string | number) => isAllowed(written) || message)
  const written = Schema.String.check(Schema.isPattern(pattern, { message }).abort(), allowed)
  return Schema.Union([written, Schema.Finite.check(allowed)]).annotate({
    message
  })
}

/** Converts a size in Docker's notation to bytes: a number and a unit that is a power of 1024. */
export const bytesOf = (size: string | number): number => {
  const [, amount = "", unit = ""] = /^([\d.]+)([kmg]?)/iu.exec(String(size)) ?? []
  const bytes = ByteSize.fromString(`${amount} ${unit === "" ? "B" : `${unit.toUpperCase()}iB`}`)
  return Number(Option.getOrElse(bytes, () => 0))
}

const isMemory = Schema.is(Limits.fields.memoryBytesMax)

const isCpus = Schema.is(Limits.fields.cpusMax)

const memory = quantity(
  /^\d{1,15}(?:\.\d{1,6})?(?:[bB]|[kKmMgG](?:[iI]?[bB])?)?$/u,
  (size) => isMemory(bytesOf(size)),
  "Expected a size from 6m to 1024g in whole bytes (b, k, m, g: powers of 1024)"
)

const cpus = quantity(
  /^\d{1,4}(?:\.\d{1,9})?$/u,
  (count) => isCpus(Number(count)),
  'Expected from 0.01 to 1024 processors, such as 0.5 or "1.0"'
)

/** The message explains why Docker's other networks are not allowed. */
const network = matching(
  /^(?:none|internal:[A-Za-z0-9][A-Za-z0-9_.-]{0,62})$/u,
  "Expected none, or internal:NAME for an internal Docker network. " +
    "bridge (an egress path around the proxy) and host (no isolation) are never possible"
)

const workspace = Schema.Literal("/workspace").annotate({
  message: "Expected /workspace: a sandbox has its files only there"
})

const Sandbox = struct(
  {
    enabled: flag(false, "Run agents in containers. If false, they run on the host, if it has an executor."),
    image: Schema.optionalKey(
      SandboxSpec.fields.image.annotate({
        description: "Image built on the runtime image (default the runtime image of the program)."
      })
    ),
    workspace_dir: key(workspace, "/workspace", "Directory of a session's files in the container."),
    network: key(network, "none", "none, or internal:NAME: an internal Docker network (no route out)."),
    allow_unsafe_network: flag(false, "Required for internal:NAME: its containers can reach each other."),
    packages: key(
      Schema.Array(PackagePattern.PackagePattern).check(
        Schema.isMaxLength(PackagePattern.patternsMax, {
          expected: `at most ${PackagePattern.patternsMax} patterns`
        })
      ),
      [],
      "Packages that sandboxes may install from the host's mirror, such as npm:left-pad or npm:@types/*."
    ),
    memory_limit: key(memory, "512m", "Memory of one container: bytes, or a number with b, k, m or g."),
    cpu_limit: key(cpus, "1.0", "Processors of one container; fractions are allowed."),
    timeout_seconds: key(whole(1, 86_400), 300, "Lifetime of one container in seconds, wall clock."),
    command_timeout_seconds: Schema.optionalKey(
      whole(1, 86_400).annotate({
        description: "Time limit of one command in seconds (default 120, or timeout_seconds if that is less)."
      })
    ),
    idle_seconds: key(whole(1, 604_800), 900, "Seconds without a message after which a session ends."),
    sessions_max: key(whole(1, 1000), 20, "Concurrent sessions."),
    when_full: oneOf(
      Schema.Literals(["refuse", "evict_idle"]),
      "refuse",
      "If sessions_max is reached: refuse a new session, or end the longest idle one."
    ),
    on_unavailable: oneOf(
      Schema.Literals(["refuse", "host"]),
      "refuse",
      "Without an engine: refuse commands, or run them on the host and report this each time."
    ),
    persistent_workspaces: flag(false, "Keep the files of a session, and restore them when it returns.")
  },
  "Containers of sessions."
)

const tools = (description: string) =>
  key(
    Schema.Array(ToolEntry).check(Schema.isMaxLength(100, { expected: "at most 100 tools" })),
    [],
    description
  )

const promptExpected = `Expected text of 1 to ${promptBytesMax} bytes without NUL`

const prompt = Schema.String.annotate({
  description: "System prompt, instead of the host's."
}).check(
  Schema.isMinLength(1, { message: promptExpected }),
  Schema.makeFilter(
    (text: string) =>
      (Buffer.byteLength(text) <= promptBytesMax && text.isWellFormed() && !text.includes("\0")) ||
      promptExpected
  )
)

const Agent = struct(
  {
    system_prompt: Schema.optionalKey(prompt),
    model_tier: oneOf(ModelTier, "default", "Model tier of the agent."),
    tool_profile: oneOf(ToolProfile, "minimal", "Which tools the agent may call."),
    tool_overrides: key(
      struct(
        {
          allow: tools("Tools allowed in addition to the profile."),
          deny: tools("Tools never allowed; takes precedence over allow.")
        },
        "Exceptions from the profile."
      ),
      {}
    ),
    sandbox: flag(true, "Run this agent in a container, if sandbox.enabled.")
  },
  "One agent, under its name."
)

/** Channel name in a file. Messages may use other names; the default agent answers those. */
const ChannelName = Schema.String.check(Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/u))

const channelExpected = "Expected the name of a channel: 1 to 64 letters, digits, `_`, `.` and `-`"

const answers = (description: string) => AgentName.annotate({ description })

const Routing = struct(
  {
    default_agent: answers("Agent that answers if no other rule matches.").pipe(
      Schema.annotateKey({
        messageMissingKey: "Expected this key: the name of the agent that answers if no other rule matches"
      })
    ),
    channels: key(
      table(ChannelName, answers("Agent for this channel."), channelExpected, "Agents of channels."),
      {}
    ),
    senders: key(
      table(
        Schema.String.check(Schema.isPattern(keyPattern)),
        answers("Agent that answers this sender, or senders that match this pattern."),
        keyExpected,
        "Agents of senders: CHANNEL:SENDER. SENDER may contain * ? [..]; a backslash escapes one."
      ),
      {}
    )
  },
  "Which agent answers which sender."
)

const modelOf = (tier: string) =>
  Schema.optionalKey(
    matching(
      /^[^\s\p{C}]{1,200}$/u,
      "Expected the name of a model: 1 to 200 characters without blanks"
    ).annotate({ description: `The model of the tier ${tier}.` })
  )

const Models = struct(
  {
    fast: modelOf("fast"),
    default: modelOf("default"),
    complex: modelOf("complex"),
    local: modelOf("local")
  },
  "Model names by tier (default: the host's models)."
)

export const ConfigurationFile = struct(
  {
    sandbox: key(Sandbox, {}),
    agent_configs: table(
      AgentName,
      Agent,
      "Expected the name of an agent: 1 to 64 lower-case letters, digits, `_` and `-`, beginning with a letter",
      "Agents, by name."
    )
      .check(Schema.isMinProperties(1, { expected: "at least one agent" }))
      .pipe(
        Schema.annotateKey({ messageMissingKey: "Expected this key: at least one agent, under its name" })
      ),
    routing: Routing.pipe(
      Schema.annotateKey({ messageMissingKey: "Expected this key: a mapping with default_agent at least" })
    ),
    models: Schema.optionalKey(Models)
  },
  "Sessions, their agents, and which agent answers which sender."
)

export type ConfigurationFile = typeof ConfigurationFile.Type
