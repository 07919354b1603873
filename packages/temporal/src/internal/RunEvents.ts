/**
 * Follows the journals of a durable run's attempts, as the events of a graph.
 *
 * Journals are read like those of any run: by number, from the run database or a directory that hosts share. A journal
 * that cannot be read delays events, and does not end the run.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { type JournalEntry, RunJournal } from "@cogni/sandbox-core/RunJournal"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { Effect } from "effect"
import { attemptId } from "./RunSteps.ts"

/** Time between two readings. */
const pollMillis = 200

/** Size of one reading. */
const pieceBytesMax = 1024 * 1024

/** Length of the text that is kept for the end of the run. */
const textCharsMax = 1024 * 1024

/** Returns JSON as what it describes, and other texts as they are. A text that was cut is no JSON. */
const valueOf = (text: string): unknown => {
  if (!/^[[{]/u.test(text)) return text
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Returns the event of an entry, if readers of a graph see one. */
export const eventOf = (entry: JournalEntry): AiEvent | undefined => {
  switch (entry.type) {
    case "phase.ended":
      return { type: "status", phase: entry.phase }
    case "message.written":
      return { type: "text_delta", delta: entry.text }
    case "tool.started":
      return {
        type: "tool_call_start",
        toolCallId: entry.toolCallId,
        toolName: entry.tool,
        args: valueOf(entry.arguments)
      }
    case "tool.ended":
      return {
        type: "tool_call_result",
        toolCallId: entry.toolCallId,
        result: valueOf(entry.result),
        ...(entry.isError ? { isError: true } : {})
      }
    default:
      return undefined
  }
}

/** The text of the attempt that is followed. */
export interface Heard {
  text: string
}

/** Follows a run whose attempts have IDs of their own. Ends when the journal of the last possible attempt ends. */
export const follow = Effect.fnUntraced(function* (
  runId: RunId,
  attemptsMax: number,
  heard: Heard,
  emit: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
) {
  const journal = yield* RunJournal
  let isWarned = false
  const read = (attempt: number, after: number) =>
    journal.read({ runId: attemptId(runId, attempt) as RunId, after, bytesMax: pieceBytesMax }).pipe(
      Effect.catch((error) => {
        const isFirst = !isWarned
        isWarned = true
        const warned = isFirst
          ? Effect.logWarning(`the events of ${runId} cannot be read: ${error.message}`)
          : Effect.void
        return Effect.as(warned, undefined)
      })
    )
  const tell = (entries: ReadonlyArray<JournalEntry>) => {
    const events = entries.flatMap((entry) => eventOf(entry) ?? [])
    for (const event of events)
      if (event.type === "text_delta" && heard.text.length < textCharsMax) heard.text += event.delta
    return emit(events)
  }
  for (let attempt = 0, after = 0; ;) {
    const page = yield* read(attempt, after)
    const entries = page?.entries ?? []
    after = entries.at(-1)?.seq ?? after
    yield* tell(entries)
    const isLast = attempt + 1 >= attemptsMax
    if (page?.ended === true && isLast) return
    if (entries.length > 0 && page?.ended !== true) continue
    // The journal of a lost host has no end, so only the next attempt tells.
    if (!isLast && (yield* read(attempt + 1, 0)) !== undefined) {
      attempt += 1
      after = 0
      heard.text = ""
      yield* emit([{ type: "status", phase: "attempt", label: String(attempt + 1) }])
      continue
    }
    yield* Effect.sleep(pollMillis)
  }
})
