/**
 * Reads from its audit what each call of a run used and cost, for a ledger: for runs that ended well and for those
 * whose process died.
 *
 * Reads only, so any number of processes may do it at the same time, with the same result. A call without an end is
 * charged as reserved. Entries that do not follow from the hash chain are not trusted.
 */
import type { CallsOf } from "@cogni/sandbox-core/AuditedCall"
import { Effect } from "effect"
import * as AuditReading from "./internal/audit/AuditReading.ts"
import * as AuditCallList from "./internal/audit/AuditCallList.ts"
import type { Prices } from "./Prices.ts"

interface AuditCallsOptions {
  /**
   * Model prices of the gateway, for calls that have no end and whose reservation the audit does not name. Without
   * them, the cost of these calls is unknown.
   */
  readonly prices?: Prices | undefined
}

/** Creates a reader of the audits of runs. It returns nothing for a run whose directory has no gateway's audit. */
export const reader =
  (options: AuditCallsOptions = {}): CallsOf =>
  (run) =>
    Effect.gen(function* () {
      const found = yield* AuditReading.read(run, () => AuditCallList.make(run.runId, options.prices))
      return found === undefined && (yield* AuditReading.isGone(run))
        ? { calls: [], isWhole: false, isGone: true }
        : found
    })
