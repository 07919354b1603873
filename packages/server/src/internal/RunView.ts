/**
 * The view of a recorded run for callers: its outcome, limits, posture and usage.
 *
 * A record also contains the prompt, the output and paths of the host. The view contains none of them. Pure.
 */
import { Posture } from "@cogni/sandbox-core/Posture"
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Evidence, Exhaustion, LlmUsageTotal, Peak, Timing } from "@cogni/sandbox-core/RunFigures"
import { outputOf } from "@cogni/sandbox-core/RecordForms"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import { Limits, LlmBudget } from "@cogni/sandbox-core/SpecFields"
import { DeliveryRecord } from "@cogni/sandbox-git-relay/DeliveryRecord"
import { AiErrorCode } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { RunCost } from "@cogni/sandbox-ledger/RunCost"
import { Option, Schema, Struct } from "effect"

/** Status of a run. `starting`: it has no record yet. */
export const RunStatus = Schema.Literals(["starting", ...RunFacts.RunState.literals])

export type RunStatus = typeof RunStatus.Type

const EventsDigest = Schema.Struct({ count: Schema.Int, sha256: Schema.String })

/** The text that the agent answered. A run that failed has the text until then. */
const Answer = Schema.Struct({
  /** Length of the whole answer. */
  chars: Schema.Int,
  /** Only the beginning is stored: 65,536 characters. */
  truncated: Schema.Boolean
})

const Relay = DeliveryRecord.mapFields(Struct.omit(["keptAt", "message"]))

/** Maximum number of listed files. */
export const changedFilesMax = 500

export const Changes = Schema.Struct({
  commits: Schema.Int,
  /** The first 500. Their names are the agent's. */
  files: Schema.Array(
    Schema.Struct({
      path: Schema.String,
      /** Lines. Absent for a binary file. */
      added: Schema.optional(Schema.Int),
      removed: Schema.optional(Schema.Int)
    })
  ),
  filesTotal: Schema.Int,
  patchBytes: Schema.Int,
  /** The stored patch is only the beginning. */
  patchTruncated: Schema.Boolean
})

/** Bytes that the agent wrote. `truncated`: only the beginning is stored. */
const OutputCounts = Schema.Struct({
  stdoutBytes: Schema.Int,
  stderrBytes: Schema.Int,
  stdoutTruncated: Schema.Boolean,
  stderrTruncated: Schema.Boolean
})

export const RunView = Schema.Struct({
  runId: RunId,
  status: RunStatus,
  /**
   * True while the server still works on the run, such as on the delivery of its commits: the record may not tell yet
   * how its graph ended. Absent in a list, and otherwise.
   */
  isUnderWay: Schema.optional(Schema.Boolean),
  graphId: Schema.optional(Schema.String),
  /** ID of the agent in the catalog. Absent for a run without an agent, such as one of a loop on the host. */
  agentId: Schema.optional(Schema.String),
  model: Schema.optional(Schema.String),
  /** URL of the repository that the run works in. */
  repository: Schema.optional(Schema.String),
  startedAt: Schema.optional(Schema.String),
  endedAt: Schema.optional(Schema.String),
  attempt: Schema.optional(Schema.Int),
  grantId: Schema.optional(Schema.String),
  requestId: Schema.optional(Schema.String),
  /** The conversation to which the run belongs: `threadId` of its request. */
  sessionId: Schema.optional(Schema.String),
  userId: Schema.optional(Schema.String),
  traceId: Schema.optional(Schema.String),
  /** Address of the trace in the viewer that the operator uses. Absent: none is configured. */
  traceUrl: Schema.optional(Schema.String),
  exitCode: Schema.optional(Schema.Int),
  /** Why the run did not succeed. */
  error: Schema.optional(Schema.Struct({ code: Schema.optional(AiErrorCode), reason: Schema.String })),
  timings: Schema.Array(Timing),
  /** Absent in a list, like the peaks, the budget and the suspicions. */
  limits: Schema.optional(Limits),
  /** Peak use of what `limits` bounds. Absent while the run is under way. */
  peak: Schema.optional(Peak),
  output: Schema.optional(OutputCounts),
  llm: Schema.optional(
    Schema.Struct({
      proxy: Schema.String,
      callsTotal: Schema.Int,
      toolCallsTotal: Schema.optional(Schema.Int),
      usage: Schema.optional(LlmUsageTotal),
      /** The budget that was spent, if one was. */
      exhausted: Schema.optional(Exhaustion),
      /** The spent part of the share of the subagents, whose later calls were refused. */
      subagentsExhausted: Schema.optional(Exhaustion)
    })
  ),
  budget: Schema.optional(LlmBudget),
  /** Canaries that were seen leaving the sandbox. */
  suspicions: Schema.optional(Schema.Array(Evidence)),
  /** Cost by the server's ledger, with its certainty. Absent in a list, and without a ledger. */
  cost: Schema.optional(RunCost),
  posture: Schema.optional(Posture),
  /** Delivery of the run's commits. */
  relay: Schema.optional(Relay),
  /** Changes of the pushed commits. Absent in a list, and until they are pushed. */
  changes: Schema.optional(Changes),
  /** Absent in a list, and for a run that answered nothing. Its text is at `/runs/:id/answer`. */
  answer: Schema.optional(Answer),
  /** Number of all events that the caller got, and their SHA-256. */
  events: Schema.optional(EventsDigest)
}).annotate({ identifier: "Run" })

