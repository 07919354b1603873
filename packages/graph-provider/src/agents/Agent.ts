/**
 * A coding agent as data: what to start, which files to place in its sandbox, and how to parse its output.
 *
 * No code of the agent runs on the host. `argv`, `env` and `inputs` are pure functions of a task. `reader` is a pure
 * function of the sandbox's output, every byte of which it treats as hostile. An agent has no access to credentials:
 * core configures how it reaches its model, through a socket.
 */
import { Schema } from "effect"
import type { Input, Limits } from "@cogni/sandbox-core/SandboxSpec"
import * as SessionDirectory from "../internal/SessionDirectory.ts"
import { type AgentReader, answered, failed, jsonLines, whole } from "./AgentOutput.ts"

export const AgentId = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9-]{0,31}$/u, {
    expected: "at most 32 lower-case letters, digits and hyphens, starting with a letter"
  })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/AgentId"))

export type AgentId = typeof AgentId.Type

/** The model API that an agent uses. */
export const ModelApi = Schema.Literals(["chat-completions", "responses", "messages"])

export type ModelApi = typeof ModelApi.Type

/** Name of a personality in an agent's configuration. */
export const Personality = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9_-]{0,63}$/u, {
    expected: "at most 64 lower-case letters, digits, underscores and hyphens, starting with a letter"
  })
)

/** Capabilities of an agent. A task that needs more is rejected before any resource is created. */
export const Capabilities = Schema.Struct({
  /** Has its own tools: reads and changes files, runs commands. */
  tools: Schema.Boolean,
  /** How its answer arrives: `delta` as it is written, `message` in whole messages, `final` once at the end. */
  streaming: Schema.Literals(["delta", "message", "final"]),
  /** Reports its tool calls as events. */
  toolEvents: Schema.Boolean,
  /** How it receives earlier turns: `messages` unchanged, `prompt` merged into one prompt. */
  history: Schema.Literals(["messages", "prompt"]),
  /** Personalities that a task can choose. Empty if the agent has none to choose from. */
  personalities: Schema.Array(Personality),
  /** Models of personalities that have their own: the model of a run that names none. */
  personalityModels: Schema.optionalKey(Schema.Record(Personality, Schema.NonEmptyString)),
  /**
   * Continues its own session in the next turn of a remembered thread. If absent or `false`, it receives the earlier
   * turns as `history` says.
   */
  sessions: Schema.optionalKey(Schema.Boolean),
  /**
   * `none` if it starts no subagents as it is configured, `marked` if it marks their calls, so that the gateway can
   * bound them. If absent, a run with a share for subagents is refused.
   */
  subagents: Schema.optionalKey(Schema.Literals(["none", "marked"]))
})

export type Capabilities = typeof Capabilities.Type

/** Capabilities of a coding agent that has its own tools, reports their calls, and takes one prompt. */
export const codingCapabilities = (streaming: Capabilities["streaming"]): Capabilities => ({
  tools: true,
  streaming,
  toolEvents: true,
  history: "prompt",
  personalities: [],
  sessions: true
})

/** Description of an agent for people and catalogs. */
export const AgentDescription = Schema.Struct({
  id: AgentId,
  name: Schema.NonEmptyString,
  description: Schema.NonEmptyString,
  /**
   * A full reference, such as `registry.example.com/agent:1`, or a short name, such as `codex`, for which the caller has
   * a tag.
   */
  image: Schema.String.check(
    Schema.isPattern(/^[a-z0-9][\w.:/@-]{0,511}$/u, { expected: "a short name, or a reference of an image" })
  ),
  modelApi: ModelApi,
  capabilities: Capabilities
})

export type AgentDescription = typeof AgentDescription.Type

/** One turn of a conversation, in the form that all model APIs share. */
export const Message = Schema.Struct({
  role: Schema.Literals(["system", "user", "assistant"]),
  content: Schema.String
})

export type Message = typeof Message.Type

/** An agent's own session, which it continues from turn to turn of a thread. */
export interface AgentSession {
  /** A UUID that the host chose. */
  readonly id: string
  /** True in the first turn: there is nothing to continue. */
  readonly isNew: boolean
  /** The agent's directory for this session alone, inside the sandbox. It may be missing in the first turn. */
  readonly directory: string
}

