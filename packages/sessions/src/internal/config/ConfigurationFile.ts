/**
 * The shape of a configuration file, key by key as it is written: what an editor is told, and what a file is held to.
 *
 * Nothing is converted here and nothing filled in but defaults, so that what is published as JSON Schema and what is
 * read are the same. What one key says of another is in `ConfigurationRules`.
 */
import { SandboxSpec } from "@cogni/sandbox-core/SandboxSpec"
import { Effect, Schema } from "effect"
import { AgentName, ModelTier, ToolEntry } from "../../config/AgentConfig.ts"
import { ToolProfile } from "@cogni/sandbox-loop/ToolProfile"
import * as Quantity from "./ConfigurationQuantity.ts"
import * as SenderPattern from "./SenderPattern.ts"

const withDefault = <S extends Schema.Top>(schema: S, value: S["Encoded"]) =>
  schema.pipe(Schema.withDecodingDefaultKey(Effect.succeed(value)))

const whole = (minimum: number, maximum: number, unit: string) =>
  Schema.Int.check(
    Schema.isBetween(
      { minimum, maximum },
      { expected: `a whole number${unit} from ${minimum} to ${maximum}` }
    )
  )

const seconds = (maximum: number, fallback: number, description: string) =>
  withDefault(whole(1, maximum, " of seconds").annotate({ description, default: fallback }), fallback)

const flag = (fallback: boolean, description: string) =>
  withDefault(Schema.Boolean.annotate({ description, default: fallback }), fallback)

/** In UTF-8. The longest that is reasonable to say to a model before anything else. */
const promptBytesMax = 64 * 1024

/** How many agents, channels and senders there may be, of each. */
const entriesMax = 2000

const whenFull = Schema.Literals(["refuse", "evict_idle"]).annotate({
  description:
    "What happens to a new session when there are sessions_max: it is refused, or the longest idle one is ended.",
  message: "Expected refuse or evict_idle",
  default: "refuse"
})

const onUnavailable = Schema.Literals(["refuse", "host"]).annotate({
  description:
    "What happens when the engine is not there: commands are refused, or run on the host, which is said each time.",
  message: "Expected refuse or host",
  default: "refuse"
})

const memoryLimit = Schema.Union([
  Schema.String.check(
    Schema.isPattern(Quantity.sizePattern, { expected: Quantity.sizeExpected }),
    Quantity.isMemory
  ),
  Schema.Finite.check(Quantity.isMemory)
]).annotate({
  description:
    "Memory of one container, /tmp included: bytes, or a number with b, k, m or g (powers of 1024).",
  message: `Expected ${Quantity.sizeExpected}`,
  default: "512m"
})

const cpuLimit = Schema.Union([
  Schema.String.check(
    Schema.isPattern(Quantity.cpusPattern, { expected: Quantity.cpusExpected }),
    Quantity.isCpus
  ),
  Schema.Finite.check(Quantity.isCpus)
]).annotate({
  description: "Processors of one container, or parts of one.",
  message: `Expected ${Quantity.cpusExpected}`,
  default: "1.0"
})

const Sandbox = Schema.Struct({
  enabled: flag(
    false,
    "Whether agents execute in containers. Without: on the host, if there is a host executor at all."
  ),
  image: withDefault(
    SandboxSpec.fields.image.annotate({
      description: "An image built on the runtime image, already on the engine: nothing is pulled.",
      default: "cogni-sandbox/runtime:latest"
    }),
    "cogni-sandbox/runtime:latest"
  ),
  workspace_dir: withDefault(
    Schema.Literal("/workspace").annotate({
      description: "Where the files of a session are inside: there, and nowhere else.",
      message: "Expected /workspace: a sandbox has its files there, and nowhere else",
      default: "/workspace"
    }),
    "/workspace"
  ),
  network: withDefault(
    Schema.String.check(
      Schema.isPattern(Quantity.networkPattern, { message: Quantity.networkExpected })
    ).annotate({
      description:
        "none; or internal:NAME, an internal docker network (no route out), with allow_unsafe_network.",
      default: "none"
    }),
    "none"
  ),
  allow_unsafe_network: flag(
    false,
    "Whether network may name an internal network: containers on it see each other."
  ),
  memory_limit: withDefault(memoryLimit, "512m"),
  cpu_limit: withDefault(cpuLimit, "1.0"),
  timeout_seconds: seconds(
    86_400,
    300,
    "How long one container lives, wall clock; then it is ended, with all that runs in it."
  ),
  command_timeout_seconds: Schema.optionalKey(
    whole(1, 86_400, " of seconds").annotate({
      description: "How long one command may run. 120 when left out, or timeout_seconds where that is less."
    })
  ),
  idle_seconds: seconds(
    604_800,
    900,
    "A session without a message for this long is ended, with its container."
  ),
  sessions_max: withDefault(
    whole(1, 1000, "").annotate({ description: "Sessions at one time.", default: 20 }),
    20
  ),
  when_full: withDefault(whenFull, "refuse"),
  on_unavailable: withDefault(onUnavailable, "refuse"),
  persistent_workspaces: flag(false, "Whether the files of a session are there again when it comes back.")
}).annotate({ description: "Containers of sessions." })

