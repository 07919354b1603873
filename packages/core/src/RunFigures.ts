/**
 * The parts of a run's result: its use of resources and of a model, its evidence and its timing.
 */
import * as Schema from "effect/Schema"

// No safe integer reaches 1024 PiB.
const sizeUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]

/**
 * Formats a size for people, such as `1.5 MiB`. Effect's `ByteSize` gives the same texts, but a minor version of Effect
 * may change it.
 */
export const formatBytes = (bytes: number): string => {
  if (!Number.isSafeInteger(bytes) || bytes < 0)
    throw new Error(`A size must be a whole number of bytes and not negative. Received ${bytes}`)
  // Integers of any size, because ten times a large size is no longer an exact number.
  let factor = 1n
  let unit = 0
  const tenths = () => Number((BigInt(bytes) * 20n + factor) / (factor * 2n))
  while (tenths() >= 10_240) {
    factor *= 1024n
    unit++
  }
  return `${tenths() / 10} ${sizeUnits[unit]}`
}

/**
 * Peak use of limited resources. A figure is absent if the host could not read it. Before Linux 6.11, processes that
 * start and end within 100 ms may not be in `processes`.
 */
export const Peak = Schema.Struct({
  memoryBytes: Schema.optionalKey(Schema.Int),
  processes: Schema.optionalKey(Schema.Int),
  workspaceBytes: Schema.optionalKey(Schema.Int)
})

export type Peak = typeof Peak.Type

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

/** Tokens and cost of one call, as the upstream reported them. An unknown figure is absent, never 0. */
export const LlmUsage = Schema.Struct({
  /** All input tokens, including those read from or written to a cache. */
  inputTokens: Schema.optionalKey(Count),
  outputTokens: Schema.optionalKey(Count),
  cacheReadTokens: Schema.optionalKey(Count),
  cacheWriteTokens: Schema.optionalKey(Count),
  /** The part of `cacheWriteTokens` that is cached for an hour, not for five minutes. */
  cacheWrite1hTokens: Schema.optionalKey(Count),
  costUsd: Schema.optionalKey(Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))),
  /** Source of `costUsd`, if it is the host's: its prices, for reported tokens or for reserved ones. Absent: the upstream. */
  priceSource: Schema.optionalKey(Schema.Literals(["prices", "reservation"])),
  /** The call ended before the upstream reported all tokens. Missing figures are those reserved for the call. */
  estimated: Schema.optionalKey(Schema.Literal(true))
})

export type LlmUsage = typeof LlmUsage.Type

/** How a call ended, as the proxy saw it. */
export const LlmOutcome = Schema.Literals([
  /** The upstream's whole answer was passed on, whatever its status. */
  "completed",
  /** Answered by the proxy; nothing went upstream. */
  "answered",
  "refused",
  "client_aborted",
  "upstream_unreachable",
  "upstream_timeout",
  /** The upstream's answer was truncated, or was not valid HTTP. */
  "upstream_cut",
  /** The run ended first. */
  "run_ended"
])

export type LlmOutcome = typeof LlmOutcome.Type

/** One request of the agent to its model, as the proxy saw it. */
export const LlmCall = Schema.Struct({
  /** When it began, ISO 8601. */
  at: Schema.String,
  requestId: Schema.String,
  method: Schema.String,
  path: Schema.String,
  status: Schema.Int,
  /** Given by a proxy that reads bodies, otherwise read from the upstream's answer. Absent if not passed on. */
  callId: Schema.optionalKey(Schema.String),
  /** The upstream's own ID of the call, if the upstream finds its record only by that. */
  upstreamCallId: Schema.optionalKey(Schema.String),
  requestBytes: Schema.Int,
  responseBytes: Schema.Int,
  durationMs: Schema.Finite,
  /** False when the answer was cut off. */
  completed: Schema.Boolean,
  /** A proxy that does not read bodies reports it only for a request that it did not pass on. */
  outcome: Schema.optionalKey(LlmOutcome),
  /** The model's name at the upstream. Reported only by proxies that read bodies, like the usage. */
  model: Schema.optionalKey(Schema.String),
  /** Time that the gateway added before the call was sent. */
  gatewayMs: Schema.optionalKey(Schema.Finite),
  usage: Schema.optionalKey(LlmUsage)
})

export type LlmCall = typeof LlmCall.Type

/**
 * Whether a call was passed on to the upstream. A proxy that reads bodies gives each such call an ID. A proxy that does
 * not read bodies reports no outcome for such calls.
 */
export const hasReachedUpstream = ({ callId, outcome }: LlmCall): boolean =>
  outcome === undefined || (callId !== undefined && outcome !== "answered" && outcome !== "refused")

