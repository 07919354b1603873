/**
 * Follows the journals of runs for any number of readers: one reading of a journal serves all of them.
 *
 * The newest entries stay in memory, already encoded. Readers that are further behind share pages of the journal, which
 * are small: a reader that does not read holds one of them. A run never waits for a reader. Readers take processor time
 * of the server, which they share with the runs of its process. Each gets a piece in its turn: runs come in between.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { endOf, type JournalEntry, RunJournal } from "@cogni/sandbox-core/RunJournal"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { type SubmittedEnd, SubmittedRuns } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Cache, Clock, Deferred, Effect, Exit, Option, RcMap, Ref, Result, Stream } from "effect"
import type { ServerLimits } from "../ServerLimits.ts"
import * as EventStream from "./EventStream.ts"
import { RunRoster } from "./RunRoster.ts"
import * as RunView from "./RunView.ts"
import * as Turns from "./Turns.ts"

/** Shortest and longest time between two readings of a journal, in milliseconds. */
const pollMillisMin = 200
const pollMillisMax = 2000

/** Time between two readings when the queue of the run has ended it, whose last entries are on their way. It doubles. */
const lastPollMillisMin = 20

/** Maximum number of pieces that the readers of one run get in a second, so that they leave the processor to runs. */
const piecesPerSecondMax = 200

/** Time between two readings of a journal that has this many readers, in milliseconds. */
export const pollMillis = (readers: number): number =>
  Math.min(pollMillisMax, Math.max(pollMillisMin, (readers * 1000) / piecesPerSecondMax))

/** Pauses between two readings. The end of a run cuts a pause short, and those after it are shorter. */
const makePauses = Effect.fnUntraced(function* (ended: Effect.Effect<void, unknown>) {
  const end = yield* Deferred.make<void>()
  yield* ended.pipe(Effect.andThen(Deferred.succeed(end, undefined)), Effect.ignore, Effect.forkScoped)
  let lastMillis = lastPollMillisMin
  /** Returns how long it was at most. `undefined`: the end has cut it short. */
  return (millis: number): Effect.Effect<number | undefined> =>
    Effect.flatMap(Deferred.isDone(end), (isOver) => {
      const takes = isOver ? Math.min(millis, lastMillis) : millis
      const sleeping = Effect.as(Effect.sleep(takes), takes)
      if (!isOver) return Effect.raceFirst(sleeping, Effect.as(Deferred.await(end), undefined))
      lastMillis *= 2
      return sleeping
    })
})

/** Time between two questions whether a run is over whose journal has no end, in readings. */
const describeEvery = 10

/** Maximum number and length of the entries in memory, of one run. */
const recentMax = 1000
const recentBytesMax = 256 * 1024

/** Maximum number of entries in a reading. */
const pageMax = 500

/** Maximum size of a reading for all readers: a longer one would hold up the runs of this process. */
const tailBytesMax = 1024 * 1024

/** Size of the largest entry: its longest text, with six bytes for each character, and its names. */
const entryBytesMax = 128 * 1024

/** Maximum size of what a reader gets at once. */
export const pieceBytesMax = 128 * 1024

/** Pages of one run that readers who are behind share, and for how long. */
const sharedPagesMax = 16
const sharedTime = "2 seconds"

/** An entry as a server-sent event. */
interface Encoded {
  readonly seq: number
  readonly bytes: Uint8Array
}

interface Tail {
  readonly recent: ReadonlyArray<Encoded>
  /** Number of the newest entry. */
  readonly last: number
  readonly isOver: boolean
}

const utf8 = new TextEncoder()

const heartbeat = utf8.encode(EventStream.heartbeat)

export const encode = (entry: JournalEntry): Encoded => ({
  seq: entry.seq,
  bytes: utf8.encode(`id: ${entry.seq}\nevent: ${entry.type}\ndata: ${JSON.stringify(entry)}\n\n`)
})

