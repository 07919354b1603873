/** Writes what an agent reports to the journal of its run. */
import { RunId } from "@cogni/sandbox-core/RunId"
import type { RunJournals } from "@cogni/sandbox-core/RunJournal"
import { Effect, Schema } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import * as JournalEvents from "../events/JournalEvents.ts"

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
        const entry = JournalEvents.toJournal(event)
        return entry === undefined || !isRunId(runId) ? Effect.void : journal.write(runId, entry)
      },
      { discard: true }
    )
})
