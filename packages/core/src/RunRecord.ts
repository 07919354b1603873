/**
 * The record of one run, as stores keep it.
 */
import { Schema } from "effect"
import { PoolUse } from "./PoolUse.ts"
import { RunId } from "./RunId.ts"
import { Output, RunResult } from "./RunResult.ts"
import { Evidence, LlmTraffic, Peak, Timing } from "./RunFigures.ts"
import { SandboxSpec } from "./SandboxSpec.ts"
import { Posture } from "./Posture.ts"

export const Outcome = Schema.Union([
  Schema.Struct({ status: Schema.Literal("running") }),
  Schema.Struct({ status: Schema.Literal("exited"), result: RunResult }),
  Schema.Struct({
    status: Schema.Literal("failed"),
    reason: Schema.String,
    code: Schema.String,
    message: Schema.String,
    output: Schema.optionalKey(Output),
    peak: Schema.optionalKey(Peak)
  }),
  /** An open sandbox was closed by its owner. */
  Schema.Struct({ status: Schema.Literal("closed") }),
  Schema.Struct({ status: Schema.Literal("interrupted") }),
  /** The host process died during the run. Determined when the record is read, or by the reaper. */
  Schema.Struct({ status: Schema.Literal("abandoned") })
])

export type Outcome = typeof Outcome.Type

export const RunRecord = Schema.Struct({
  runId: RunId,
  spec: SandboxSpec,
  /** `ResourceLabels.formatOwner` of the host process. */
  owner: Schema.String,
  startedAt: Schema.String,
  endedAt: Schema.optionalKey(Schema.String),
  outcome: Outcome,
  posture: Schema.optionalKey(Posture),
  /** The run's model calls, however it ended. */
  llm: Schema.optionalKey(LlmTraffic),
  /** Canaries seen leaving the sandbox, however the run ended. */
  suspicions: Schema.optionalKey(Schema.Array(Evidence)),
  timings: Schema.Array(Timing),
  /** How the run got its sandbox; absent if its process had no pool. */
  pool: Schema.optionalKey(PoolUse),
  /** Data that other components attach to the run, by name: `relay` is the delivery of its commits. */
  annotations: Schema.optionalKey(Schema.Record(Schema.String, Schema.Json))
})

export type RunRecord = typeof RunRecord.Type
