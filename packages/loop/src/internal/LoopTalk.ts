/** State of a loop and of its conversation. */
import type * as ChatMessage from "../ChatMessage.ts"
import * as ChatBounds from "./ChatBounds.ts"
import type { ToolSession } from "../Tool.ts"
import type { ToolSet } from "../ToolSet.ts"
import type { Tell } from "../LoopEvent.ts"
import type { LoopLimits } from "../LoopLimits.ts"

/** One loop, shared by its parts. */
export interface Loop {
  readonly at: ChatMessage.ChatEndpoint
  readonly model: string
  readonly tools: ToolSet
  readonly session: ToolSession
  readonly limits: LoopLimits
  readonly tell: Tell
  readonly talk: Talk
}

/** Mutable state, which is also read when the loop ends early. */
export interface Talk {
  readonly messages: Array<ChatMessage.ChatMessage>
  contextBytes: number
  steps: number
  toolCalls: number
  invalidCalls: number
  text: string
  usage: { inputTokens: number; outputTokens: number }
  /** A call that has started and has no answer yet. */
  open: { readonly id: string; readonly name: string; readonly startedMs: number } | undefined
  readonly callIds: Set<string>
}

export const make = (messages: ReadonlyArray<ChatMessage.ChatMessage>): Talk => {
  const talk: Talk = {
    messages: [],
    contextBytes: 0,
    steps: 0,
    toolCalls: 0,
    invalidCalls: 0,
    text: "",
    usage: { inputTokens: 0, outputTokens: 0 },
    open: undefined,
    callIds: new Set()
  }
  for (const message of messages) remember(talk, message)
  return talk
}

export const remember = (talk: Talk, message: ChatMessage.ChatMessage): void => {
  talk.messages.push(message)
  talk.contextBytes += ChatBounds.bytesOf({ type: "text_delta", delta: message.content })
  if (message.role !== "assistant") return
  for (const call of message.toolCalls ?? []) {
    talk.callIds.add(call.id)
    talk.contextBytes += ChatBounds.bytesOf({ type: "tool_call", ...call })
  }
}
