/**
 * A coding agent, as data: what to start, what to place beside it, and how to read what it says.
 *
 * An agent is no code that runs on the host. `argv`, `env` and `inputs` are pure functions of a task, and `reader` of
 * what came out of the sandbox, every byte of which is taken for hostile. Credentials are not its business: how it
 * finds its model is set by core, and leads to a socket.
 */
import { Schema } from "effect"
import type { Input, Limits } from "@cogni/sandbox-core/SandboxSpec"
import type { AgentReader } from "./AgentOutput.ts"

export const AgentId = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9-]{0,31}$/u, {
    expected: "at most 32 lower-case letters, digits and hyphens, starting with a letter"
  })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/AgentId"))

export type AgentId = typeof AgentId.Type

/** Which of a model API's dialects an agent speaks. */
export const ModelApi = Schema.Literals(["chat-completions", "responses", "messages"])

export type ModelApi = typeof ModelApi.Type

/** A name an agent's configuration knows a character by. */
export const Personality = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9_-]{0,63}$/u, {
    expected: "at most 64 lower-case letters, digits, underscores and hyphens, starting with a letter"
  })
)

/** What an agent can and cannot do. A task that asks for more is refused before anything is made. */
export const Capabilities = Schema.Struct({
  /** Calls tools of its own: reads and changes files, runs commands. */
  tools: Schema.Boolean,
  /** Its answer: `delta` as it is written, `message` whole messages as they are done, `final` once at the end. */
  streaming: Schema.Literals(["delta", "message", "final"]),
  /** Tool calls are among its events. */
  toolEvents: Schema.Boolean,
  /** Earlier turns: `messages` are handed over as they are, `prompt` written into one prompt. */
  history: Schema.Literals(["messages", "prompt"]),
  /** The characters that it can be asked to act as, where it has several. */
  personalities: Schema.Array(Personality)
})

export type Capabilities = typeof Capabilities.Type

/** Of a coding agent that has tools of its own, says what it does with them, and takes one prompt. */
export const codingCapabilities = (streaming: Capabilities["streaming"]): Capabilities => ({
  tools: true,
  streaming,
  toolEvents: true,
  history: "prompt",
  personalities: []
})

/** What people and catalogs see of an agent. */
export const AgentDescription = Schema.Struct({
  id: AgentId,
  name: Schema.NonEmptyString,
  description: Schema.NonEmptyString,
  /** Folder under `images/`; the caller knows the tag that belongs to it. */
  image: Schema.String.check(Schema.isPattern(/^[a-z][a-z0-9-]{0,63}$/u)),
  modelApi: ModelApi,
  capabilities: Capabilities
})

export type AgentDescription = typeof AgentDescription.Type

/** One turn of a conversation, as every model API has it. */
export const Message = Schema.Struct({
  role: Schema.Literals(["system", "user", "assistant"]),
  content: Schema.String
})

export type Message = typeof Message.Type

/** What an agent is asked to do, and what it must know to do it. */
export interface AgentTask {
  readonly messages: readonly [Message, ...ReadonlyArray<Message>]
  /** As the agent is to ask for it at `http://localhost:8080`. */
  readonly model: string
  /** Of the run: a session of the agent's own is called the same. */
  readonly runId: string
  /** Where it works, inside the sandbox. */
  readonly workingDirectory: string
  /** When the run is ended from outside, counted from the agent's first instruction. */
  readonly runtimeSecondsMax: number
  /** Only for agents that have personalities. */
  readonly personality?: string | undefined
}

type Argv = readonly [string, ...ReadonlyArray<string>]

export interface Agent extends AgentDescription {
  /** A prompt travels in a file, never here: one argument is capped at 128 KiB, and shows in `ps`. */
  readonly argv: (task: AgentTask) => Argv
  readonly env: (task: AgentTask) => Readonly<Record<string, string>>
  /** What this agent needs where the caller has not said otherwise. */
  readonly limits: Partial<Limits>
  /** Files at `/cogni/<name>`, read-only. */
  readonly inputs: (task: AgentTask) => ReadonlyArray<Input>
  /** For the standard output of one run. */
  readonly reader: AgentReader
}

/** The file in which agents find their messages. */
export const messagesInput = (task: Pick<AgentTask, "messages">): Input => ({
  name: "messages.json",
  content: JSON.stringify(task.messages)
})

/** The file in which agents find their prompt, and where it is. */
export const promptInput = (task: Pick<AgentTask, "messages">): Input => ({
  name: "prompt.md",
  content: prompt(task.messages)
})

/** What agents call the one place where models are. */
export const provider = "cogni"

/** That place, as pi and OpenClaw are told of it. */
export const chatProvider = ({ model }: AgentTask) => ({
  baseUrl: "http://localhost:8080/v1",
  api: "openai-completions",
  apiKey: "none",
  models: [{ id: model, name: model }]
})

/** The tag of an agent's image where nobody said another. */
export const defaultImage = (image: string): string => `cogni-sandbox/${image}:latest`

export const promptPath = "/cogni/prompt.md"

/** A program in the runtime image: becomes a command whose standard input is a file. */
export const withPrompt = (argv: Argv): Argv => ["/usr/local/bin/cogni-stdin", promptPath, ...argv]

/**
 * A conversation as one prompt, for agents that take no other: what is asked now comes last, as it is; what was said
 * before is quoted above it, each turn under its role.
 */
export const prompt = (messages: AgentTask["messages"]): string => {
  const earlier = messages.slice(0, -1)
  const last = messages.at(-1)!
  if (earlier.length === 0) return last.content
  const turns = earlier.map(({ content, role }) => `<${role}>\n${content}\n</${role}>`)
  return [`What was said before:`, ...turns, `What is asked now:`, last.content].join("\n\n")
}
