/**
 * One graph run, between the work that produces its events and its reader.
 *
 * The work runs in a fiber of the caller's scope. Its events wait in a bounded queue. `final` settles when the work
 * ends, whatever the reader does.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Array as Arr, type Cause, Deferred, Effect, Exit, Fiber, Queue, Stream } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import { type Ending, ending } from "../events/EventGrammar.ts"
import type { GraphFinal, GraphRun } from "./GraphRun.ts"

/** Maximum number of events that wait for their reader. */
export const eventsBufferedMax = 1024

/** Time without a read, while events wait, after which a reader is considered gone. */
export const readerIdleSecondsMax = 30

/** Events per batch, in and out. A reader takes the next batch only after the last one. */
const pieceMax = 64

/** Why the work must end. */
export type Stop = "cancelled" | "reader_left" | "reader_stalled"

/** The end of a run, in two forms: last events for the reader, and a `final`. */
export interface LifeEnd {
  readonly ending: Ending
  readonly final: GraphFinal
}

/** Interface between the work and its run. */
export interface Life {
  /** Emits events, and waits while the queue is full. Drops them once the reader is gone or the run must end. */
  readonly emit: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
  /** Settles when the work should end. */
  readonly stopped: Effect.Effect<Stop>
}

/** Starts `work`, which never fails. If it is interrupted or has a defect, `interrupted` returns the end. */
export const make = Effect.fnUntraced(function* <R>(
  runId: RunId,
  work: (life: Life) => Effect.Effect<LifeEnd, never, R>,
  interrupted: (cause: Cause.Cause<never>) => Effect.Effect<LifeEnd, never, R>
) {
  const queue = yield* Queue.make<AiEvent, Cause.Done>({ capacity: eventsBufferedMax })
  const final = yield* Deferred.make<GraphFinal>()
  const stop = yield* Deferred.make<Stop>()
  const tell = (why: Stop) => Effect.asVoid(Deferred.succeed(stop, why))

  // In batches, each with its own timeout: a slow reader is not considered gone.
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

  /** Settles `final` without waiting for the reader, who receives the last events even if the scope is closed. */
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
    // For any end of the reading. It has no effect on a run that is over.
    events: Stream.fromIterableEffectRepeat(Queue.takeBetween(queue, 1, pieceMax)).pipe(
      Stream.onExit(() => Effect.andThen(tell("reader_left"), Queue.shutdown(queue)))
    ),
    final: Deferred.await(final),
    closed: Effect.asVoid(Fiber.await(fiber)),
    cancel: tell("cancelled")
  } satisfies GraphRun
})
