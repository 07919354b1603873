/**
 * Observer of every graph run, whatever the run's reader does.
 *
 * A reader can leave before a run's last events; a ledger or a counter must not miss them. The observer receives the
 * usage facts and the outcome of each run, once on every path, in the context in which the run was started.
 */
import { Context, Effect } from "effect"
import type { GraphFinal, GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { UsageFact } from "../events/UsageFact.ts"

/** The parts of a request that an observer sees. They contain none of the conversation. */
export type ObservedRequest = Pick<GraphRunRequest, "graphId" | "model">

/** The end of a run. */
export interface ObservedEnd {
  readonly request: ObservedRequest
  readonly context: RunContext
  readonly final: GraphFinal
  readonly facts: ReadonlyArray<UsageFact>
  readonly durationMs: number
}

/**
 * Does nothing by default. Called while the run's scope is still open. The end of the run waits for it, at most 30
 * seconds, so slow work belongs in a queue.
 */
export const GraphObserver = Context.Reference<(end: ObservedEnd) => Effect.Effect<void>>(
  "@cogni/sandbox-graph-provider/GraphObserver",
  { defaultValue: () => () => Effect.void }
)