/** Joins entries to one piece: a write for each of them would cost every reader more than its bytes. */
const joined = (entries: ReadonlyArray<Encoded>): Uint8Array => {
  const whole = new Uint8Array(entries.reduce((sum, { bytes }) => sum + bytes.byteLength, 0))
  let at = 0
  for (const { bytes } of entries) {
    whole.set(bytes, at)
    at += bytes.byteLength
  }
  return whole
}

/** The first entries of a piece. A reader that does not read holds one piece. */
const firstOf = (entries: ReadonlyArray<Encoded>): ReadonlyArray<Encoded> => {
  let bytes = 0
  const end = entries.findIndex((entry, at) => (bytes += entry.bytes.byteLength) > pieceBytesMax && at > 0)
  return end < 0 ? entries : entries.slice(0, end)
}

/** Entries that a reader gets at once. */
interface Piece {
  readonly entries: ReadonlyArray<Encoded>
  readonly piece: Uint8Array
}

/** Returns the first piece after a number. Readers that are as far as the last one share its piece. */
const makePieceAfter = () => {
  let last: { readonly recent: Tail["recent"]; readonly from: number; readonly found: Piece } | undefined
  return (recent: Tail["recent"], from: number): Piece => {
    if (last?.recent === recent && last.from === from) return last.found
    const entries = firstOf(recent.filter(({ seq }) => seq > from))
    last = { recent, from, found: { entries, piece: joined(entries) } }
    return last.found
  }
}

/** Adds entries, and drops the oldest ones over the limits. */
const grown = ({ last, recent }: Tail, entries: ReadonlyArray<Encoded>, isOver: boolean): Tail => {
  const all = [...recent, ...entries]
  let bytes = 0
  let from = all.length
  while (from > 0 && all.length - from < recentMax) {
    bytes += all[from - 1]!.bytes.byteLength
    if (bytes > recentBytesMax) break
    from -= 1
  }
  return { recent: all.slice(from), last: entries.at(-1)?.seq ?? last, isOver }
}

const endOfSubmitted = (end: SubmittedEnd | undefined): ReturnType<typeof endOf> => {
  if (end === undefined) return undefined
  const reason = end.reason === undefined ? {} : { reason: end.reason }
  return end.state === "succeeded"
    ? { type: "run.ended", status: "exited" }
    : { type: "run.ended", status: end.state, ...reason }
}

/** Warns once when journals cannot be read, until all of them can. */
const makeOutage = () => {
  const failing = new Set<string>()
  return {
    failed: (key: string, { message }: { readonly message: string }) =>
      Effect.suspend(() => {
        const isFirst = failing.size === 0
        failing.add(key)
        return isFirst
          ? Effect.logWarning(`journals of runs cannot be read, such as that of ${key}. ${message}`)
          : Effect.void
      }),
    /** Notes that a journal was read, or that it has no readers. */
    ended: (key: string) => Effect.sync(() => void failing.delete(key))
  }
}

type Outage = ReturnType<typeof makeOutage>

/** Key of the failed readings of older entries. The newest ones may be readable. */
const olderOf = (runId: RunId) => `${runId} (older entries)`

/** Reads older parts of a journal, each of them once for all readers that need it at about the same time. */
const olderPages = (journal: (typeof RunJournal)["Service"], runId: RunId) =>
  Cache.makeWith(
    (after: number) =>
      Effect.map(journal.read({ runId, after, limit: pageMax, bytesMax: pieceBytesMax }), (page): Piece => {
        const entries = page?.entries.map(encode) ?? []
        return { entries, piece: joined(entries) }
      }),
    { capacity: sharedPagesMax, timeToLive: (exit) => (Exit.isSuccess(exit) ? sharedTime : 0) }
  )

type OlderPages = Effect.Success<ReturnType<typeof olderPages>>

/**
 * Returns a tail that changes, and how to wait for it. A subscription for each wait would cost a reader more than its
 * piece.
 */
