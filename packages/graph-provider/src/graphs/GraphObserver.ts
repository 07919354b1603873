/**
 * Who is told of every run of a graph, whatever its reader does.
 *
 * A reader may leave before a run's last events; a ledger and a counter may not. They are told here: of each usage fact
 * and of how the run ended, once each, on every path, with the context that the run was started in.
 */
import { Context, Effect } from "effect"
import type { GraphFinal, GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { UsageFact } from "../events/UsageFact.ts"

/** What of a request its observers may know: nothing of what was said. */
export type ObservedRequest = Pick<GraphRunRequest, "graphId" | "model">

/** How a run went. */
export interface ObservedEnd {
  readonly request: ObservedRequest
  readonly context: RunContext
  readonly final: GraphFinal
  readonly facts: ReadonlyArray<UsageFact>
  readonly durationMs: number
}

/**
 * Nobody, unless provided. Called while the run's scope is still open, in its own time: what takes long belongs into a
 * queue.
 */
export const GraphObserver = Context.Reference<(end: ObservedEnd) => Effect.Effect<void>>(
  "@cogni/sandbox-graph-provider/GraphObserver",
  { defaultValue: () => () => Effect.void }
)
