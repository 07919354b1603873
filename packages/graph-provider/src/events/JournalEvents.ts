/**
 * The events of an agent in the journal of its run, and back: both directions of one table. Pure.
 *
 * A journal has texts. Arguments and results that are no text are JSON in it, cut like every text of a journal.
 */
import { type JournalEntry, type JournalEvent, textCharsMax } from "@cogni/sandbox-core/RunJournal"
import type { AiEvent } from "./AiEvent.ts"

/** Returns a text as it is, and anything else as JSON. */
const textOf = (value: unknown): string => {
  const text = typeof value === "string" ? value : JSON.stringify(value)
  return (text ?? "").slice(0, textCharsMax)
}

/** Returns JSON as what it describes, and other texts as they are. A text that was cut is no JSON. */
const valueOf = (text: string): unknown => {
  if (!/^[[{]/u.test(text)) return text
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Returns the journal's event of what an agent reports, if there is one: phases are in the journal already. */
export const toJournal = (event: AiEvent): JournalEvent | undefined => {
  switch (event.type) {
    case "text_delta":
      return { type: "message.written", text: event.delta }
    case "tool_call_start": {
      const { args, toolCallId, toolName } = event
      return { type: "tool.started", toolCallId, tool: toolName, arguments: textOf(args) }
    }
    case "tool_call_result": {
      const { isError = false, result, toolCallId } = event
      return { type: "tool.ended", toolCallId, isError, result: textOf(result) }
    }
    default:
      return undefined
  }
}

/** Returns the event of an entry, if readers of a graph see one. */
export const fromJournal = (entry: JournalEntry): AiEvent | undefined => {
  switch (entry.type) {
    case "phase.ended":
      return { type: "status", phase: entry.phase }
    case "message.written":
      return { type: "text_delta", delta: entry.text }
    case "tool.started": {
      const { arguments: args, tool, toolCallId } = entry
      return { type: "tool_call_start", toolCallId, toolName: tool, args: valueOf(args) }
    }
    case "tool.ended": {
      const { isError, result, toolCallId } = entry
      return {
        type: "tool_call_result",
        toolCallId,
        result: valueOf(result),
        ...(isError ? { isError: true } : {})
      }
    }
    default:
      return undefined
  }
}
