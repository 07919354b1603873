/** What a loop is, what it knows of itself, and what is remembered of its conversation. */
import * as ChatModel from "../ChatModel.ts"
import type { Tool, ToolSession } from "../Tool.ts"
import type { Tell } from "./LoopEvent.ts"
import type { LoopLimits } from "./LoopLimits.ts"

/** One loop, as all of its parts have it. */
export interface Loop {
  readonly at: ChatModel.ChatEndpoint
  readonly model: string
  readonly tools: ReadonlyArray<Tool>
  readonly session: ToolSession
  readonly limits: LoopLimits
  readonly tell: Tell
  readonly talk: Talk
}

/** Asked for also where the loop is cut short. */
export interface Talk {
  readonly messages: Array<ChatModel.ChatMessage>
  contextBytes: number
  steps: number
  toolCalls: number
  invalidCalls: number
  text: string
  usage: { inputTokens: number; outputTokens: number }
  /** A call that was begun, and has no answer yet. */
  open: { readonly id: string; readonly name: string; readonly startedMs: number } | undefined
  readonly callIds: Set<string>
}

export const make = (messages: ReadonlyArray<ChatModel.ChatMessage>): Talk => {
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

export const remember = (talk: Talk, message: ChatModel.ChatMessage): void => {
  talk.messages.push(message)
  talk.contextBytes += ChatModel.bytesOf({ type: "text_delta", delta: message.content })
  if (message.role !== "assistant") return
  for (const call of message.toolCalls ?? []) {
    talk.callIds.add(call.id)
    talk.contextBytes += ChatModel.bytesOf({ type: "tool_call", ...call })
  }
}
