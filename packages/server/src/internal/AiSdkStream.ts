/**
 * Encodes a run's events as the UI message stream of the AI SDK (version 1 of its protocol), for `useChat` and similar
 * clients.
 *
 * Pure. Consecutive text deltas form one text part, which a tool call ends. The tools belong to the agent, so they are
 * dynamic and executed by the provider. Status and usage are data parts, of which only usage stays in the message.
 */
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as EventStream from "./EventStream.ts"

/** Value of the query parameter `protocol` that selects this encoding. */
export const protocol = "ai-sdk"

export const headers: Readonly<Record<string, string>> = {
  ...EventStream.headers,
  "x-vercel-ai-ui-message-stream": "v1"
}

type Part = Readonly<Record<string, unknown>> & { readonly type: string }

export const make = (runId: string): EventStream.EventEncoder => {
  let texts = 0
  let isOpen = false
  let hasSpoken = false

  const textId = () => `${runId}-${texts}`

  const speak = (delta: string): ReadonlyArray<Part> => {
    hasSpoken = true
    const part = (): Part => ({ type: "text-delta", id: textId(), delta })
    if (isOpen) return [part()]
    isOpen = true
    texts += 1
    return [{ type: "text-start", id: textId() }, part()]
  }

  const close = (): ReadonlyArray<Part> => {
    if (!isOpen) return []
    isOpen = false
    return [{ type: "text-end", id: textId() }]
  }

  const partsOf = (event: AiEvent): ReadonlyArray<Part> => {
    switch (event.type) {
      case "text_delta":
        return speak(event.delta)
      case "assistant_final":
        return hasSpoken || event.content === "" ? close() : [...speak(event.content), ...close()]
      case "tool_call_start": {
        const { args: input, toolCallId, toolName } = event
        return [...close(), { ...calling, type: "tool-input-available", toolCallId, toolName, input }]
      }
      case "tool_call_result": {
        const { isError, result, toolCallId } = event
        return isError === true
          ? [{ ...calling, type: "tool-output-error", toolCallId, errorText: textOf(result) }]
          : [{ ...calling, type: "tool-output-available", toolCallId, output: result }]
      }
      case "status": {
        const { type: _, ...data } = event
        return [{ type: "data-status", data, transient: true }]
      }
      case "usage_report":
        return [{ type: "data-usage", data: event.fact }]
      case "error":
        return [...close(), { type: "error", errorText: event.message ?? event.error }]
      case "done":
        return [...close(), { type: "finish" }]
    }
  }

  return {
    begin: frame({ type: "start", messageId: runId }),
    encode: (events) =>
      events
        .map((event) => `${partsOf(event).map(frame).join("")}${event.type === "done" ? done : ""}`)
        .join(""),
    headers
  }
}

const calling = { dynamic: true, providerExecuted: true }

const done = "data: [DONE]\n\n"

const frame = (part: Part): string => `data: ${JSON.stringify(part)}\n\n`

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value))