export type RunView = typeof RunView.Type

/** Returns the account of a run, or `undefined` for a run without a model. */
export const accountOf = ({ spec }: RunRecord): string | undefined => spec.llm?.identity.billingAccountId

/** Returns whether a run has ended. */
export const isOver = ({ outcome }: RunRecord): boolean => outcome.status !== "running"

/** Returns the whole view of a run. */
export const fromRecord = (record: RunRecord): RunView => {
  const { annotations, llm, posture, spec, suspicions } = record
  return {
    ...listed(record),
    answer: Option.getOrUndefined(decodeGraph(annotations?.["graph"]))?.answer,
    limits: spec.limits,
    peak: peakOf(record),
    llm: llm && {
      proxy: llm.proxy,
      callsTotal: llm.callsTotal,
      toolCallsTotal: llm.toolCallsTotal,
      usage: llm.usage,
      exhausted: llm.exhausted,
      subagentsExhausted: llm.subagentsExhausted
    },
    budget: spec.llm?.budget,
    suspicions,
    posture,
    changes: Option.getOrUndefined(decodeChanges(annotations?.["changes"]))
  }
}

/** Returns the view of a run for a list, without its long parts. */
export const listed = (record: RunRecord): RunView => {
  const { annotations, endedAt, llm, outcome, runId, spec, startedAt, timings } = record
  const facts = RunFacts.of(record)
  const graph = Option.getOrUndefined(decodeGraph(annotations?.["graph"]))
  const output = outputOf(record)
  const identity = spec.llm?.identity
  return {
    runId,
    status: facts.state,
    graphId: facts.graphId,
    agentId: facts.agentId,
    model: facts.model,
    repository: facts.repository,
    startedAt,
    endedAt,
    attempt: graph?.attempt,
    grantId: facts.grantId,
    requestId: graph?.requestId,
    sessionId: facts.sessionId,
    userId: identity?.userId,
    traceId: identity?.existingTraceId,
    events: graph?.events,
    exitCode: outcome.status === "exited" ? outcome.result.exitCode : undefined,
    error: facts.reason === undefined ? undefined : { code: graph?.error, reason: facts.reason },
    timings,
    output: output && {
      stdoutBytes: output.stdout.bytes,
      stderrBytes: output.stderr.bytes,
      stdoutTruncated: output.stdout.truncated,
      stderrTruncated: output.stderr.truncated
    },
    llm: llm && { proxy: llm.proxy, callsTotal: llm.callsTotal, usage: llm.usage },
    relay: Option.getOrUndefined(decodeRelay(annotations?.["relay"]))
  }
}

const peakOf = ({ outcome }: RunRecord) =>
  outcome.status === "exited" ? outcome.result.peak : outcome.status === "failed" ? outcome.peak : undefined

/** The annotation `graph`, which the provider of `sandbox:*` writes. */
const GraphAnnotation = Schema.Struct({
  graphId: Schema.String,
  grantId: Schema.String,
  requestId: Schema.String,
  attempt: Schema.Int,
  ok: Schema.Boolean,
  error: Schema.optionalKey(AiErrorCode),
  reason: Schema.optionalKey(Schema.String),
  answer: Schema.optionalKey(Answer),
  events: EventsDigest
})

const decodeGraph = Schema.decodeUnknownOption(GraphAnnotation)
const decodeChanges = Schema.decodeUnknownOption(Changes)
const decodeRelay = Schema.decodeUnknownOption(Relay)
