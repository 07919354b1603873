/** How a graph's run went, as its last events and its final say it. Pure. */
import type { ChatErrorCode } from "@cogni/sandbox-loop/ChatModel"
import type { LoopEnd, LoopOutcome } from "@cogni/sandbox-loop/HostLoop"
import type { LlmTraffic } from "@cogni/sandbox-core/RunResult"
import { describeExhaustion, type Reason, type SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Result, type Schema } from "effect"
import type { AgentRunEnd } from "../AgentRun.ts"
import type { AiErrorCode, AiEvent } from "../events/AiEvent.ts"
import type { Ending } from "../events/EventGrammar.ts"
import type { GraphPatch } from "../events/GraphPatch.ts"
import type { GraphFinal, GraphRefused, GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import type { RepositoryDelivery, RepositoryUnavailable } from "../Repositories.ts"
import type { TaskRunEnd } from "../TaskRun.ts"
import { executorType, fromTraffic, ofNothing } from "../events/UsageFact.ts"
import type { LifeEnd, Stop } from "./GraphLife.ts"

type Failure = NonNullable<Ending["failure"]>

/** What became of a run. */
export interface Outcome {
  /** What it has against it, with what the proxy of the run saw. */
  readonly failureOf: (traffic: LlmTraffic | undefined) => Failure | undefined
  readonly answer?: string | undefined
  /** Of a run that has no answer. */
  readonly textSoFar?: string | undefined
  /** What became of the commits, where there is a repository. */
  readonly delivery?: RepositoryDelivery | undefined
  readonly patch?: GraphPatch | undefined
  /** What the proxy of the run saw, where its end says it. */
  readonly traffic?: LlmTraffic | undefined
  /** Whether the run is on record under its id. An id that was taken is somebody else's. */
  readonly isOnRecord: boolean
  /** Its end says that its id is its own. */
  readonly isClaimed?: boolean | undefined
}

const failing = (failure: Failure, more: Partial<Outcome> = {}): Outcome => ({
  failureOf: () => failure,
  isOnRecord: true,
  ...more
})

export const refused = ({ error, message, reason }: GraphRefused): Outcome =>
  failing({ error, reason, message }, { isOnRecord: false })

export const noRepository = ({ message, reason }: RepositoryUnavailable): Outcome =>
  failing({ error: "internal", reason, message }, { isOnRecord: false })

export const stopped = (why: Stop, textSoFar: string): Outcome =>
  failing({ error: "aborted", reason: "Aborted", message: stops[why] }, { textSoFar })

export const broken = (message: string): Outcome => failing({ error: "internal", reason: "Defect", message })

export const failed = ({ llm, message, reason }: SandboxError, textSoFar: string): Outcome => {
  const isOnRecord = !neverClaimed.has(reason._tag)
  return failing(
    { error: errorCodes[reason._tag] ?? "internal", reason: reason._tag, message },
    { textSoFar, traffic: llm, isOnRecord, isClaimed: isOnRecord }
  )
}

/** An agent that lived to its end. */
export const ended = ({ delivery, judged, result }: AgentRunEnd<RepositoryDelivery>): Outcome => ({
  ...Result.match(judged, {
    onFailure: ({ message, textSoFar }) =>
      failing({ error: "internal", reason: "AgentFailed", message }, { textSoFar }),
    onSuccess: ({ text }) => ({ answer: text, failureOf: () => undelivered(delivery), isOnRecord: true })
  }),
  delivery,
  traffic: result.llm
})

/** A loop of the host's, over a sandbox that lived to its end. Changes that were not committed were not delivered. */
export const looped = (run: TaskRunEnd<RepositoryDelivery>): Outcome => {
  const { complaint, end, patch } = run
  const problem =
    complaint === undefined
      ? undefined
      : { reason: "CommitFailed", message: `${complaint}. What changed is in the patch` }
  const delivery = run.delivery && { ...run.delivery, problem: run.delivery.problem ?? problem }
  return {
    ...(end.outcome === "finished" ? { answer: end.text } : { textSoFar: end.text }),
    failureOf: (traffic) => loopFailureOf(end, traffic) ?? undelivered(delivery),
    delivery,
    patch,
    isOnRecord: true
  }
}

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

/** Before the run had an id of its own. */
const neverClaimed: ReadonlySet<string> = new Set<Reason["_tag"]>([
  "InvalidSpec",
  "RunIdInUse",
  "StoreUnavailable"
])

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

/** What is added to an answer, so that whoever reads it knows where the commits are. */
const deliveryText = (delivery: RepositoryDelivery | undefined): string => {
  if (delivery === undefined || (delivery.status !== "pushed" && delivery.status !== "unchanged")) return ""
  const { branch, pullRequestUrl } = delivery
  return `\n\nBranch: ${branch}${pullRequestUrl === undefined ? "" : `\nPull request: ${pullRequestUrl}`}`
}

/** What of the answer its reader has not been told piece by piece. */
export const unspoken = ({ answer, delivery }: Outcome, hasSpoken: boolean): ReadonlyArray<AiEvent> => {
  const delta = answer === undefined ? "" : `${hasSpoken ? "" : answer}${deliveryText(delivery)}`
  return delta === "" ? [] : [{ type: "text_delta", delta }]
}

const contentOf = ({ answer, delivery, textSoFar }: Outcome, hasFailed: boolean): string | undefined => {
  const text = answer === undefined ? textSoFar : `${answer}${deliveryText(delivery)}`
  return text === "" && hasFailed ? undefined : text
}

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
  const { delivery, isOnRecord, patch } = outcome
  const failure = outcome.failureOf(traffic)
  const content = contentOf(outcome, failure !== undefined)
  const usage = traffic?.usage
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
    traffic === undefined && !isOnRecord ? ([ofNothing(owner)] as const) : fromTraffic(owner, traffic)
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
