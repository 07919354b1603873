/**
 * `RunJournal` in the directories of runs: `runs/<run ID>/journal.jsonl`, one entry a line.
 *
 * Any process of this host can read a journal while its run writes it. Lines wait in memory, at most the size of a
 * journal for each run, and are written together.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { Clock, Deferred, Effect, Layer, Option, Schema } from "effect"
import { constants } from "node:fs"
import { type FileHandle, open } from "node:fs/promises"
import { join } from "node:path"
import { attempt } from "./internal/host/StateFailure.ts"

/** A journal that this process writes. */
interface Pages {
  readonly pen: ReturnType<typeof RunJournal.makePen>
  waiting: string
  /** Settles when nothing is being written. */
  writing: Deferred.Deferred<void> | undefined
  file: FileHandle | undefined
  isBroken: boolean
}

/** Place after an entry in a file, from which a reader can continue. */
interface Place {
  readonly seq: number
  readonly offset: number
  readonly ended: boolean
}

const start: Place = { seq: 0, offset: 0, ended: false }

/** Bytes of one reading. No line is longer: its longest text and its names, with six bytes for each character. */
const pieceBytesMax = 256 * 1024

/** Runs, and places of one run, that a process remembers. A server has fewer readers. */
const placedRunsMax = 256
const placesMax = 500

const decodeEntry = Schema.decodeUnknownOption(Schema.fromJsonString(RunJournal.JournalEntry))

export const make = (options: {
  /** State directory of this host. */
  readonly directory: string
}): RunJournal.RunJournals => {
  const { runs } = StateDirectory.paths(options.directory)
  const pathOf = (runId: string) => join(runs, runId, StateDirectory.runEntries.journal)
  const written = new Map<RunId, Pages>()
  const places = new Map<RunId, ReadonlyArray<Place>>()

  const flush = async (runId: RunId, pages: Pages): Promise<void> => {
    pages.file ??= await OwnFiles.openNewLog(pathOf(runId))
    while (pages.waiting !== "") {
      const text = pages.waiting
      pages.waiting = ""
      await pages.file.appendFile(text)
    }
  }

  /** Writes what is waiting, and what comes meanwhile. A journal that cannot be written is given up. */
  const flushing = (runId: RunId, pages: Pages): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (pages.writing !== undefined || pages.waiting === "" || pages.isBroken) return Effect.void
      const done = (pages.writing = Deferred.makeUnsafe<void>())
      return attempt(pathOf(runId), () => flush(runId, pages)).pipe(
        Effect.catch(({ message }) =>
          Effect.suspend(() => {
            pages.isBroken = true
            pages.waiting = ""
            return Effect.logWarning(`the journal of run ${runId} is incomplete. ${message}`)
          })
        ),
        Effect.ensuring(
          Effect.suspend(() => {
            pages.writing = undefined
            // A line may have come after the last look at what waits.
            return Effect.andThen(Deferred.succeed(done, undefined), flushing(runId, pages))
          })
        ),
        Effect.forkDetach({ startImmediately: true }),
        Effect.asVoid
      )
    })

  /** Waits until everything is written. */
  const settled = (runId: RunId, pages: Pages): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (pages.isBroken || (pages.writing === undefined && pages.waiting === "")) return Effect.void
      const { writing } = pages
      return Effect.andThen(
        writing === undefined ? flushing(runId, pages) : Deferred.await(writing),
        settled(runId, pages)
      )
    })

  /** Notes a place, so that the next page need not be read from the beginning. */
  const note = (runId: RunId, place: Place) => {
    const known = (places.get(runId) ?? []).filter(({ seq }) => seq !== place.seq)
    places.delete(runId)
    places.set(runId, [...known, place].slice(-placesMax))
    const [oldest] = places.keys()
    if (places.size > placedRunsMax && oldest !== undefined) places.delete(oldest)
  }

  const nearest = (runId: RunId, after: number): Place =>
    (places.get(runId) ?? [])
      .filter(({ seq }) => seq <= after)
      .reduce((best, place) => (place.seq > best.seq ? place : best), start)

  const read = async (
    runId: RunId,
    after: number,
    limit: number,
    bytesMax: number
  ): Promise<RunJournal.JournalPage | undefined> => {
    const file = await openToRead(pathOf(runId))
    if (file === undefined) return undefined
    const entries: Array<RunJournal.JournalEntry> = []
    let place = nearest(runId, after)
    let left = bytesMax
    let isFull = false
    try {
      const piece = Buffer.alloc(pieceBytesMax)
      while (!isFull && entries.length < limit) {
        const { bytesRead } = await file.read(piece, 0, pieceBytesMax, place.offset)
        const before = place.offset
        for (const { bytes, line } of linesOf(piece.subarray(0, bytesRead))) {
          if (entries.length === limit) break
          const entry = Option.getOrUndefined(decodeEntry(line))
          const isAsked = entry !== undefined && entry.seq > after
          if (isAsked) left -= bytes
          isFull = isAsked && left < 0 && entries.length > 0
          if (isFull) break
          // A line of a later version is skipped.
          place = {
            seq: entry?.seq ?? place.seq,
            offset: place.offset + bytes,
            ended: entry === undefined ? place.ended : entry.type === "run.ended"
          }
          if (isAsked) entries.push(entry)
        }
        if (place.offset === before) break
        // A reader that begins anywhere reads all before it only once.
        if (entries.length === 0) note(runId, place)
      }
    } finally {
      await file.close()
    }
    note(runId, place)
    return { entries, ended: place.ended }
  }

  return RunJournal.withHolds({
    write: (runId, event) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        // A journal begins with its run: later events of a run that has ended are not written.
        if (event.type === "run.started" && !written.has(runId))
          written.set(runId, {
            pen: RunJournal.makePen(),
            waiting: "",
            writing: undefined,
            file: undefined,
            isBroken: false
          })
        const pages = written.get(runId)
        if (pages === undefined || pages.isBroken) return Effect.void
        for (const { line } of pages.pen(event, new Date(now).toISOString())) pages.waiting += line
        return flushing(runId, pages)
      }),
    close: (runId) =>
      Effect.suspend(() => {
        const pages = written.get(runId)
        if (pages === undefined) return Effect.void
        written.delete(runId)
        return Effect.andThen(
          settled(runId, pages),
          Effect.ignore(attempt(pathOf(runId), async () => pages.file?.close()))
        )
      }),
    read: ({ after = 0, bytesMax = RunJournal.journalBytesMax, limit = RunJournal.pageEntriesMax, runId }) =>
      attempt(pathOf(runId), () => read(runId, after, limit, bytesMax))
  })
}

export const layer = (options: { readonly directory: string }): Layer.Layer<never> =>
  Layer.sync(RunJournal.RunJournal, () => make(options))

const openToRead = (path: string): Promise<FileHandle | undefined> =>
  open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    (thrown: NodeJS.ErrnoException) => (thrown.code === "ENOENT" ? undefined : Promise.reject(thrown))
  )

/** Returns the whole lines in a piece, each with its length in bytes. */
function* linesOf(piece: Buffer): Generator<{ readonly line: string; readonly bytes: number }> {
  let from = 0
  for (let to = piece.indexOf(10); to >= 0; to = piece.indexOf(10, from)) {
    yield { line: piece.toString("utf8", from, to), bytes: to + 1 - from }
    from = to + 1
  }
}
