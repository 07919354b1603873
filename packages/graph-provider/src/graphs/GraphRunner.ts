/**
 * The source documents' port over this one: `runGraph` answers at once with an `AsyncIterable` and a `Promise`.
 *
 * For callers that do not speak Effect. Work starts when it is called; its context is that of the executor it was made
 * with. `final` never rejects and settles on every path: drained, abandoned, aborted, never read. An iteration that
 * ends early ends the run.
 */
import { Cause, Deferred, Effect, Exit, FiberSet, Option, type Scope, Stream } from "effect"
import { GraphExecutor } from "./AggregatingGraphExecutor.ts"
import type { AiEvent } from "../events/AiEvent.ts"
import * as EventGrammar from "../events/EventGrammar.ts"
import type { GraphFinal, GraphRun, GraphRunRequest, RunContext } from "./GraphProvider.ts"
import * as GraphEnd from "../internal/GraphEnd.ts"

export interface GraphRunResult {
  /** For one reader, once. */
  readonly stream: AsyncIterable<AiEvent>
  readonly final: Promise<GraphFinal>
}

export interface GraphRunner {
  /** Aborting the signal ends the run; its events still say how it ended. */
  readonly runGraph: (
    request: GraphRunRequest,
    context: RunContext,
    options?: { readonly abortSignal?: AbortSignal | undefined }
  ) => GraphRunResult
}

/** Runs live in the scope it is made in: closing that ends them all. */
export const make: Effect.Effect<GraphRunner, never, GraphExecutor | Scope.Scope> = Effect.gen(function* () {
  const executor = yield* GraphExecutor
  const fork = yield* FiberSet.makeRuntime<never, void, never>()

  return {
    runGraph: (request, context, options) => {
      const started = Deferred.makeUnsafe<Pick<GraphRun, "cancel" | "events" | "final">>()
      const { promise, resolve } = Promise.withResolvers<GraphFinal>()
      const live = Effect.scoped(
        Effect.gen(function* () {
          const run = yield* executor.run(request, context)
          yield* Deferred.succeed(started, run)
          yield* aborting(options?.abortSignal, () => void fork(run.cancel))
          resolve(yield* run.final)
          yield* run.closed
        })
      ).pipe(
        // The scope is closed: by now the run knows how it ended, if it ever began.
        Effect.onExit(() =>
          Effect.flatMap(Deferred.poll(started), (run) =>
            Option.isNone(run)
              ? Effect.void
              : Effect.map(
                  Effect.flatMap(run.value, ({ final }) => final),
                  resolve
                )
          )
        )
      )
      // A fiber that is interrupted before its first step does nothing at its end either.
      fork(live).addObserver((exit) => {
        const never = neverBegun(request, context, exit)
        Deferred.doneUnsafe(started, Effect.succeed({ ...never, final: Effect.succeed(never.final) }))
        resolve(never.final)
      })
      const leave = () => void fork(Effect.flatMap(Deferred.await(started), ({ cancel }) => cancel))
      return {
        stream: leavable(
          Stream.toAsyncIterable(Stream.unwrap(Effect.map(Deferred.await(started), ({ events }) => events))),
          leave
        ),
        final: promise
      }
    }
  }
})

const aborting = (signal: AbortSignal | undefined, abort: () => void) => {
  if (signal === undefined) return Effect.void
  if (signal.aborted) return Effect.sync(abort)
  return Effect.acquireRelease(
    Effect.sync(() => signal.addEventListener("abort", abort, { once: true })),
    () => Effect.sync(() => signal.removeEventListener("abort", abort))
  )
}

/** A stream that is left before it was ever asked does not know of it. */
const leavable = <A>(iterable: AsyncIterable<A>, leave: () => void): AsyncIterable<A> => ({
  [Symbol.asyncIterator]: () => {
    const iterator = iterable[Symbol.asyncIterator]()
    let hasBegun = false
    return {
      next: () => {
        hasBegun = true
        return iterator.next()
      },
      return: async (value?: unknown) => {
        if (hasBegun) await iterator.return?.(value)
        else leave()
        return { done: true, value: undefined }
      }
    }
  }
})

/** It broke, or the executor was closed, before it could begin. */
const neverBegun = (request: GraphRunRequest, context: RunContext, exit: Exit.Exit<void>) => {
  const isClosed = Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)
  const outcome = isClosed
    ? GraphEnd.stopped("cancelled", "")
    : GraphEnd.broken("the provider of the graph failed before it began")
  const { ending, final } = GraphEnd.make(request, context, outcome, undefined)
  return { events: Stream.fromIterable(EventGrammar.ending(ending)), final, cancel: Effect.void }
}
