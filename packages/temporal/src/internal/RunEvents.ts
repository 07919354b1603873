/**
 * Follows the journals of a durable run's attempts, as the events of a graph.
 *
 * Journals are read like those of any run: by number, from the run database or a directory that hosts share. A journal
 * that cannot be read delays events, and does not end the run. The ID of an attempt can be that of another account's
 * run, so a journal is read only after the record of its run names the caller's account.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { type JournalEntry, RunJournal } from "@cogni/sandbox-core/RunJournal"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as JournalEvents from "@cogni/sandbox-graph-provider/events/JournalEvents"
import { Deferred, Effect } from "effect"
import { attemptId } from "./RunSteps.ts"

/** Time between two readings. */
const pollMillis = 200

/** The same when the run has ended, whose last entries are on their way. It doubles. */
const lastPollMillisMin = 20

/** Longest time between two questions for the record of an attempt that has not begun. */
const recordPollMillisMax = 2000

/** Time between two questions for the next attempt, in readings without an event. */
const nextEvery = 5

/** Size of one reading. */
const pieceBytesMax = 1024 * 1024

/** Length of the text that is kept for the end of the run. */
const textCharsMax = 1024 * 1024

/** The text of the attempt that is followed. */
export interface Heard {
  text: string
}

/** Returns whether a record is that of a run which the account pays for. */
export const isOf = (record: RunFacts.Source, billingAccountId: string): boolean =>
  RunFacts.of(record).billingAccountId === billingAccountId

/** The run that is followed. */
export interface Followed {
  readonly runId: RunId
  readonly billingAccountId: string
  readonly attemptsMax: number
  /** Completes when the outcome of the run is known. */
  readonly ended: Deferred.Deferred<void>
}

/** Pauses between two readings. The end of the run cuts a pause short. */
const makePause = (ended: Deferred.Deferred<void>) => {
  let lastMillis = lastPollMillisMin
  return Effect.flatMap(Deferred.isDone(ended), (isOver) => {
    if (!isOver) return Effect.raceFirst(Effect.sleep(pollMillis), Deferred.await(ended))
    const millis = Math.min(pollMillis, lastMillis)
    lastMillis *= 2
    return Effect.sleep(millis)
  })
}

/** Returns the journal and the record of an attempt, or `undefined` while they cannot be read. */
const makeReading = Effect.fnUntraced(function* ({
  billingAccountId,
  runId
}: Pick<Followed, "billingAccountId" | "runId">) {
  const journal = yield* RunJournal
  const store = yield* RunStore
  let isWarned = false
  const orNothing = <A>(reading: Effect.Effect<A, { readonly message: string }>) =>
    reading.pipe(
      Effect.catch(({ message }) => {
        const isFirst = !isWarned
        isWarned = true
        const warned = isFirst
          ? Effect.logWarning(`the events of ${runId} cannot be read: ${message}`)
          : Effect.void
        return Effect.as(warned, undefined)
      })
    )
  const idOf = (attempt: number) => attemptId(runId, attempt) as RunId
  return {
    entries: (attempt: number, after: number) =>
      orNothing(journal.read({ runId: idOf(attempt), after, bytesMax: pieceBytesMax })),
    /** `undefined` also for an attempt that has not begun. */
    isOwn: (attempt: number) =>
      Effect.map(orNothing(store.describe(idOf(attempt))), (record) =>
        record === undefined ? undefined : isOf(record, billingAccountId)
      )
  }
})

/** Follows a run whose attempts have IDs of their own. Ends when the journal of the last possible attempt ends. */
export const follow = Effect.fnUntraced(function* (
  followed: Followed,
  heard: Heard,
  emit: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
) {
  const { attemptsMax, ended } = followed
  const pause = makePause(ended)
  const { entries: read, isOwn } = yield* makeReading(followed)
  const tell = (entries: ReadonlyArray<JournalEntry>) => {
    const events = entries.flatMap((entry) => JournalEvents.fromJournal(entry) ?? [])
    for (const event of events)
      if (event.type === "text_delta" && heard.text.length < textCharsMax) heard.text += event.delta
    return emit(events)
  }
  for (let millis = pollMillis, isFirst: boolean | undefined; isFirst !== true;) {
    isFirst = yield* isOwn(0)
    if (isFirst === false) return
    if (isFirst === undefined) yield* Effect.sleep(millis)
    millis = Math.min(recordPollMillisMax, millis * 2)
  }
  for (let attempt = 0, after = 0, quiet = 0; ;) {
    const page = yield* read(attempt, after)
    const entries = page?.entries ?? []
    after = entries.at(-1)?.seq ?? after
    yield* tell(entries)
    const isLast = attempt + 1 >= attemptsMax
    if (page?.ended === true && isLast) return
    if (entries.length > 0 && page?.ended !== true) continue
    // The journal of a lost host has no end, so only the next attempt tells.
    const isNext = isLast || quiet++ % nextEvery > 0 ? undefined : yield* isOwn(attempt + 1)
    if (isNext === false) return
    if (isNext === true) {
      attempt += 1
      after = 0
      quiet = 0
      heard.text = ""
      yield* emit([{ type: "status", phase: "attempt", label: String(attempt + 1) }])
      continue
    }
    yield* pause
  }
})
