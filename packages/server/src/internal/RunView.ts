/**
 * The view of a recorded run for callers: its outcome, posture and usage.
 *
 * A record also contains the prompt, the output and paths of the host. The view contains none of them. Pure.
 */
import { Posture } from "@cogni/sandbox-core/Posture"
import { RunId } from "@cogni/sandbox-core/RunId"
import { LlmUsageTotal, Timing } from "@cogni/sandbox-core/RunResult"
import { outputOf, type RunRecord } from "@cogni/sandbox-core/RunStore"
import { DeliveryRecord } from "@cogni/sandbox-git-relay/RelayRun"
import { AiErrorCode } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { RunCost } from "@cogni/sandbox-ledger/RunCost"
import { Option, Schema, Struct } from "effect"

/** Status of a run. `starting`: it has no record yet. */
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
  /** Why the run did not succeed. */
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
  /** Cost by the server's ledger, with its certainty. Absent in a list, and without a ledger. */
  cost: Schema.optional(RunCost),
  posture: Schema.optional(Posture),
  /** Delivery of the run's commits. */
  relay: Schema.optional(Relay),
  /** Number of all events that the caller got, and their SHA-256. */
  events: Schema.optional(EventsDigest)
}).annotate({ identifier: "Run" })

export type RunView = typeof RunView.Type

/** Returns the account of a run, or `undefined` for a run without a model. */
export const accountOf = ({ spec }: RunRecord): string | undefined => spec.llm?.identity.billingAccountId

/** Returns whether a run has ended. */
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

/** The annotation `graph`, which the provider of `sandbox:*` writes. */
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
