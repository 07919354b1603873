/**
 * What comes back from a run.
 *
 * All of it is plain data with a schema, so that it can be stored, sent and compared.
 */
import { Schema } from "effect"
import { Posture } from "./Posture.ts"
import { RunId } from "./RunId.ts"

/** One stream of the agent's output. @category models */
export const Channel = Schema.Struct({
  /** Decoded as UTF-8; a byte sequence that is none becomes U+FFFD. */
  text: Schema.String,
  /** How many bytes the agent wrote, kept or not. */
  bytes: Schema.Int,
  /** True when more was written than `outputRetainedBytesMax`; `text` is the beginning. */
  truncated: Schema.Boolean
})

/** @category models */
export type Channel = typeof Channel.Type

/** @category models */
export const Output = Schema.Struct({ stdout: Channel, stderr: Channel })

/** @category models */
export type Output = typeof Output.Type

/** Nothing written yet. @category constants */
export const emptyOutput: Output = {
  stdout: { text: "", bytes: 0, truncated: false },
  stderr: { text: "", bytes: 0, truncated: false }
}

/** The most a run had of what is limited. Absent where the host could not read the kernel's figures. @category models */
export const Peak = Schema.Struct({
  memoryBytes: Schema.optionalKey(Schema.Int),
  processes: Schema.optionalKey(Schema.Int),
  workspaceBytes: Schema.optionalKey(Schema.Int)
})

/** @category models */
export type Peak = typeof Peak.Type

/** One request of the agent to its model, as the proxy on the host's side saw it. @category models */
export const LlmCall = Schema.Struct({
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
  completed: Schema.Boolean
})

/** @category models */
export type LlmCall = typeof LlmCall.Type

/** The way out as it was: none, or what went through it. @category models */
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
  auditPath: Schema.optionalKey(Schema.String)
})

/** @category models */
export type LlmTraffic = typeof LlmTraffic.Type

/** Names of the phases of a run, in the order in which they end. @category models */
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

/** @category models */
export type Phase = typeof Phase.Type

/** How long a phase took. Phases overlap: their sum is more than the run. @category models */
export const Timing = Schema.Struct({ phase: Phase, durationMs: Schema.Finite })

/** @category models */
export type Timing = typeof Timing.Type

/** A run that ended by itself, whatever its exit code. @category models */
export const RunResult = Schema.Struct({
  runId: RunId,
  exitCode: Schema.Int,
  output: Output,
  peak: Peak,
  posture: Posture,
  llm: Schema.optionalKey(LlmTraffic),
  timings: Schema.Array(Timing),
  durationMs: Schema.Finite
})

/** @category models */
export type RunResult = typeof RunResult.Type
