/**
 * What comes back from a run.
 *
 * All of it is plain data with a schema, so that it can be stored, sent and compared.
 */
import * as ByteSize from "effect/ByteSize"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { Posture } from "./Posture.ts"
import { RunId } from "./RunId.ts"

/** One stream of the agent's output. */
export const Channel = Schema.Struct({
  /** Decoded as UTF-8; a byte sequence that is none becomes U+FFFD. */
  text: Schema.String,
  /** How many bytes the agent wrote, kept or not. */
  bytes: Schema.Int,
  /** True when more was written than `outputRetainedBytesMax`; `text` is the beginning. */
  truncated: Schema.Boolean
})

export type Channel = typeof Channel.Type

export const Output = Schema.Struct({ stdout: Channel, stderr: Channel })

export type Output = typeof Output.Type

/** Nothing written yet. */
export const emptyOutput: Output = {
  stdout: { text: "", bytes: 0, truncated: false },
  stderr: { text: "", bytes: 0, truncated: false }
}

/** A piece of output, as it came. */
export interface OutputChunk {
  readonly channel: "stdout" | "stderr"
  readonly bytes: Uint8Array
}

/** A size for people: `1.5 MiB`. */
export const formatBytes = (bytes: number): string => ByteSize.format(ByteSize.bytes(bytes), { precision: 1 })

/** The most a run had of what is limited. Absent where the host could not read the kernel's figures. */
export const Peak = Schema.Struct({
  memoryBytes: Schema.optionalKey(Schema.Int),
  processes: Schema.optionalKey(Schema.Int),
  workspaceBytes: Schema.optionalKey(Schema.Int)
})

export type Peak = typeof Peak.Type

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

/** Tokens and cost of one call, as the upstream said. A figure that is not known is absent, never 0. */
export const LlmUsage = Schema.Struct({
  /** All of them, also those read from or written to a cache. */
  inputTokens: Schema.optionalKey(Count),
  outputTokens: Schema.optionalKey(Count),
  cacheReadTokens: Schema.optionalKey(Count),
  cacheWriteTokens: Schema.optionalKey(Count),
  /** The part of `cacheWriteTokens` that is cached for an hour, not for five minutes. */
  cacheWrite1hTokens: Schema.optionalKey(Count),
  costUsd: Schema.optionalKey(Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))),
  /** The call ended before the upstream told all tokens: those it did not tell are what was reserved for the call. */
  estimated: Schema.optionalKey(Schema.Literal(true))
})

export type LlmUsage = typeof LlmUsage.Type

/** How a call ended, as the proxy saw it. */
export const LlmOutcome = Schema.Literals([
  /** The upstream's whole answer was handed over, whatever its status. */
  "completed",
  /** Answered by the proxy; nothing went upstream. */
  "answered",
  "refused",
  "client_aborted",
  "upstream_unreachable",
  "upstream_timeout",
  /** The upstream's answer broke off, or was no HTTP. */
  "upstream_cut",
  /** The run ended first. */
  "run_ended"
])

export type LlmOutcome = typeof LlmOutcome.Type

/** One request of the agent to its model, as the proxy on the host's side saw it. */
export const LlmCall = Schema.Struct({
  /** When it began, ISO 8601. */
  at: Schema.String,
  requestId: Schema.String,
  method: Schema.String,
  path: Schema.String,
  status: Schema.Int,
  /** The upstream's id of the call; absent when the request never got there. */
  callId: Schema.optionalKey(Schema.String),
  requestBytes: Schema.Int,
  responseBytes: Schema.Int,
  durationMs: Schema.Finite,
  /** False when the answer was cut off. */
  completed: Schema.Boolean,
  /** Said by proxies that read bodies; so are the fields below. */
  outcome: Schema.optionalKey(LlmOutcome),
  /** As the upstream knows it. */
  model: Schema.optionalKey(Schema.String),
  usage: Schema.optionalKey(LlmUsage)
})

export type LlmCall = typeof LlmCall.Type

/**
 * Whether a call got as far as the upstream. A proxy that reads bodies gives each that does an id of its own; of one
 * that does not, all calls that it wrote down did.
 */
export const hasReachedUpstream = ({ callId, outcome }: LlmCall): boolean =>
  outcome === undefined || (callId !== undefined && outcome !== "answered" && outcome !== "refused")