const toolList = (description: string) =>
  withDefault(
    Schema.Array(ToolEntry)
      .annotate({ description, default: [] })
      .check(Schema.isMaxLength(100, { expected: "at most 100 tools" })),
    []
  )

const Agent = Schema.Struct({
  system_prompt: Schema.optionalKey(
    Schema.String.annotate({
      description: "What the model is told before anything else, instead of the prompt of the host."
    }).check(
      Schema.isMinLength(1, { expected: "a prompt with at least one character" }),
      Quantity.isAtMostBytes(promptBytesMax)
    )
  ),
  model_tier: withDefault(
    ModelTier.annotate({
      description: "How able a model the agent gets.",
      message: `Expected one of ${ModelTier.literals.join(", ")}`,
      default: "default"
    }),
    "default"
  ),
  tool_profile: withDefault(
    ToolProfile.annotate({
      description: "Which tools the agent may call.",
      message: `Expected one of ${ToolProfile.literals.join(", ")}`,
      default: "minimal"
    }),
    "minimal"
  ),
  tool_overrides: withDefault(
    Schema.Struct({
      allow: toolList("Also these, whatever the profile says."),
      deny: toolList("Never these; goes before allow.")
    }).annotate({ description: "What differs from the profile.", default: { allow: [], deny: [] } }),
    {}
  ),
  sandbox: flag(
    true,
    "Whether the agent executes in a container, where sandbox.enabled. Without: on the host, if there is a host executor at all."
  )
}).annotate({ description: "One agent, under its name." })

const agentReference = (description: string) => AgentName.annotate({ description })

const channelExpected = "the name of a channel: 1 to 64 letters, digits, `_`, `.` and `-`"

/** In a file. In a message a channel may be called otherwise; it is then answered by the default agent. */
const ChannelName = Schema.String.check(
  Schema.isPattern(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/u, { expected: channelExpected })
)

const entries = (what: string) =>
  Schema.isMaxProperties(entriesMax, { expected: `at most ${entriesMax} ${what}` })

const Routing = Schema.Struct({
  default_agent: agentReference("Who answers where no other rule holds.").pipe(
    Schema.annotateKey({
      messageMissingKey: "Expected this key: the name of the agent that answers where no other rule holds"
    })
  ),
  channels: withDefault(
    Schema.Record(ChannelName, agentReference("Who answers on this channel."))
      .annotate({
        description: "Agents of channels.",
        messageUnexpectedKey: `Expected ${channelExpected}`,
        default: {}
      })
      .check(entries("channels")),
    {}
  ),
  senders: withDefault(
    Schema.Record(
      Schema.String.check(Schema.isPattern(SenderPattern.keyPattern)),
      agentReference("Who answers this sender, or senders like this.")
    )
      .annotate({
        description:
          "Agents of senders: CHANNEL:SENDER, where SENDER may hold * ? [..], and a backslash before what stands for itself.",
        messageUnexpectedKey: SenderPattern.keyExpected,
        default: {}
      })
      .check(entries("senders")),
    {}
  )
}).annotate({ description: "Which agent answers whom." })

const modelOf = (tier: string) =>
  Schema.optionalKey(
    Schema.String.check(
      Schema.isPattern(/^[^\s\p{C}]{1,200}$/u, {
        expected: "the name of a model: 1 to 200 characters without blanks"
      })
    ).annotate({ description: `The model of the tier ${tier}.` })
  )

const Models = Schema.Struct({
  fast: modelOf("fast"),
  default: modelOf("default"),
  complex: modelOf("complex"),
  local: modelOf("local")
}).annotate({ description: "Names of models, by tier. Left out: those that the host has." })

export const ConfigurationFile = Schema.Struct({
  sandbox: withDefault(Sandbox, {}),
  agent_configs: Schema.Record(AgentName, Agent)
    .annotate({
      description: "Agents, by name.",
      messageUnexpectedKey:
        "Expected the name of an agent: 1 to 64 lower-case letters, digits, `_` and `-`, beginning with a letter"
    })
    .check(Schema.isMinProperties(1, { expected: "at least one agent" }), entries("agents"))
    .pipe(Schema.annotateKey({ messageMissingKey: "Expected this key: at least one agent, under its name" })),
  routing: Routing.pipe(
    Schema.annotateKey({ messageMissingKey: "Expected this key: a mapping with default_agent at least" })
  ),
  models: Schema.optionalKey(Models)
}).annotate({ description: "Sessions, their agents, and which agent answers whom." })

export type ConfigurationFile = typeof ConfigurationFile.Type
