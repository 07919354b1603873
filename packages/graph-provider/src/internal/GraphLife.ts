/**
 * One run of a graph, between what produces its events and who reads them.
 *
 * The work goes on in a fiber of the caller's scope. Its events wait in a bounded queue; `final` settles when the fiber
 * ends, whatever became of the reader.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Array as Arr, type Cause, Deferred, Effect, Exit, Fiber, Queue, Stream } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import { type Ending, ending } from "../events/EventGrammar.ts"
import type { GraphFinal, GraphRun } from "../graphs/GraphProvider.ts"

/** Events that wait for their reader. */
export const eventsBufferedMax = 1024

/** How long a reader may take none of them before it is taken for gone. */
export const readerIdleSecondsMax = 30

/** How many are handed over at one time, in and out: what a reader holds it does not take again. */
const pieceMax = 64

/** Why work was told to end. */
export type Stop = "cancelled" | "reader_left" | "reader_stalled"

/** How it went, said twice: to the reader, and to whoever waits for the end. */
export interface LifeEnd {
  readonly ending: Ending
  readonly final: GraphFinal
}

/** What the work may do. */
export interface Life {
  /** Waits for room. Once the reader is gone, or the run told to end, nothing is kept. */
  readonly emit: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
  /** Settles when the work should end. */
  readonly stopped: Effect.Effect<Stop>
}

/** `work` never fails. When it is interrupted, or has a defect, `interrupted` says how it ended. */
export const make = Effect.fnUntraced(function* <R>(
  runId: RunId,
  work: (life: Life) => Effect.Effect<LifeEnd, never, R>,
  interrupted: (cause: Cause.Cause<never>) => Effect.Effect<LifeEnd, never, R>
) {
  const queue = yield* Queue.make<AiEvent, Cause.Done>({ capacity: eventsBufferedMax })
  const final = yield* Deferred.make<GraphFinal>()
  const stop = yield* Deferred.make<Stop>()
  const tell = (why: Stop) => Effect.asVoid(Deferred.succeed(stop, why))

  // In pieces, each with a time of its own: a slow reader is one that reads.
  const offer = (events: ReadonlyArray<AiEvent>): Effect.Effect<void> =>
    Effect.forEach(
      Arr.chunksOf(events, pieceMax),
      (piece) =>
        Queue.offerAll(queue, piece).pipe(
          Effect.timeoutOrElse({
            duration: `${readerIdleSecondsMax} seconds`,
            orElse: () => Effect.andThen(tell("reader_stalled"), Queue.shutdown(queue))
          })
        ),
      { discard: true }
    )

  const life: Life = {
    emit: (events) =>
      events.length === 0
        ? Effect.void
        : Effect.flatMap(Deferred.isDone(stop), (isDone) => (isDone ? Effect.void : offer(events))),
    stopped: Deferred.await(stop)
  }

  /** Whoever waits for the end does not wait for the reader; a reader is told of it also when the scope is closed. */
  const settle = (end: LifeEnd) =>
    Effect.andThen(
      Deferred.succeed(final, end.final),
      Effect.forkDetach(Effect.andThen(offer(ending(end.ending)), Queue.end(queue)), {
        startImmediately: true
      })
    )

  const fiber = yield* Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(Effect.exit(restore(work(life))), (exit) =>
      Exit.isSuccess(exit)
        ? Effect.flatMap(settle(exit.value), (telling) => Effect.asVoid(restore(Fiber.await(telling))))
        : Effect.asVoid(Effect.flatMap(interrupted(exit.cause), settle))
    )
  ).pipe(Effect.forkScoped({ startImmediately: true }))

  return {
    runId,
    // However the reading ended: of a run that is over this changes nothing.
    events: Stream.fromIterableEffectRepeat(Queue.takeBetween(queue, 1, pieceMax)).pipe(
      Stream.onExit(() => Effect.andThen(tell("reader_left"), Queue.shutdown(queue)))
    ),
    final: Deferred.await(final),
    closed: Effect.asVoid(Fiber.await(fiber)),
    cancel: tell("cancelled")
  } satisfies GraphRun
})