/** The input of an agent: the conversation and the parameters of its run. */
export interface AgentTask {
  readonly messages: readonly [Message, ...ReadonlyArray<Message>]
  /** Model name for requests to `http://localhost:8080`. */
  readonly model: string
  /** ID of the run. An agent's own session has the same name. */
  readonly runId: string
  /** Working directory inside the sandbox. */
  readonly workingDirectory: string
  /** Time after which the host ends the run, counted from the agent's first instruction. */
  readonly runtimeSecondsMax: number
  /** Only for agents that have personalities. */
  readonly personality?: string | undefined
  /** Settings of the personality that are options of the agent, in words that it knows. */
  readonly settings?:
    | {
        /** How much its model thinks. */
        readonly effort?: string | undefined
        /** Tools that neither it nor its subagents can use. */
        readonly toolsDenied?: ReadonlyArray<string> | undefined
        /** File with its subagents, inside the sandbox. */
        readonly subagentsPath?: string | undefined
      }
    | undefined
  /** Only for agents that have `sessions`. Absent: the agent keeps nothing of its run. */
  readonly session?: AgentSession | undefined
}

type Argv = readonly [string, ...ReadonlyArray<string>]

export interface Agent extends AgentDescription {
  /** Command line, without the prompt: one argument is limited to 128 KiB, and visible in `ps`. */
  readonly argv: (task: AgentTask) => Argv
  readonly env: (task: AgentTask) => Readonly<Record<string, string>>
  /** Limits that this agent needs, unless the caller sets others. */
  readonly limits: Partial<Limits>
  /** Files at `/cogni/<name>`, read-only. */
  readonly inputs: (task: AgentTask) => ReadonlyArray<Input>
  /** Parses the standard output of one run. */
  readonly reader: AgentReader
}

/**
 * Parts of a reader for an agent of an application: `jsonLines` for one JSON object per line, `whole` for one document
 * at the end; `answered` and `failed` for its outcome. They bound the size of what they read, and never throw.
 */
export const readers = { answered, failed, jsonLines, whole } as const

/** Returns the input file that contains the messages. */
export const messagesInput = (task: Pick<AgentTask, "messages">): Input => ({
  name: "messages.json",
  content: JSON.stringify(task.messages)
})

/** Returns the input file that contains the prompt. */
export const promptInput = (task: Pick<AgentTask, "messages">): Input => ({
  name: "prompt.md",
  content: prompt(task.messages)
})

/** Name of the only model provider in the configuration of agents. */
export const provider = "cogni"

/** Provider entry in the configuration of pi and OpenClaw. */
export const chatProvider = ({ model }: AgentTask) => ({
  baseUrl: "http://localhost:8080/v1",
  api: "openai-completions",
  apiKey: "none",
  models: [{ id: model, name: model }]
})

/** Returns the default tag of an agent's image. A full reference has a tag, a digest or a path, and is returned as it is. */
export const defaultImage = (image: string): string =>
  /[:/@]/u.test(image) ? image : `cogni-sandbox/${image}:latest`

export const promptPath = "/cogni/prompt.md"

/** Makes the prompt file the standard input of a command, with a program of the runtime image. */
export const withPrompt = (argv: Argv): Argv => ["/usr/local/bin/cogni-stdin", promptPath, ...argv]

/**
 * Creates the directory of a session before a command starts, because some agents refuse a missing one. `configuration`
 * names what configures the agent there: an earlier turn may have written it, so it is removed.
 */
export const withSession = (
  session: AgentSession | undefined,
  argv: Argv,
  configuration: ReadonlyArray<string> = []
): Argv =>
  session === undefined
    ? argv
    : [
        "/bin/sh",
        "-c",
        SessionDirectory.script,
        "sh",
        session.directory,
        String(configuration.length),
        ...configuration,
        ...argv
      ]

/**
 * Merges a conversation into one prompt, for agents that accept nothing else. The last message comes last, unchanged.
 * Earlier turns are quoted above it, each in a tag of its role.
 */
export const prompt = (messages: AgentTask["messages"]): string => {
  const earlier = messages.slice(0, -1)
  const last = messages.at(-1)!
  if (earlier.length === 0) return last.content
  const turns = earlier.map(({ content, role }) => `<${role}>\n${content}\n</${role}>`)
  return ["Earlier messages:", ...turns, "The current request:", last.content].join("\n\n")
}
