/**
 * The messages of a conversation, and the parts of a model's answer.
 */
import { Schema } from "effect"

/** A tool call that a model requests. */
export interface ChatToolCall {
  readonly id: string
  readonly name: string
  /** Arguments as the model wrote them. They may be invalid JSON. */
  readonly arguments: string
}

/** One turn of a conversation. One `tool` message for each call must directly follow an assistant's tool calls. */
export type ChatMessage =
  | { readonly role: "system"; readonly content: string }
  | { readonly role: "user"; readonly content: string }
  | {
      readonly role: "assistant"
      readonly content: string
      readonly toolCalls?: ReadonlyArray<ChatToolCall> | undefined
    }
  | {
      readonly role: "tool"
      readonly toolCallId: string
      readonly toolName: string
      readonly content: string
    }

/** Model endpoint: a run's proxy socket (`Sandbox.llmSocketPath`), or a base URL like `http://localhost:4000/v1`. */
export type ChatEndpoint = { readonly socketPath: string } | { readonly baseUrl: string }

/** Why an answer ended. */
export const ChatFinish = Schema.Literals(["stop", "length", "tool_calls", "content_filter", "other"])

export type ChatFinish = typeof ChatFinish.Type

/** A piece of an answer. `finish` is the last, and comes once. */
export type ChatPart =
  | { readonly type: "text_delta"; readonly delta: string }
  | ({ readonly type: "tool_call" } & ChatToolCall)
  /** As reported by the upstream; counts that it omits are absent. */
  | {
      readonly type: "usage"
      readonly inputTokens?: number | undefined
      readonly outputTokens?: number | undefined
    }
  | { readonly type: "finish"; readonly reason: ChatFinish }
