/**
 * Reads from its audit what a run used, for runs whose host process was killed before it could report their traffic.
 *
 * Reads only, so any number of processes may do it at the same time, with the same result. Calls that were open are
 * charged as reserved. Entries that do not match the hash chain are not trusted: their usage is unknown.
 */
import type { TrafficOf } from "@cogni/sandbox-core/TrafficOf"
import { Effect } from "effect"
import * as AuditReading from "./internal/audit/AuditReading.ts"
import * as AuditUsage from "./internal/audit/AuditUsage.ts"
import type { Prices } from "./Prices.ts"

interface AuditTrafficOptions {
  /** Model prices of the gateway. Without them, open calls have no cost. */
  readonly prices?: Prices | undefined
}

/**
 * Creates a reader of the audits of runs, for `FileRunStore`. It returns nothing for a run without a gateway's audit:
 * its proxy was never opened, or it was nginx, whose log has no usage.
 */
export const reader =
  (options: AuditTrafficOptions = {}): TrafficOf =>
  (run) =>
    Effect.map(
      AuditReading.read(run, () => AuditUsage.make(run.runId, options.prices)),
      (traffic) => traffic && { ...traffic, auditPath: AuditReading.pathOf(run.directory) }
    )
