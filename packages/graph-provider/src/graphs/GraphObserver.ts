/**
 * Observer of every graph run, whatever the run's reader does: the place for a usage ledger.
 *
 * A reader can leave before a run's last events; a ledger must not miss them. The observer receives the usage facts and
 * the outcome of each run, on every path. Providers and the executor require one when they are built, and keep it. So a
 * composition without an observer does not compile, and the fiber that starts a run cannot lose it.
 */
import { Context, type Effect, Layer } from "effect"
import type { GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { GraphFinal } from "./GraphRun.ts"
import type { UsageFact } from "../events/UsageFact.ts"

/** The end of a run. */
export interface ObservedEnd {
  /** None of the conversation. */
  readonly request: Pick<GraphRunRequest, "graphId" | "model">
  readonly context: RunContext
  readonly final: GraphFinal
  readonly facts: ReadonlyArray<UsageFact>
  readonly durationMs: number
  /** True for a run whose host process died. Its facts may be reported again: see `UsageRecovery`. */
  readonly isRecovered?: true
}

/**
 * Called at the end of each run, while the run's scope is still open. The end of the run waits for it, at most 30
 * seconds, so slow work belongs in a queue that survives the process. Its success accepts the usage. A failure or a
 * defect is logged and does not change the run; the facts are reported again after this process has ended.
 */
type Observe = (end: ObservedEnd) => Effect.Effect<void, unknown>

export class GraphObserver extends Context.Service<
  GraphObserver,
  {
    /** Absent if usage is reported only to the readers of events. */
    readonly observe?: Observe
  }
>()("@cogni/sandbox-graph-provider/GraphObserver") {}

/** Calls `observe` at the end of every run. */
export const layer = (observe: Observe): Layer.Layer<GraphObserver> =>
  Layer.succeed(GraphObserver, { observe })

/** No observer: usage is only in the events of a run and in its record. For programs that bill no account. */
export const layerNone: Layer.Layer<GraphObserver> = Layer.succeed(GraphObserver, {})
