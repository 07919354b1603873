/**
 * The result of a run.
 *
 * All of it is plain data with a schema, so that it can be stored, sent and compared.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { Posture } from "./Posture.ts"
import { RunId } from "./RunId.ts"
import { Peak, LlmTraffic, Evidence, Timing } from "./RunFigures.ts"

/** One stream of the agent's output. */
export const Channel = Schema.Struct({
  /** Decoded as UTF-8; invalid byte sequences become U+FFFD. */
  text: Schema.String,
  /** Number of bytes that the agent wrote, including those not kept. */
  bytes: Schema.Int,
  /** True if the agent wrote more than `outputRetainedBytesMax`; `text` is then the beginning. */
  truncated: Schema.Boolean
})

export type Channel = typeof Channel.Type

export const Output = Schema.Struct({ stdout: Channel, stderr: Channel })

export type Output = typeof Output.Type

/** Output of a run that has written nothing. */
export const emptyOutput: Output = {
  stdout: { text: "", bytes: 0, truncated: false },
  stderr: { text: "", bytes: 0, truncated: false }
}

/** A piece of output, as received. */
export interface OutputChunk {
  readonly channel: "stdout" | "stderr"
  readonly bytes: Uint8Array
}

/** Result of a run that ended by itself, whatever its exit code. */
export const RunResult = Schema.Struct({
  runId: RunId,
  exitCode: Schema.Int,
  output: Output,
  peak: Peak,
  posture: Posture,
  llm: Schema.optionalKey(LlmTraffic),
  /** Canaries seen leaving the sandbox: the first of each canary, encoding and channel. */
  suspicions: Schema.Array(Evidence).pipe(Schema.withDecodingDefaultKey(Effect.succeed([]))),
  timings: Schema.Array(Timing),
  durationMs: Schema.Finite
})

export type RunResult = typeof RunResult.Type
