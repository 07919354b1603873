/** Writes what an agent reports to the journal of its run. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { type JournalEvent, type RunJournals, textCharsMax } from "@cogni/sandbox-core/RunJournal"
import { Effect, Schema } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"

/** Returns a text as it is, and anything else as JSON. */
const textOf = (value: unknown): string => {
  const text = typeof value === "string" ? value : JSON.stringify(value)
  return (text ?? "").slice(0, textCharsMax)
}

/** Returns the journal's event, if there is one: the phases of a run are in its journal already. */
export const eventOf = (event: AiEvent): JournalEvent | undefined => {
  switch (event.type) {
    case "text_delta":
      return { type: "message.written", text: event.delta }
    case "tool_call_start":
      return {
        type: "tool.started",
        toolCallId: event.toolCallId,
        tool: event.toolName,
        arguments: textOf(event.args)
      }
    case "tool_call_result":
      return {
        type: "tool.ended",
        toolCallId: event.toolCallId,
        isError: event.isError === true,
        result: textOf(event.result)
      }
    default:
      return undefined
  }
}

const isRunId = Schema.is(RunId)

/**
 * Writes the events of one run to its journal. Without a valid ID there is nothing to write: the run is refused.
 *
 * `hold` keeps the journal open until the scope closes, because an agent's output is read behind its run.
 */
export const make = (journal: RunJournals, runId: string | undefined) => ({
  hold: isRunId(runId) ? journal.hold(runId) : Effect.void,
  write: (events: ReadonlyArray<AiEvent>): Effect.Effect<void> =>
    Effect.forEach(
      events,
      (event) => {
        const entry = eventOf(event)
        return entry === undefined || !isRunId(runId) ? Effect.void : journal.write(runId, entry)
      },
      { discard: true }
    )
})
