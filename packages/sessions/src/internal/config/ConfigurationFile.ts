/**
 * The shape of a configuration file, key by key as it is written: what an editor is told, and what a file is held to.
 *
 * Nothing is converted here and nothing filled in but defaults, so that what is published as JSON Schema and what is
 * read are the same. What one key says of another is in `ConfigurationRules`.
 */
import { Limits, SandboxSpec } from "@cogni/sandbox-core/SandboxSpec"
import { ByteSize, Effect, Option, Schema } from "effect"
import { AgentName, ModelTier, ToolEntry } from "../../config/AgentConfig.ts"
import { ToolProfile } from "@cogni/sandbox-loop/ToolProfile"
import { keyExpected, keyPattern } from "./SenderPattern.ts"

/** In UTF-8. The longest that is reasonable to say to a model before anything else. */
const promptBytesMax = 64 * 1024

/** How many agents, channels and senders there may be, of each. */
const entriesMax = 2000

/** A key that may be left out. */
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

/** Tells of a key that does not exist which do. */
const struct = <const F extends Schema.Struct.Fields>(fields: F, description: string) =>
  Schema.Struct(fields).annotate({
    description,
    message: "Expected a mapping (KEY: VALUE)",
    messageUnexpectedKey: `There is no such key. There are ${Object.keys(fields).join(", ")}`
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

/** A number, or a text that holds one, as the limit of a container. */
const quantity = (pattern: RegExp, isAllowed: (written: string | number) => boolean, message: string) => {
  const allowed = Schema.makeFilter((written: string | number) => isAllowed(written) || message)
  const written = Schema.String.check(Schema.isPattern(pattern, { message }).abort(), allowed)
  return Schema.Union([written, Schema.Finite.check(allowed)]).annotate({
    message
  })
}

/** Bytes of a size as docker has it: a number, and a unit that is a power of 1024. */
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

/** Also says why of those networks that docker has and a sandbox has not. */
const network = matching(
  /^(?:none|internal:[A-Za-z0-9][A-Za-z0-9_.-]{0,62})$/u,
  "Expected none, or internal:NAME for an internal docker network. " +
    "Neither bridge (a way out past the proxy) nor host (no isolation at all) is possible, whatever is allowed"
)

const workspace = Schema.Literal("/workspace").annotate({
  message: "Expected /workspace: a sandbox has its files there, and nowhere else"
})

const Sandbox = struct(
  {
    enabled: flag(false, "Whether agents execute in containers; else on the host, if it has an executor."),
    image: key(
      SandboxSpec.fields.image,
      "cogni-sandbox/runtime:latest",
      "An image built on the runtime image, already on the engine: nothing is pulled."
    ),
    workspace_dir: key(workspace, "/workspace", "Where the files of a session are inside the container."),
    network: key(network, "none", "none; or internal:NAME, an internal docker network (no route out)."),
    allow_unsafe_network: flag(false, "Whether network may be internal: containers on it see each other."),
    memory_limit: key(memory, "512m", "Memory of one container: bytes, or a number with b, k, m or g."),
    cpu_limit: key(cpus, "1.0", "Processors of one container, or parts of one."),
    timeout_seconds: key(whole(1, 86_400), 300, "How long one container lives, wall clock."),
    command_timeout_seconds: Schema.optionalKey(
      whole(1, 86_400).annotate({
        description: "How long one command may run. 120 when left out, or timeout_seconds where that is less."
      })
    ),
    idle_seconds: key(whole(1, 604_800), 900, "A session without a message for this long is ended."),
    sessions_max: key(whole(1, 1000), 20, "Sessions at one time."),
    when_full: oneOf(
      Schema.Literals(["refuse", "evict_idle"]),
      "refuse",
      "Whether a session too many is refused, or the longest idle one is ended."
    ),
    on_unavailable: oneOf(
      Schema.Literals(["refuse", "host"]),
      "refuse",
      "Whether commands are refused while there is no engine, or run on the host, which is said each time."
    ),
    persistent_workspaces: flag(false, "Whether the files of a session are there again when it comes back.")
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
  description: "What the model is told first, instead of the prompt of the host."
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
    model_tier: oneOf(ModelTier, "default", "How able a model the agent gets."),
    tool_profile: oneOf(ToolProfile, "minimal", "Which tools the agent may call."),
    tool_overrides: key(
      struct(
        {
          allow: tools("Also these, whatever the profile says."),
          deny: tools("Never these; goes before allow.")
        },
        "What differs from the profile."
      ),
      {}
    ),
    sandbox: flag(true, "Whether the agent executes in a container, where sandbox.enabled.")
  },
  "One agent, under its name."
)

/** In a file. In a message a channel may be called otherwise; it is then answered by the default agent. */
const ChannelName = Schema.String.check(Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/u))

const channelExpected = "Expected the name of a channel: 1 to 64 letters, digits, `_`, `.` and `-`"

const answers = (description: string) => AgentName.annotate({ description })

const Routing = struct(
  {
    default_agent: answers("Who answers where no other rule holds.").pipe(
      Schema.annotateKey({
        messageMissingKey: "Expected this key: the name of the agent that answers where no other rule holds"
      })
    ),
    channels: key(
      table(ChannelName, answers("Who answers on this channel."), channelExpected, "Agents of channels."),
      {}
    ),
    senders: key(
      table(
        Schema.String.check(Schema.isPattern(keyPattern)),
        answers("Who answers this sender, or senders like this."),
        keyExpected,
        "Agents of senders: CHANNEL:SENDER, where SENDER may hold * ? [..] (a backslash makes one plain)."
      ),
      {}
    )
  },
  "Which agent answers whom."
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
  "Names of models, by tier. Left out: those that the host has."
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
  "Sessions, their agents, and which agent answers whom."
)

export type ConfigurationFile = typeof ConfigurationFile.Type