/** What a run may have only so much of. The first five end it; the last two pass again in a moment. */
export const BudgetName = Schema.Literals([
  "calls",
  "input_tokens",
  "output_tokens",
  "cost_usd",
  "bytes",
  "concurrent_calls",
  "requests_per_second"
])

export type BudgetName = typeof BudgetName.Type

/** A budget that is spent. */
export const Exhaustion = Schema.Struct({
  budget: BudgetName,
  limit: Schema.Finite,
  /** What had been used when it was found spent, with estimates where the upstream told nothing. */
  used: Schema.Finite
})

export type Exhaustion = typeof Exhaustion.Type

/** All calls of a run together. */
export const LlmUsageTotal = Schema.Struct({
  /** Calls that were passed on to the upstream. */
  calls: Count,
  inputTokens: Count,
  outputTokens: Count,
  cacheReadTokens: Count,
  cacheWriteTokens: Count,
  /** Of the calls whose cost is known or estimated; absent when no call has one. */
  costUsd: Schema.optionalKey(Schema.Finite),
  /** The part of `inputTokens` that the upstream did not tell; absent where it told everything. */
  estimatedInputTokens: Schema.optionalKey(Count),
  /** The part of `outputTokens` that the upstream did not tell; absent where it told everything. */
  estimatedOutputTokens: Schema.optionalKey(Count),
  /** The part of `costUsd` that rests on estimated tokens; absent where none does. */
  estimatedCostUsd: Schema.optionalKey(Schema.Finite),
  /** Calls whose tokens the upstream did not tell, or not all of them. They are counted with what was reserved. */
  callsWithoutUsage: Count,
  /** Calls that are not in `costUsd`. */
  callsWithoutCost: Count
})

export type LlmUsageTotal = typeof LlmUsageTotal.Type

/** Where the chain of an audit stands: it can neither be shortened nor changed below this. */
export const AuditHead = Schema.Struct({
  entries: Count,
  /** SHA-256 of the last entry, in hexadecimal. */
  hash: Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/u))
})

export type AuditHead = typeof AuditHead.Type

/** The way out as it was: none, or what went through it. */
export const LlmTraffic = Schema.Struct({
  proxy: Schema.String,
  upstream: Schema.String,
  /** The first of them; `callsTotal` says whether there were more, and the audit holds all. */
  calls: Schema.Array(LlmCall),
  /** How many calls the audit holds. */
  callsTotal: Schema.Int,
  /** How many of those could not be read, and so are not in `calls`. */
  unreadableRows: Schema.Int,
  /** Names (never values) of the headers that were set on the host's side. */
  injectedHeaders: Schema.Array(Schema.String),
  /** Where the audit of the run's traffic lies on the host. */
  auditPath: Schema.optionalKey(Schema.String),
  auditHead: Schema.optionalKey(AuditHead),
  /** Absent where the proxy does not read answers. */
  usage: Schema.optionalKey(LlmUsageTotal),
  /** The first budget that was spent, if one was. */
  exhausted: Schema.optionalKey(Exhaustion),
  /** How often the agent called a tool of the host. */
  toolCallsTotal: Schema.optionalKey(Count)
})

export type LlmTraffic = typeof LlmTraffic.Type

/** A canary was seen where nothing of it should ever be. */
export const Evidence = Schema.Struct({
  at: Schema.String,
  /** Which of the planted secrets, such as `aws_secret_access_key`. */
  canary: Schema.String,
  /** How it was spelt: `plain`, `base64`, `hex`, … */
  encoding: Schema.String,
  channel: Schema.Literals(["prompt", "tool_call", "stdout", "stderr"]),
  /** Of the call that carried it. */
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

/** How long a phase took. Phases overlap: their sum is more than the run. */
export const Timing = Schema.Struct({ phase: Phase, durationMs: Schema.Finite })

export type Timing = typeof Timing.Type

/** A run that ended by itself, whatever its exit code. */
export const RunResult = Schema.Struct({
  runId: RunId,
  exitCode: Schema.Int,
  output: Output,
  peak: Peak,
  posture: Posture,
  llm: Schema.optionalKey(LlmTraffic),
  /** Canaries that were seen on a way out; the first of each kind. Empty where none are planted. */
  suspicions: Schema.Array(Evidence).pipe(Schema.withDecodingDefaultKey(Effect.succeed([]))),
  timings: Schema.Array(Timing),
  durationMs: Schema.Finite
})

export type RunResult = typeof RunResult.Type