const makeTail = (turn: Effect.Effect<void>) => {
  let tail: Tail = { recent: [], last: 0, isOver: false }
  let changed = Deferred.makeUnsafe<void>()
  /** Waits, in turn with the other readers, until there is something after a number, or the run is over. */
  const after = (from: number): Effect.Effect<Tail> =>
    Effect.suspend(() =>
      tail.last > from || tail.isOver
        ? Effect.succeed(tail)
        : Effect.flatMap(Effect.andThen(Deferred.await(changed), turn), () => after(from))
    )
  return {
    last: () => tail.last,
    grow: (entries: ReadonlyArray<Encoded>, isOver: boolean) => {
      tail = grown(tail, entries, isOver)
      const before = changed
      changed = Deferred.makeUnsafe()
      Deferred.doneUnsafe(before, Exit.void)
    },
    after
  }
}

interface Followed {
  readonly runId: RunId
  readonly tail: ReturnType<typeof makeTail>
  readonly older: OlderPages
  readonly pieceAfter: ReturnType<typeof makePieceAfter>
  readonly outage: Outage
}

/** Returns what a reader gets of a tail, and the number after which to go on, until the run is over. */
const pieceOf = Effect.fnUntraced(function* (
  { older, outage, pieceAfter, runId }: Followed,
  { isOver, last, recent }: Tail,
  from: number
) {
  const oldest = recent[0]?.seq ?? last + 1
  const isBehind = from + 1 < oldest
  const page = isBehind ? yield* Effect.result(Cache.get(older, from)) : undefined
  if (page !== undefined && Result.isFailure(page)) {
    yield* outage.failed(olderOf(runId), page.failure)
    yield* Effect.sleep(`${pollMillisMin} millis`)
    return [[], Option.some(from)] as const
  }
  if (page !== undefined) yield* outage.ended(olderOf(runId))
  const { entries: found, piece } = page?.success ?? pieceAfter(recent, from)
  // Entries that this host has lost are skipped.
  const reached = found.at(-1)?.seq ?? (isBehind ? oldest - 1 : last)
  const isDone = isOver && reached >= last
  return [found.length === 0 ? [] : [piece], isDone ? Option.none<number>() : Option.some(reached)] as const
})

/** Time that a reader may follow a run, and after which a quiet stream has a comment. */
type FollowLimits = Pick<ServerLimits, "followSecondsMax" | "heartbeatSeconds">

/** Streams what comes after a number, with a comment when nothing has come for a while. */
const piecesOf = Effect.fnUntraced(function* (followed: Followed, after: number, limits: FollowLimits) {
  const millisNow = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))
  const endMillis = (yield* millisNow) + limits.followSecondsMax * 1000
  return Stream.paginate(
    after,
    Effect.fnUntraced(function* (from: number) {
      const leftMillis = endMillis - (yield* millisNow)
      if (leftMillis <= 0) return [[], Option.none<number>()] as const
      const waitMillis = Math.min(leftMillis, limits.heartbeatSeconds * 1000)
      const next = yield* Effect.timeoutOption(followed.tail.after(from), `${waitMillis} millis`)
      if (Option.isSome(next)) return yield* pieceOf(followed, next.value, from)
      return [waitMillis < leftMillis ? [heartbeat] : [], Option.some(from)] as const
    })
  )
})

