/**
 * Streams the events of a run to a reader who may come late, leave, and resume.
 *
 * The number of readers is limited, and each stream ends after a while, so that a revoked grant does not read on.
 */
import { RunJournal } from "@cogni/sandbox-core/RunJournal"
import { Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import type { ServerLimits } from "../ServerLimits.ts"
import { CurrentGrant } from "./Authentication.ts"
import * as EventStream from "./EventStream.ts"
import * as JournalTail from "./JournalTail.ts"
import * as Problem from "./Problem.ts"
import type { Readers } from "./Readers.ts"
import type { RunHandlers } from "./RunHandlers.ts"
import * as RunView from "./RunView.ts"
import * as SseResponse from "./SseResponse.ts"

/** A run under way whose journal is on another host. */
export const elsewhere = Problem.make(
  "conflict",
  "RunElsewhere",
  "the run is under way in another process, and its journal is not on this server. Follow it there"
)

/** Returns the number after which a reader resumes. An event source sends it as `Last-Event-ID`. */
export const afterOf = (lastEventId: string | undefined, after: number | undefined): number =>
  lastEventId !== undefined && /^\d{1,15}$/u.test(lastEventId) ? Number(lastEventId) : (after ?? 0)

export const make = Effect.fnUntraced(function* (
  limits: ServerLimits,
  { lookUp }: RunHandlers,
  readers: Readers
) {
  const journal = yield* RunJournal
  const tails = yield* JournalTail.make

  return Effect.fn("SandboxServer.followRun")(function* (id: string, after: number) {
    const { here, record, runId } = yield* lookUp(id)
    const { id: grantId } = yield* CurrentGrant
    const isOver = here === undefined && record !== undefined && RunView.isOver(record)
    const first = yield* journal.read({ runId, after, limit: 1 }).pipe(Effect.catch(Problem.storeUnavailable))
    if (first === undefined && here === undefined && !isOver) return yield* Effect.fail(elsewhere)
    // An event source reconnects after every end of a stream, except after this answer.
    if (isOver && (first === undefined ? after >= 1 : first.ended && first.entries.length === 0))
      return HttpServerResponse.empty({ status: 204 })
    yield* readers.join(grantId)
    const entries = tails
      .follow(runId, after)
      .pipe(Stream.interruptWhen(Effect.sleep(`${limits.followSecondsMax} seconds`)))
    return HttpServerResponse.stream(yield* SseResponse.make(`: ${runId}\n\n`, entries, limits), {
      contentType: "text/event-stream; charset=utf-8",
      headers: EventStream.headers
    })
  })
})
