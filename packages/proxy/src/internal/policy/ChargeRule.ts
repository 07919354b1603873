/**
 * Decides which calls may have run a model. Such a call is charged its reservation if the upstream reported no figures.
 *
 * | How the call ended | Charged |
 * |---|---|
 * | refused by the gateway, or ended before it was handed to the upstream | nothing |
 * | no connection to the upstream (refused, not found, timed out) | nothing |
 * | the connection broke after the request was sent, before an answer | the reservation |
 * | the agent hung up, or the run ended, and the answer was not complete in time (`CallDrains.ts`) | the reservation |
 * | the upstream refused: status 300 or above, but for 408, 504 and 524 | nothing, unless it reported figures |
 * | 408, 504 or 524: an intermediary stopped waiting for the model | the reservation |
 * | status 2xx with all figures | the figures |
 * | status 2xx without some or all figures, however it ended | the reported figures; else the reservation |
 * | `count_tokens` | nothing |
 */
import type { LlmOutcome } from "@cogni/sandbox-core/RunFigures"

export interface Ended {
  /** The request was handed to the upstream. */
  readonly sent: boolean
  readonly outcome: LlmOutcome
  /** The upstream's status, if it answered. */
  readonly upstreamStatus?: number | undefined
}

/** Statuses of intermediaries that forwarded a request and stopped waiting for its answer. */
const gaveUpWaiting: ReadonlySet<number> = new Set([408, 504, 524])

/** Outcomes without a connection, so that nothing was sent. */
const neverArrived: ReadonlySet<LlmOutcome> = new Set(["upstream_unreachable", "upstream_timeout"])

export const mayHaveRun = ({ outcome, sent, upstreamStatus }: Ended): boolean => {
  if (!sent) return false
  if (upstreamStatus !== undefined) return upstreamStatus < 300 || gaveUpWaiting.has(upstreamStatus)
  return !neverArrived.has(outcome)
}
