/** Derives what a run's key permits from the run's spec. Pure. */
import type { LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import * as KeyInjection from "../../KeyInjection.ts"
import type { RunKeyTerms } from "../../RunKeys.ts"
import type { UpstreamProfile } from "../../UpstreamProfile.ts"

/**
 * How many times higher the upstream's limits are than the run's own.
 *
 * The gateway's budget decides; the upstream's is a second lock for the case that the gateway fails. LiteLLM reserves
 * the longest answer of each open call: 16 calls of at most 1,000 output tokens, which cost 0.003 US dollars in the
 * end, passed with a budget of 0.17 and were partly refused with 0.10. The gateway reserves the same amount by its own
 * prices, and LiteLLM counts a call a moment longer than the gateway. Twice the limit covers both.
 */
const headroom = 2

/** Seconds that a key outlives its run's time limit: for the start, the end, and clocks that differ. */
const marginSeconds = 15 * 60

const secondsPerMinute = 60

export const make = (
  { runId, runtimeSecondsMax }: Pick<LlmRequest, "runId" | "runtimeSecondsMax">,
  {
    budget = { onExhausted: "refuse" },
    identity,
    model,
    models
  }: Pick<LlmAccess, "budget" | "identity" | "model" | "models">,
  { pathPrefix, paths }: Pick<UpstreamProfile, "pathPrefix" | "paths">
): RunKeyTerms => {
  const { concurrentCallsMax, costUsdMax, requestsPerSecondMax } = budget
  return {
    runId,
    models: [...new Set([model, ...Object.values(models)])],
    routes: Object.values(paths).map((path) => `${pathPrefix}${path}`),
    lifetimeSeconds: Math.ceil(runtimeSecondsMax) + marginSeconds,
    ...(costUsdMax === undefined ? {} : { budgetUsdMax: costUsdMax * headroom }),
    ...(concurrentCallsMax === undefined ? {} : { concurrentCallsMax: concurrentCallsMax * headroom }),
    ...(requestsPerSecondMax === undefined
      ? {}
      : { requestsPerMinuteMax: requestsPerSecondMax * secondsPerMinute * headroom }),
    spendMetadata: KeyInjection.spendFields(runId, identity)
  }
}
