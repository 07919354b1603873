/** Function between a run store and a proxy: the traffic of a run whose process died. */
import type { Effect } from "effect"
import type { RunId } from "./RunId.ts"
import type { LlmTraffic } from "./RunFigures.ts"

/**
 * Returns what a run used, from the audit in its directory, or nothing if it has none. For runs whose process died
 * before it could report. `AuditTraffic.reader` of `@cogni/sandbox-proxy` returns one.
 */
export type TrafficOf = (run: {
  readonly runId: RunId
  readonly directory: string
}) => Effect.Effect<LlmTraffic | undefined, { readonly message: string }>
