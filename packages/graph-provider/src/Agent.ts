/**
 * A coding agent, as data: what to start, what to place beside it, and how to read what it says.
 *
 * An agent is no code that runs on the host. `argv` and `inputs` are pure functions of a task, `parse` is a pure
 * function of what came out of the sandbox, and treats every byte of it as hostile. Credentials are not its business:
 * how it finds its model is set by core, and leads to a socket.
 */
import { Data, type Result, Schema } from "effect"
import type { Input, Limits } from "@cogni/sandbox-core/SandboxSpec"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export const AgentId = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9-]{0,31}$/u, {
    expected: "at most 32 lower-case letters, digits and hyphens, starting with a letter"
  })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/AgentId"))

/** @category models */
export type AgentId = typeof AgentId.Type

/** Which of a model API's dialects an agent speaks. @category models */
export const ModelApi = Schema.Literals(["chat-completions", "responses", "messages"])

/** @category models */
export type ModelApi = typeof ModelApi.Type

/** What people and catalogs see of an agent. @category models */
export const AgentDescription = Schema.Struct({
  id: AgentId,
  name: Schema.NonEmptyString,
  description: Schema.NonEmptyString,
  /** Folder under `images/`; the caller knows the tag that belongs to it. */
  image: Schema.String.check(Schema.isPattern(/^[a-z][a-z0-9-]{0,63}$/u)),
  modelApi: ModelApi
})

/** @category models */
export type AgentDescription = typeof AgentDescription.Type

/** One turn of a conversation, as every model API has it. @category models */
export const Message = Schema.Struct({
  role: Schema.Literals(["system", "user", "assistant"]),
  content: Schema.String
})

/** @category models */
export type Message = typeof Message.Type

/** What an agent is asked to do. @category models */
export interface AgentTask {
  readonly messages: readonly [Message, ...ReadonlyArray<Message>]
}

/** Tokens, as the agent counted them. For people; the ledger has its own. @category models */
export const AgentUsage = Schema.Struct({
  inputTokens: Schema.optionalKey(Schema.Int),
  outputTokens: Schema.optionalKey(Schema.Int)
})

/** @category models */
export type AgentUsage = typeof AgentUsage.Type

/** @category models */
export const AgentAnswer = Schema.Struct({
  text: Schema.String,
  usage: Schema.optionalKey(AgentUsage),
  sessionId: Schema.optionalKey(Schema.String)
})

/** @category models */
export type AgentAnswer = typeof AgentAnswer.Type

/** @category models */
export interface Agent extends AgentDescription {
  /** A prompt travels in a file, never here: one argument is capped at 128 KiB. */
  readonly argv: (task: AgentTask) => readonly [string, ...ReadonlyArray<string>]
  readonly env: Readonly<Record<string, string>>
  /** What this agent needs where the caller has not said otherwise. */
  readonly limits: Partial<Limits>
  readonly inputs: (task: AgentTask) => ReadonlyArray<Input>
  /** The whole of standard output. An error of the agent is a failure here, and never an answer. */
  readonly parse: (output: string) => Result.Result<AgentAnswer, AgentFailed>
}

// -----------------------------------------------------------------------------
// errors
// -----------------------------------------------------------------------------

/** The agent gave no answer: it said why, or what it said cannot be read. @category errors */
export class AgentFailed extends Data.TaggedError("AgentFailed")<{
  /** The agent's own code, or `unreadable`. */
  readonly code: string
  readonly detail: string
  /** What it had said of an answer until then. */
  readonly textSoFar: string
}> {
  override get message(): string {
    return `the agent gave no answer: ${this.detail} (${this.code})`
  }
}

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** A task of one question. @category constructors */
export const ask = (prompt: string): AgentTask => ({ messages: [{ role: "user", content: prompt }] })

/** @category constructors */
export const unreadable = (detail: string): AgentFailed =>
  new AgentFailed({ code: "unreadable", detail, textSoFar: "" })

/** The file in which agents find their messages. @category constructors */
export const messagesInput = (task: AgentTask): Input => ({
  name: "messages.json",
  content: JSON.stringify(task.messages)
})
