/** Builds the last events and the `final` of a durable run from its outcome and the records of its attempts. Pure. */
import { answerAnnotation } from "@cogni/sandbox-core/RunFacts"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import { AiErrorCode } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as UsageFact from "@cogni/sandbox-graph-provider/events/UsageFact"
import type { LifeEnd } from "@cogni/sandbox-graph-provider/graphs/GraphLife"
import type { GraphRunRequest, RunContext } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import type { GraphFinal, GraphRefused } from "@cogni/sandbox-graph-provider/graphs/GraphRun"
import type { SubmittedEnd } from "@cogni/sandbox-graph-provider/graphs/SubmittedRuns"
import { Option, Schema } from "effect"
import type { DurableOutcome } from "../DurableRun.ts"

/** An outcome, and the records of its attempts in the same order, as far as they can be read. */
export interface Known {
  readonly outcome: DurableOutcome
  readonly records: ReadonlyArray<RunRecord | undefined>
  /** Text of the last attempt that the reader has. */
  readonly text: string
}

type Failure = NonNullable<LifeEnd["ending"]["failure"]>

const decodeGraph = Schema.decodeUnknownOption(
  Schema.Struct({
    error: Schema.optionalKey(AiErrorCode),
    answer: Schema.optionalKey(Schema.Struct({ truncated: Schema.Boolean }))
  })
)

/** Codes of reasons for which nothing was started. Others are refusals of the grant or of the host's policy. */
const refusedCodes: Readonly<Record<string, AiErrorCode>> = {
  NoRoom: "rate_limit",
  GrantUnchecked: "internal",
  RunForgotten: "internal",
  BodyInvalid: "invalid_request",
  InvalidSpec: "invalid_request",
  InsufficientCredits: "insufficient_credits"
}

const codeOf = ({ reason = "", status }: DurableOutcome, known: AiErrorCode | undefined): AiErrorCode => {
  switch (status) {
    case "refused":
      return refusedCodes[reason] ?? "policy_denied"
    case "stopped":
      return reason === "WallClockExceeded" ? "timeout" : "aborted"
    case "failed":
      return known ?? "internal"
    default:
      return "internal"
  }
}

const messages: Partial<Record<DurableOutcome["status"], string>> = {
  failed: "the run failed. See its record",
  lost: "the host of the run was lost"
}

/** Returns the answer: that of the record, unless only its beginning is stored and the reader has more. */
const contentOf = (record: RunRecord | undefined, text: string, isTruncated: boolean): string | undefined => {
  const stored = record?.annotations?.[answerAnnotation]
  if (typeof stored !== "string") return text === "" ? undefined : text
  return isTruncated && text.startsWith(stored) ? text : stored
}

const ownerOf = (
  { caller, graphId }: GraphRunRequest,
  runId: RunId,
  attempt: number
): UsageFact.UsageOwner => ({
  runId,
  attempt,
  graphId,
  billingAccountId: caller.billingAccountId,
  virtualKeyId: caller.virtualKeyId
})

const factsOf = (request: GraphRunRequest, { runId }: RunContext, { outcome, records }: Known) => {
  const [first, ...more] = outcome.attempts.flatMap((attempt, at) =>
    UsageFact.fromTraffic(ownerOf(request, attempt.runId as RunId, attempt.attempt), records[at]?.llm)
  )
  return first === undefined
    ? ([UsageFact.ofNothing(ownerOf(request, runId, 0))] as const)
    : ([first, ...more] as const)
}

/** Returns the tokens of all attempts, if they are known. */
const usageOf = ({ records }: Known): GraphFinal["usage"] => {
  const all = records.map((record) => record?.llm?.usage)
  if (all.length === 0 || all.some((usage) => usage === undefined)) return undefined
  const sum = (name: "inputTokens" | "outputTokens") =>
    all.reduce((total, usage) => total + (usage?.[name] ?? 0), 0)
  return { promptTokens: sum("inputTokens"), completionTokens: sum("outputTokens") }
}

/** Returns the end of a run whose outcome is known. */
export const make = (request: GraphRunRequest, context: RunContext, known: Known): LifeEnd => {
  const { outcome, records, text } = known
  const record = records.at(-1)
  const graph = Option.getOrUndefined(decodeGraph(record?.annotations?.["graph"]))
  const { branch, pullRequestUrl } = outcome.attempts.at(-1) ?? {}
  const failure: Failure | undefined =
    outcome.status === "succeeded"
      ? undefined
      : {
          error: codeOf(outcome, graph?.error),
          reason: outcome.reason ?? outcome.status,
          message: outcome.message ?? messages[outcome.status] ?? outcome.status
        }
  const content = contentOf(record, text, graph?.answer?.truncated === true)
  const usage = usageOf(known)
  const final: GraphFinal = {
    ok: failure === undefined,
    runId: context.runId,
    requestId: request.caller.requestId,
    ...(usage === undefined ? {} : { usage }),
    ...(failure === undefined ? { finishReason: "stop" } : failure),
    ...(content === undefined ? {} : { content }),
    ...(branch === undefined ? {} : { branch }),
    ...(pullRequestUrl === undefined ? {} : { pullRequestUrl })
  }
  // An answer ends the events of a run that succeeded, also an empty one.
  const said = failure === undefined ? (content ?? "") : content
  return { ending: { content: said, facts: factsOf(request, context, known), failure }, final }
}

/** Returns the end of a run that was not submitted. */
export const refused = (
  request: GraphRunRequest,
  { runId }: RunContext,
  { error, message, reason }: GraphRefused
): LifeEnd => {
  const failure = { error, reason, message }
  return {
    ending: { facts: [UsageFact.ofNothing(ownerOf(request, runId, 0))], failure },
    final: { ...failure, ok: false, runId, requestId: request.caller.requestId }
  }
}

/** Returns the end of a run whose outcome is not known: it may still be under way. */
export const unknown = (
  request: GraphRunRequest,
  { runId }: RunContext,
  failure: Failure,
  content: string
): LifeEnd => ({
  ending: { facts: [UsageFact.ofUnknown(ownerOf(request, runId, 0))], failure },
  final: {
    ...failure,
    ok: false,
    runId,
    requestId: request.caller.requestId,
    ...(content === "" ? {} : { content })
  }
})

/** Returns the state that a record of the run would have. */
export const stateOf = ({ reason, status }: DurableOutcome): SubmittedEnd => {
  const states = {
    succeeded: "succeeded",
    failed: "failed",
    refused: "failed",
    lost: "abandoned",
    stopped: "interrupted"
  } as const
  return { state: states[status], ...(reason === undefined ? {} : { reason }) }
}
