/** Metrics and warnings of reconciliation. No label holds a value that a caller, an agent or an upstream chooses. */
import { attribute } from "@cogni/sandbox-core/Telemetry"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import { type LedgerEntry } from "../LedgerEntry.ts"
import { key } from "../EntryKey.ts"
import type { SpendRowsUnavailable } from "../SpendRows.ts"

const calls = Metric.counter("sandbox_reconciled_calls_total", {
  description: "Verdicts of reconciliation, by the new state of the call and the reason",
  incremental: true
})

const passes = Metric.counter("sandbox_reconciliations_total", {
  description: "Passes of reconciliation, by outcome: completed, truncated, or why rows could not be read",
  incremental: true
})

const waiting = Metric.gauge("sandbox_reconciliation_waiting_calls", {
  description: "Calls without a verdict after the last pass: their row may still come, or could not be read"
})

const oldest = Metric.gauge("sandbox_reconciliation_oldest_seconds", {
  description: "Seconds since the oldest of these calls was recorded; 0 without such a call"
})

/** Counts a verdict that this process recorded. */
export const recorded = ({ reason, state }: LedgerEntry): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(calls, { state, reason: reason ?? "none" }), 1)

/** Counts a pass. */
export const passed = (pass: {
  readonly failure: SpendRowsUnavailable | undefined
  readonly truncated: boolean
  readonly waiting: number
  readonly unread: number
  readonly oldestMs: number | undefined
}): Effect.Effect<void> =>
  Effect.gen(function* () {
    const outcome = pass.failure?.problem ?? (pass.truncated ? "truncated" : "completed")
    yield* Metric.update(Metric.withAttributes(passes, { outcome }), 1)
    yield* Metric.update(waiting, pass.waiting + pass.unread)
    const nowMs = yield* Clock.currentTimeMillis
    yield* Metric.update(oldest, pass.oldestMs === undefined ? 0 : (nowMs - pass.oldestMs) / 1000)
  })

/** Warns the operator about a call that differs or has no row. */
export const warn = (entry: LedgerEntry): Effect.Effect<void> =>
  Effect.logWarning(
    `the cost of call ${key(entry)} is ${entry.state} (${entry.reason ?? "no reason"})${entry.detail === undefined ? "" : `: ${entry.detail}`}. See: cogni-sandbox spend explain ${entry.runId}`
  ).pipe(Effect.annotateLogs({ [attribute.runId]: entry.runId, [attribute.callId]: entry.usageUnitId }))
