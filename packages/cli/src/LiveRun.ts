/** Follows the journals of runs on this host, for `logs --follow` and `top`. */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { type JournalEntry, pageEntriesMax, RunJournal } from "@cogni/sandbox-core/RunJournal"
import { RunStore, type RunStoreError } from "@cogni/sandbox-core/RunStore"
import { Effect } from "effect"

/** Time between two readings of a journal, and between two questions whether the run is over. */
export const pollMillis = 200
const describeMillis = 2000

/** Reads what a journal has after an entry. `undefined`: this host has no journal of the run. */
export const rest = Effect.fnUntraced(function* (runId: RunId, after: number) {
  const journal = yield* RunJournal
  const found: Array<JournalEntry> = []
  while (true) {
    const page = yield* journal.read({ runId, after: found.at(-1)?.seq ?? after })
    if (page === undefined) return undefined
    found.push(...page.entries)
    if (page.entries.length < pageEntriesMax) return { entries: found, ended: page.ended }
  }
})

/** Gives the entries of a run to `see`, from its beginning until its end. Returns whether there is a journal. */
export const follow = Effect.fnUntraced(function* <E, R>(
  runId: RunId,
  see: (entries: ReadonlyArray<JournalEntry>) => Effect.Effect<void, E, R>
): Effect.fn.Return<boolean, E | RunStoreError, R | RunStore> {
  const store = yield* RunStore
  let last = 0
  let idleMillis = 0
  while (true) {
    const found = yield* rest(runId, last)
    const entries = found?.entries ?? []
    if (entries.length > 0) yield* see(entries)
    last = entries.at(-1)?.seq ?? last
    if (found?.ended === true) return true
    idleMillis = entries.length > 0 ? 0 : idleMillis + pollMillis
    if (idleMillis % describeMillis === pollMillis) {
      const record = yield* store.describe(runId)
      // A process that was killed wrote no last entry.
      if (record?.outcome.status !== "running") return found !== undefined
    }
    yield* Effect.sleep(`${pollMillis} millis`)
  }
})
