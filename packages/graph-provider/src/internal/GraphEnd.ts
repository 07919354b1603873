/** How a graph's run went, as its last events and its final say it. Pure. */
import type { ChatErrorCode } from "@cogni/sandbox-loop/ChatModel"
import type { LoopEnd, LoopOutcome } from "@cogni/sandbox-loop/HostLoop"
import type { LlmTraffic } from "@cogni/sandbox-core/RunResult"
import { describeExhaustion, type Reason, type SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { Schema } from "effect"
import type { AgentRunEnd } from "../AgentRun.ts"
import type { AiErrorCode, AiEvent } from "../events/AiEvent.ts"
import type { Ending } from "../events/EventGrammar.ts"
import type { GraphFinal, GraphRefused, GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import type { RepositoryDelivery, RepositoryUnavailable } from "../Repositories.ts"
import type { TaskRunEnd } from "../TaskRun.ts"
import { executorType, fromTraffic, ofNothing } from "../events/UsageFact.ts"
import type { LifeEnd, Stop } from "./GraphLife.ts"

/** What became of a run. */
export type Outcome =
  | { readonly _tag: "Refused"; readonly refused: GraphRefused }
  | ({ readonly _tag: "Ended" } & AgentRunEnd<RepositoryDelivery>)
  /** A loop of the host's, over a sandbox that lived to its end. */
  | ({ readonly _tag: "Looped" } & Omit<TaskRunEnd<RepositoryDelivery>, "complaint">)
  | { readonly _tag: "Failed"; readonly error: SandboxError; readonly textSoFar: string }
  | { readonly _tag: "NoRepository"; readonly error: RepositoryUnavailable }
  | { readonly _tag: "Stopped"; readonly why: Stop; readonly textSoFar: string }
  | { readonly _tag: "Broken"; readonly message: string }

export const refused = (why: GraphRefused): Outcome => ({ _tag: "Refused", refused: why })

/** Changes that were not committed in a clone were not delivered. */
export const looped = ({ complaint, delivery, ...ended }: TaskRunEnd<RepositoryDelivery>): Outcome => {
  const problem =
    complaint === undefined
      ? undefined
      : { reason: "CommitFailed", message: `${complaint}. What changed is in the patch` }
  return {
    _tag: "Looped",
    ...ended,
    delivery: delivery && { ...delivery, problem: delivery.problem ?? problem }
  }
}

export const stopped = (why: Stop, textSoFar: string): Outcome => ({ _tag: "Stopped", why, textSoFar })

/** The coarse code of what ends a run; whatever is not here is `internal`. */
const errorCodes: Partial<Record<Reason["_tag"], AiErrorCode>> = {
  TimedOut: "timeout",
  BudgetExceeded: "insufficient_credits",
  ExfiltrationSuspected: "policy_denied",
  InvalidSpec: "invalid_request",
  RunIdInUse: "invalid_request"
}

const stops: Record<Stop, string> = {
  cancelled: "the run was cancelled",
  reader_left: "nobody read its events any more, so the run was ended",
  reader_stalled: "its events were not read for too long, so the run was ended"
}

type Failure = NonNullable<Ending["failure"]>

const modelErrorCodes: Partial<Record<ChatErrorCode, AiErrorCode>> = {
  rate_limit: "rate_limit",
  insufficient_quota: "insufficient_credits",
  refused: "policy_denied",
  timeout: "timeout"
}

/** `steps_exhausted` → `StepsExhausted`. */
const reasonOf = (words: ChatErrorCode | LoopOutcome): string =>
  words.replaceAll(/(?:^|_)([a-z])/gu, (_, letter: string) => letter.toUpperCase())

/** What a loop's end has against it; what the proxy knows of a budget is more than what a model's answer said. */
const loopFailureOf = (end: LoopEnd, traffic: LlmTraffic | undefined): Failure | undefined => {
  switch (end.outcome) {
    case "finished":
      return undefined
    case "timeout":
      return { error: "timeout", reason: "TimedOut", message: end.message }
    case "model_failed": {
      const { code } = end.error
      if (code === "insufficient_quota" && traffic?.exhausted !== undefined) {
        const message = `${describeExhaustion(traffic.exhausted)}. Raise budget, or give the task less to do`
        return { error: "insufficient_credits", reason: "BudgetExceeded", message }
      }
      return {
        error: modelErrorCodes[code] ?? "internal",
        reason: `Model${reasonOf(code)}`,
        message: end.message
      }
    }
    default:
      return { error: "internal", reason: reasonOf(end.outcome), message: end.message }
  }
}

const undelivered = (delivery: RepositoryDelivery | undefined): Failure | undefined => {
  const problem = delivery?.problem
  return problem === undefined
    ? undefined
    : { ...problem, error: problem.reason === "PolicyRefused" ? "policy_denied" : "internal" }
}

const failureOf = (outcome: Outcome, traffic?: LlmTraffic): Failure | undefined => {
  switch (outcome._tag) {
    case "Refused":
      return {
        error: outcome.refused.error,
        reason: outcome.refused.reason,
        message: outcome.refused.message
      }
    case "Failed": {
      const { message, reason } = outcome.error
      return { error: errorCodes[reason._tag] ?? "internal", reason: reason._tag, message }
    }
    case "NoRepository":
      return { error: "internal", reason: outcome.error.reason, message: outcome.error.message }
    case "Stopped":
      return { error: "aborted", reason: "Aborted", message: stops[outcome.why] }
    case "Broken":
      return { error: "internal", reason: "Defect", message: outcome.message }
    case "Ended": {
      const { delivery, judged } = outcome
      return judged._tag === "Failure"
        ? { error: "internal", reason: "AgentFailed", message: judged.failure.message }
        : undelivered(delivery)
    }
    case "Looped":
      return loopFailureOf(outcome.end, traffic) ?? undelivered(outcome.delivery)
  }
}

/** What is added to an answer, so that whoever reads it knows where the commits are. */
export const deliveryText = (delivery: RepositoryDelivery | undefined): string => {
  if (delivery === undefined || (delivery.status !== "pushed" && delivery.status !== "unchanged")) return ""
  const { branch, pullRequestUrl } = delivery
  return `\n\nBranch: ${branch}${pullRequestUrl === undefined ? "" : `\nPull request: ${pullRequestUrl}`}`
}

const textOf = (outcome: Outcome): string | undefined => {
  switch (outcome._tag) {
    case "Ended":
      return outcome.judged._tag === "Success"
        ? `${outcome.judged.success.text}${deliveryText(outcome.delivery)}`
        : outcome.judged.failure.textSoFar
    case "Looped":
      return outcome.end.outcome === "finished"
        ? `${outcome.end.text}${deliveryText(outcome.delivery)}`
        : outcome.end.text
    case "Failed":
    case "Stopped":
      return outcome.textSoFar
    default:
      return undefined
  }
}

const contentOf = (outcome: Outcome): string | undefined => {
  const text = textOf(outcome)
  return text === "" && failureOf(outcome) !== undefined ? undefined : text
}

/** What of the answer its reader has not been told piece by piece. */
export const unspoken = (outcome: Outcome, hasSpoken: boolean): ReadonlyArray<AiEvent> => {
  if (outcome._tag === "Looped" && outcome.end.outcome === "finished") {
    const delta = deliveryText(outcome.delivery)
    return delta === "" ? [] : [{ type: "text_delta", delta }]
  }
  if (outcome._tag !== "Ended" || outcome.judged._tag === "Failure") return []
  const delta = `${hasSpoken ? "" : outcome.judged.success.text}${deliveryText(outcome.delivery)}`
  return delta === "" ? [] : [{ type: "text_delta", delta }]
}

/** What became of the commits, where there is a repository. */
export const deliveryOf = (outcome: Outcome): RepositoryDelivery | undefined =>
  outcome._tag === "Ended" || outcome._tag === "Looped" ? outcome.delivery : undefined

const neverClaimed: ReadonlySet<string> = new Set<Reason["_tag"]>([
  "InvalidSpec",
  "RunIdInUse",
  "StoreUnavailable"
])

/** Whether the run is on record under its id. An id that was taken is somebody else's. */
export const isOnRecord = (outcome: Outcome): boolean =>
  outcome._tag !== "Refused" &&
  outcome._tag !== "NoRepository" &&
  !(outcome._tag === "Failed" && neverClaimed.has(outcome.error.reason._tag))

/** What the proxy of the run saw, where its end says it. */
export const trafficOf = (outcome: Outcome): LlmTraffic | undefined =>
  outcome._tag === "Ended" ? outcome.result.llm : outcome._tag === "Failed" ? outcome.error.llm : undefined

/** `traffic`: what the proxy of the run saw, as far as anybody knows. */
export const make = (
  request: GraphRunRequest,
  context: RunContext,
  outcome: Outcome,
  traffic: LlmTraffic | undefined
): LifeEnd => {
  const { billingAccountId, requestId, virtualKeyId } = request.caller
  const { attempt, runId } = context
  const owner = { runId, attempt, graphId: request.graphId, billingAccountId, virtualKeyId }
  const failure = failureOf(outcome, traffic)
  const content = contentOf(outcome)
  const usage = traffic?.usage
  const delivery = deliveryOf(outcome)
  const patch = outcome._tag === "Looped" ? outcome.patch : undefined
  const final: GraphFinal = {
    ok: failure === undefined,
    runId,
    requestId,
    ...(usage === undefined
      ? {}
      : { usage: { promptTokens: usage.inputTokens, completionTokens: usage.outputTokens } }),
    ...(failure === undefined ? { finishReason: "stop" } : failure),
    ...(content === undefined ? {} : { content }),
    ...(delivery === undefined ? {} : { branch: delivery.branch }),
    ...(delivery?.pullRequestUrl === undefined ? {} : { pullRequestUrl: delivery.pullRequestUrl }),
    ...(patch === undefined ? {} : { patch })
  }
  const facts =
    traffic === undefined && !isOnRecord(outcome)
      ? ([ofNothing(owner)] as const)
      : fromTraffic(owner, traffic)
  return { ending: { content, facts, failure }, final }
}

/** What the record of the run has of it, under `graph`. */
export const annotation = (
  request: GraphRunRequest,
  context: RunContext,
  { final }: LifeEnd,
  events: { readonly count: number; readonly sha256: string }
): Schema.Json => ({
  graphId: request.graphId,
  grantId: context.grantId,
  requestId: final.requestId,
  ingressRequestId: context.ingressRequestId,
  attempt: context.attempt,
  executorType,
  ok: final.ok,
  ...(final.error === undefined ? {} : { error: final.error, reason: final.reason ?? final.error }),
  ...(final.patch === undefined ? {} : { patch: { files: final.patch.files, bytes: final.patch.bytes } }),
  events
})
