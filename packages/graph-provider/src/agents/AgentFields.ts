/**
 * The fields of agents and of their tasks that other values share.
 */
import { Schema } from "effect"

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
