/** Limits of reconciliation: when a row is due, when it is missing, and how much one pass reads. */
import type { PlanLimits } from "./internal/RowPlan.ts"
import type { Rules } from "./Reconciliation.ts"

export interface Limits extends Rules, PlanLimits {
  /** Maximum rows of one query. The calls of a larger one are asked for by their IDs. */
  readonly rowsMax: number
  /** Maximum calls that one pass asks for by their IDs. The others wait for the next pass. */
  readonly lookupsMax: number
  /** Time after which a pass begins no further page, in seconds. */
  readonly passSecondsMax: number
}

/** Seconds for which LiteLLM collects rows before it writes them, unless `proxy_batch_write_at` says otherwise. */
const batchSecondsDefault = 10

/** LiteLLM adds up to 5 s at random, and writes a batch for a while. */
const writingSeconds = 10

/** Returns the limits for an upstream that writes its rows every `batchSeconds`. */
export const limitsFor = (batchSeconds: number = batchSecondsDefault): Limits => ({
  rowsDelaySeconds: batchSeconds + writingSeconds,
  deadlineSeconds: Math.max(300, 3 * (batchSeconds + writingSeconds)),
  costToleranceUsd: 1e-9,
  costToleranceRatio: 1e-6,
  clockSkewSecondsMax: 300,
  windowSecondsMax: 3600,
  rowsMax: 50_000,
  lookupsMax: 2000,
  passSecondsMax: 300
})