/** Budgets of a run. The first five stay spent; the others recover. The last is one of the account that pays. */
export const BudgetName = Schema.Literals([
  "calls",
  "input_tokens",
  "output_tokens",
  "cost_usd",
  "bytes",
  "concurrent_calls",
  "requests_per_second",
  "account_calls_per_minute",
  "runtime_seconds"
])

export type BudgetName = typeof BudgetName.Type

/** A budget that is spent. */
export const Exhaustion = Schema.Struct({
  budget: BudgetName,
  limit: Schema.Finite,
  /** Usage when the budget was found spent, with estimates for figures that the upstream did not report. */
  used: Schema.Finite
})

export type Exhaustion = typeof Exhaustion.Type

/** Total usage of all calls of a run. */
export const LlmUsageTotal = Schema.Struct({
  /** Calls that were passed on to the upstream. */
  calls: Count,
  inputTokens: Count,
  outputTokens: Count,
  cacheReadTokens: Count,
  cacheWriteTokens: Count,
  /** Sum over the calls with a known or estimated cost; absent if no call has one. */
  costUsd: Schema.optionalKey(Schema.Finite),
  /** The part of `inputTokens` that the upstream did not report; absent if it reported everything. */
  estimatedInputTokens: Schema.optionalKey(Count),
  /** The part of `outputTokens` that the upstream did not report; absent if it reported everything. */
  estimatedOutputTokens: Schema.optionalKey(Count),
  /** The part of `costUsd` that is computed from estimated tokens; absent if there is no such part. */
  estimatedCostUsd: Schema.optionalKey(Schema.Finite),
  /** Calls for which the upstream did not report all tokens. They count with what was reserved. */
  callsWithoutUsage: Count,
  /** Calls that are not in `costUsd`. */
  callsWithoutCost: Count
})

export type LlmUsageTotal = typeof LlmUsageTotal.Type

/** The end of an audit's hash chain. Nothing before it can be removed or changed without detection. */
export const AuditHead = Schema.Struct({
  entries: Count,
  /** SHA-256 of the last entry, in hexadecimal. */
  hash: Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/u))
})

export type AuditHead = typeof AuditHead.Type

/** Model traffic of a run through its proxy. */
export const LlmTraffic = Schema.Struct({
  proxy: Schema.String,
  upstream: Schema.String,
  /** The first calls. `callsTotal` shows whether there were more; the audit has all of them. */
  calls: Schema.Array(LlmCall),
  /** Number of calls in the audit, and of those that a proxy which ended did not write there. */
  callsTotal: Schema.Int,
  /** Number of calls that could not be read from the audit, or were never written, and are missing from `calls`. */
  unreadableRows: Schema.Int,
  /** Names (never values) of the headers that the host set. */
  injectedHeaders: Schema.Array(Schema.String),
  /** Host path of the audit of the run's traffic. */
  auditPath: Schema.optionalKey(Schema.String),
  auditHead: Schema.optionalKey(AuditHead),
  /** Absent if the proxy does not read answers. */
  usage: Schema.optionalKey(LlmUsageTotal),
  /** The first budget that was spent, if one was. */
  exhausted: Schema.optionalKey(Exhaustion),
  /** The spent part of the share of the run's subagents, whose later calls were refused. */
  subagentsExhausted: Schema.optionalKey(Exhaustion),
  /** Number of host tool calls. */
  toolCallsTotal: Schema.optionalKey(Count),
  /** Number of requests that the package mirror served. Only if the run has a mirror. */
  packagesTotal: Schema.optionalKey(Count)
})

export type LlmTraffic = typeof LlmTraffic.Type

/** Evidence that a canary left the sandbox. */
export const Evidence = Schema.Struct({
  at: Schema.String,
  /** Name of the planted secret, such as `aws_secret_access_key`. */
  canary: Schema.String,
  /** How it was encoded: `plain`, `base64`, `hex`, … */
  encoding: Schema.String,
  channel: Schema.Literals(["prompt", "tool_call", "package", "stdout", "stderr"]),
  /** Request ID of the call that contained it. */
  requestId: Schema.optionalKey(Schema.String)
})

export type Evidence = typeof Evidence.Type

/** Names of the phases of a run, in the order in which they end. */
export const Phase = Schema.Literals([
  "workspace",
  "socket",
  "create",
  "start",
  "proxy",
  "entrypoint",
  "agent",
  "collect"
])

export type Phase = typeof Phase.Type

/** Duration of a phase. Phases overlap, so their sum can exceed the run's duration. */
export const Timing = Schema.Struct({ phase: Phase, durationMs: Schema.Finite })

export type Timing = typeof Timing.Type
