/**
 * The port of the source documents over this one: `runGraph` returns an `AsyncIterable` and a `Promise` at once.
 *
 * For callers that do not use Effect. Work starts with the call, in the context of the executor that the runner was
 * made with. `final` never rejects and settles on every path: drained, abandoned, aborted, never read. An iteration
 * that ends early ends the run.
 */
import { Cause, Context, Deferred, Effect, Exit, FiberSet, Layer, Option, type Scope, Stream } from "effect"
import { GraphExecutor } from "./AggregatingGraphExecutor.ts"
import type { AiEvent } from "../events/AiEvent.ts"
import * as EventGrammar from "../events/EventGrammar.ts"
import type { GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { GraphFinal, GraphRun } from "./GraphRun.ts"
import * as GraphEnd from "../internal/GraphEnd.ts"

export interface GraphRunResult {
  /** For a single reader, once. */
  readonly stream: AsyncIterable<AiEvent>
  readonly final: Promise<GraphFinal>
}

export class GraphRunner extends Context.Service<
  GraphRunner,
  {
    /** Aborting the signal ends the run; its events still report how it ended. */
    readonly runGraph: (
      request: GraphRunRequest,
      context: RunContext,
      options?: { readonly abortSignal?: AbortSignal | undefined }
    ) => GraphRunResult
  }
>()("@cogni/sandbox-graph-provider/GraphRunner") {}

/** Creates a runner. Closing its scope ends all its runs. */
export const make: Effect.Effect<GraphRunner["Service"], never, GraphExecutor | Scope.Scope> = Effect.gen(
  function* () {
    const executor = yield* GraphExecutor
    const fork = yield* FiberSet.makeRuntime<never, void, never>()

    return GraphRunner.of({
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
          // The scope is closed, so a run that started has ended.
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
        // A fiber that is interrupted before its first step runs no finalizer either.
        fork(live).addObserver((exit) => {
          const never = neverBegun(request, context, exit)
          Deferred.doneUnsafe(started, Effect.succeed({ ...never, final: Effect.succeed(never.final) }))
          resolve(never.final)
        })
        const leave = () => void fork(Effect.flatMap(Deferred.await(started), ({ cancel }) => cancel))
        return {
          stream: leavable(
            Stream.toAsyncIterable(
              Stream.unwrap(Effect.map(Deferred.await(started), ({ events }) => events))
            ),
            leave
          ),
          final: promise
        }
      }
    })
  }
)

/** A runner in the scope of its layer, such as that of a `ManagedRuntime`. */
export const layer: Layer.Layer<GraphRunner, never, GraphExecutor> = Layer.effect(GraphRunner, make)

const aborting = (signal: AbortSignal | undefined, abort: () => void) => {
  if (signal === undefined) return Effect.void
  if (signal.aborted) return Effect.sync(abort)
  return Effect.acquireRelease(
    Effect.sync(() => signal.addEventListener("abort", abort, { once: true })),
    () => Effect.sync(() => signal.removeEventListener("abort", abort))
  )
}

/** Reports an iteration that is left before its first step: the stream cannot notice that. */
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

/** Ends a run that failed, or whose executor was closed, before it started. */
const neverBegun = (request: GraphRunRequest, context: RunContext, exit: Exit.Exit<void>) => {
  const isClosed = Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)
  const outcome = isClosed
    ? GraphEnd.stopped("cancelled", "")
    : GraphEnd.broken("the graph provider failed before the run started")
  const { ending, final } = GraphEnd.make(request, context, outcome, undefined)
  return { events: Stream.fromIterable(EventGrammar.ending(ending)), final, cancel: Effect.void }
}
