/**
 * What a caller is told of a run that is on record: how it went, how it was held, what it used.
 *
 * Never what was asked or answered, and no path of the host: a record has both. Pure.
 */
import { Posture } from "@cogni/sandbox-core/Posture"
import { RunId } from "@cogni/sandbox-core/RunId"
import { LlmUsageTotal, Timing } from "@cogni/sandbox-core/RunResult"
import { outputOf, type RunRecord } from "@cogni/sandbox-core/RunStore"
import { DeliveryRecord } from "@cogni/sandbox-git-relay/RelayRun"
import { AiErrorCode } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { Option, Schema, Struct } from "effect"

/** Where a run is. `starting` is one that has no record yet. */
export const RunStatus = Schema.Literals([
  "starting",
  "running",
  "succeeded",
  "failed",
  "closed",
  "interrupted",
  "abandoned"
])

export type RunStatus = typeof RunStatus.Type

const EventsDigest = Schema.Struct({ count: Schema.Int, sha256: Schema.String })

const Relay = DeliveryRecord.mapFields(Struct.omit(["keptAt", "message"]))

export const RunView = Schema.Struct({
  runId: RunId,
  status: RunStatus,
  graphId: Schema.optional(Schema.String),
  model: Schema.optional(Schema.String),
  startedAt: Schema.optional(Schema.String),
  endedAt: Schema.optional(Schema.String),
  attempt: Schema.optional(Schema.Int),
  grantId: Schema.optional(Schema.String),
  requestId: Schema.optional(Schema.String),
  exitCode: Schema.optional(Schema.Int),
  /** Why, where it did not succeed. */
  error: Schema.optional(Schema.Struct({ code: Schema.optional(AiErrorCode), reason: Schema.String })),
  timings: Schema.Array(Timing),
  output: Schema.optional(Schema.Struct({ stdoutBytes: Schema.Int, stderrBytes: Schema.Int })),
  llm: Schema.optional(
    Schema.Struct({
      proxy: Schema.String,
      callsTotal: Schema.Int,
      usage: Schema.optional(LlmUsageTotal)
    })
  ),
  posture: Schema.optional(Posture),
  /** What became of its commits. */
  relay: Schema.optional(Relay),
  /** Of all events that its caller was told: how many, and SHA-256 over them. */
  events: Schema.optional(EventsDigest)
}).annotate({ identifier: "Run" })

export type RunView = typeof RunView.Type

/** Whose run it is; of what a command did without a model, nobody's. */
export const accountOf = ({ spec }: RunRecord): string | undefined => spec.llm?.identity.billingAccountId

/** Whether there is nothing of it any more that could be ended. */
export const isOver = ({ outcome }: RunRecord): boolean => outcome.status !== "running"

export const fromRecord = (record: RunRecord): RunView => {
  const { annotations, endedAt, llm, outcome, posture, runId, spec, startedAt, timings } = record
  const graph = Option.getOrUndefined(decodeGraph(annotations?.["graph"]))
  const output = outputOf(record)
  return {
    runId,
    status: statusOf(record, graph),
    graphId: graph?.graphId ?? spec.llm?.identity.graphId,
    model: spec.llm?.model,
    startedAt,
    endedAt,
    attempt: graph?.attempt,
    grantId: graph?.grantId,
    requestId: graph?.requestId,
    events: graph?.events,
    exitCode: outcome.status === "exited" ? outcome.result.exitCode : undefined,
    error: errorOf(record, graph),
    timings,
    output: output && { stdoutBytes: output.stdout.bytes, stderrBytes: output.stderr.bytes },
    llm: llm && { proxy: llm.proxy, callsTotal: llm.callsTotal, usage: llm.usage },
    posture,
    relay: Option.getOrUndefined(decodeRelay(annotations?.["relay"]))
  }
}

/** As the provider of `sandbox:*` writes it under `graph`. */
const GraphAnnotation = Schema.Struct({
  graphId: Schema.String,
  grantId: Schema.String,
  requestId: Schema.String,
  attempt: Schema.Int,
  ok: Schema.Boolean,
  error: Schema.optionalKey(AiErrorCode),
  reason: Schema.optionalKey(Schema.String),
  events: EventsDigest
})

type GraphAnnotation = typeof GraphAnnotation.Type

const decodeGraph = Schema.decodeUnknownOption(GraphAnnotation)
const decodeRelay = Schema.decodeUnknownOption(Relay)

const statusOf = ({ outcome }: RunRecord, graph: GraphAnnotation | undefined): RunStatus =>
  outcome.status !== "exited"
    ? outcome.status
    : (graph?.ok ?? outcome.result.exitCode === 0)
      ? "succeeded"
      : "failed"

const errorOf = ({ outcome }: RunRecord, graph: GraphAnnotation | undefined): RunView["error"] => {
  if (graph !== undefined && !graph.ok) {
    const { error, reason } = graph
    return { code: error, reason: reason ?? error ?? "Unknown" }
  }
  return outcome.status === "failed" ? { reason: outcome.reason } : undefined
}