export const make = Effect.fnUntraced(function* (limits: FollowLimits, turn = Turns.make()) {
  const journal = yield* RunJournal
  const roster = yield* RunRoster
  const store = yield* RunStore
  const queue = yield* Effect.serviceOption(SubmittedRuns)
  const outage = makeOutage()

  /** Returns the end of a run as its queue knows it: its host was lost, or none had it. */
  const submittedEnd = Effect.fnUntraced(function* (runId: RunId, record: RunRecord | undefined) {
    const found = Option.isNone(queue) ? Option.none() : yield* Effect.option(queue.value.find(runId))
    const run = Option.getOrUndefined(found)
    // Another account may have submitted a run with the ID of one that was started on a host.
    const isForeign = record !== undefined && RunView.accountOf(record) !== run?.billingAccountId
    return isForeign ? undefined : endOfSubmitted(run?.end)
  })

  /** Returns the end of a run that is over, although its journal does not say so. */
  const missingEnd = Effect.fnUntraced(function* (runId: RunId, seq: number) {
    if ((yield* roster.find(runId)) !== undefined) return undefined
    const record = yield* store.describe(runId)
    const end = (record && endOf(record.outcome)) ?? (yield* submittedEnd(runId, record))
    const now = new Date(yield* Clock.currentTimeMillis).toISOString()
    return end && { seq, at: record?.endedAt ?? now, ...end }
  })

  const tails = yield* RcMap.make({
    idleTimeToLive: "5 seconds",
    lookup: Effect.fnUntraced(function* (runId: RunId) {
      const tail = makeTail(turn)
      const readers = yield* Ref.make(0)
      const older = yield* olderPages(journal, runId)
      yield* Effect.addFinalizer(() => Effect.andThen(outage.ended(runId), outage.ended(olderOf(runId))))
      const pause = yield* makePauses(Option.isNone(queue) ? Effect.never : queue.value.ended(runId))
      /** Time since the last question whether the run is over. */
      let unaskedMillis = Infinity
      /** Time until the next reading of a journal that does not exist yet. */
      let absentMillis = 0
      // The last entries of another host may be on their way when its record is there.
      let waitsLeft = Option.isSome(queue) ? 1 : 0
      const step = Effect.gen(function* () {
        const last = tail.last()
        const page = yield* journal.read({ runId, after: last, limit: pageMax, bytesMax: tailBytesMax })
        yield* outage.ended(runId)
        absentMillis = page === undefined ? Math.max(pollMillisMin, absentMillis * 2) : 0
        const entries = page?.entries ?? []
        const isDue = unaskedMillis >= describeEvery * pollMillis(yield* Ref.get(readers))
        const isAsked = isDue && entries.length === 0 && page?.ended !== true
        if (isDue) unaskedMillis = 0
        const missing = isAsked ? yield* missingEnd(runId, last + 1) : undefined
        const end = missing !== undefined && waitsLeft-- > 0 ? undefined : missing
        const isOver = page?.ended === true || end !== undefined
        const found = (end === undefined ? entries : [...entries, end]).map(encode)
        if (found.length > 0 || isOver) tail.grow(found, isOver)
        const size = found.reduce((sum, { bytes }) => sum + bytes.byteLength, 0)
        return { isOver, isMore: entries.length === pageMax || size > tailBytesMax - entryBytesMax }
      })
      yield* step.pipe(
        // A store that does not answer now may answer later. Readers get heartbeats until then.
        Effect.catch((error) => Effect.as(outage.failed(runId, error), { isOver: false, isMore: false })),
        Effect.tap(({ isMore, isOver }) =>
          isMore || isOver
            ? Effect.void
            : Effect.flatMap(Ref.get(readers), (count) => {
                const millis = Math.min(pollMillisMax, Math.max(pollMillis(count), absentMillis))
                return Effect.map(pause(millis), (took) => {
                  // Not if a first look has seen the end: the second one comes two seconds later.
                  unaskedMillis = took === undefined && waitsLeft > 0 ? Infinity : unaskedMillis + (took ?? 0)
                })
              })
        ),
        Effect.repeat({ until: ({ isOver }) => isOver }),
        Effect.forkScoped
      )
      return { runId, tail, readers, older, pieceAfter: makePieceAfter(), outage }
    })
  })

  /** The tail of a run, with one more reader until the scope closes. */
  const tailOf = (runId: RunId) =>
    RcMap.get(tails, runId).pipe(
      Effect.tap(({ readers }) =>
        Effect.acquireRelease(
          Ref.update(readers, (count) => count + 1),
          () => Ref.update(readers, (count) => count - 1)
        )
      )
    )

  /** Streams the entries after a number, as they come, until the run is over or the time of the reader is. */
  const follow = (runId: RunId, after: number): Stream.Stream<Uint8Array> =>
    Stream.unwrap(Effect.flatMap(tailOf(runId), (followed) => piecesOf(followed, after, limits)))

  return { follow }
})
