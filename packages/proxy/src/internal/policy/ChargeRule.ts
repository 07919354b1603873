/**
 * Which calls may have run a model, and are charged what was reserved for them where the upstream told no figures.
 *
 * | How the call ended | Charged |
 * |---|---|
 * | refused by the gateway, or ended before it was handed to the upstream | nothing |
 * | no connection to the upstream (refused, not found, timed out) | nothing |
 * | the connection broke after the request was sent, before an answer | the reservation |
 * | the agent hung up, or the run ended, before an answer | the reservation |
 * | the upstream refused: status 300 or above, but for 408, 504 and 524 | nothing, unless it told figures |
 * | 408, 504 or 524: something on the way stopped waiting for the model | the reservation |
 * | status 2xx with all figures | the figures |
 * | status 2xx without figures, or with some of them, however it ended | the figures told; else the reservation |
 * | `count_tokens` | nothing |
 */
import type { LlmOutcome } from "@cogni/sandbox-core/RunResult"

export interface Ended {
  /** The request was handed to the upstream. */
  readonly sent: boolean
  readonly outcome: LlmOutcome
  /** The status that the upstream answered with, where it did. */
  readonly upstreamStatus?: number | undefined
}

/** Statuses of those who passed a request on and did not wait for its answer. */
const gaveUpWaiting: ReadonlySet<number> = new Set([408, 504, 524])

/** No connection was made, so nothing was sent. */
const neverArrived: ReadonlySet<LlmOutcome> = new Set(["upstream_unreachable", "upstream_timeout"])

export const mayHaveRun = ({ outcome, sent, upstreamStatus }: Ended): boolean => {
  if (!sent) return false
  if (upstreamStatus !== undefined) return upstreamStatus < 300 || gaveUpWaiting.has(upstreamStatus)
  return !neverArrived.has(outcome)
}
