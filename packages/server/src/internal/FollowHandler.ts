/**
 * Streams the events of a run to a reader who may come late, leave, and resume.
 *
 * The number of readers is limited, and each stream ends after a while, so that a revoked grant does not read on.
 */
import { type JournalPage, RunJournal } from "@cogni/sandbox-core/RunJournal"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { RunStore, type RunStoreError } from "@cogni/sandbox-core/RunStore"
import { Clock, Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import type { ServerLimits } from "../ServerLimits.ts"
import { CurrentGrant } from "./Authentication.ts"
import * as EventStream from "./EventStream.ts"
import * as JournalTail from "./JournalTail.ts"
import * as Problem from "./Problem.ts"
import type { Readers } from "./Readers.ts"
import type { RunHandlers } from "./RunHandlers.ts"
import * as RunView from "./RunView.ts"
import * as SharedReadings from "./SharedReadings.ts"
import * as SseResponse from "./SseResponse.ts"
import * as Turns from "./Turns.ts"

const utf8 = new TextEncoder()

/** A run under way whose journal is on another host. */
export const elsewhere = Problem.make(
  "conflict",
  "RunElsewhere",
  "the run is under way in another process, and its journal is not on this server. Follow it there"
)

/** A run of a queue, which has begun a while ago on a host that does not share its events. */
const notShared = Problem.make(
  "conflict",
  "EventsNotShared",
  "the run is under way on a host that does not share its events. Its operator can start its server with --share-events"
)

/** Time in which the first events of another host may still be on their way. */
const firstEventsSecondsMax = 5

/** Largest number of an entry. A database stores no larger one. */
const seqMax = 2 ** 31 - 1

/** Returns the number after which a reader resumes. An event source sends it as `Last-Event-ID`. */
export const afterOf = (lastEventId: string | undefined, after: number | undefined): number =>
  Math.min(
    lastEventId !== undefined && /^\d{1,15}$/u.test(lastEventId) ? Number(lastEventId) : (after ?? 0),
    seqMax
  )

const secondsSince = (time: string) =>
  Effect.map(Clock.currentTimeMillis, (now) => (now - Date.parse(time)) / 1000)

/**
 * Ends a stream when a run turns out to be of another account. An ID that one account has submitted may be used by
 * another one on a host, and the record of that run is there before its events.
 */
const ownOnly = <A, E>(
  pieces: Stream.Stream<A, E>,
  describe: Effect.Effect<RunRecord | undefined, RunStoreError>,
  billingAccountId: string
): Stream.Stream<A, E> =>
  Stream.suspend(() => {
    let isOwn = false
    const isForeign = Effect.gen(function* () {
      if (isOwn) return false
      const record = yield* describe
      isOwn = record !== undefined && RunView.accountOf(record) === billingAccountId
      return record !== undefined && !isOwn
    }).pipe(Effect.orElseSucceed(() => true))
    return pieces.pipe(
      Stream.mapEffect((piece) => Effect.map(isForeign, (foreign) => (foreign ? undefined : piece))),
      Stream.takeWhile((piece) => piece !== undefined)
    )
  })

export const make = Effect.fnUntraced(function* (
  limits: ServerLimits,
  { lookUp }: RunHandlers,
  readers: Readers
) {
  const journal = yield* RunJournal
  const store = yield* RunStore
  const turn = Turns.make()
  const tails = yield* JournalTail.make(limits, turn)
  const firsts = SharedReadings.make<JournalPage | undefined, RunStoreError>()

  return Effect.fn("SandboxServer.followRun")(function* (id: string, after: number) {
    const { here, record, runId, submitted } = yield* lookUp(id)
    const { billingAccountId, id: grantId } = yield* CurrentGrant
    const isRecordOver = record !== undefined && RunView.isOver(record)
    const isOver = here === undefined && (isRecordOver || submitted?.end !== undefined)
    const first = yield* firsts(`${runId} ${after}`, journal.read({ runId, after, limit: 1 })).pipe(
      Effect.catch(Problem.storeUnavailable)
    )
    if (first === undefined && here === undefined && !isOver) {
      if (submitted === undefined) return yield* Effect.fail(elsewhere)
      if (record !== undefined && (yield* secondsSince(record.startedAt)) > firstEventsSecondsMax)
        return yield* Effect.fail(notShared)
    }
    // An event source reconnects after every end of a stream, except after this answer.
    if (isOver && (first === undefined ? after >= 1 : first.ended && first.entries.length === 0))
      return HttpServerResponse.empty({ status: 204 })
    yield* readers.join(grantId)
    yield* turn
    const taken = yield* SseResponse.endWhenStalled(limits.streamIdleSecondsMax)
    const pieces = Stream.make(utf8.encode(`: ${runId}\n\n`)).pipe(
      Stream.concat(
        record === undefined && here === undefined
          ? ownOnly(tails.follow(runId, after), store.describe(runId), billingAccountId)
          : tails.follow(runId, after)
      ),
      Stream.tap(() => taken)
    )
    return HttpServerResponse.stream(pieces, {
      contentType: "text/event-stream; charset=utf-8",
      headers: EventStream.headers
    })
  })
})
