/** Builds the last events and the `final` of a graph run from its outcome. Pure. */
import type { ChatErrorCode } from "@cogni/sandbox-loop/ChatError"
import type { LoopEnd, LoopOutcome } from "@cogni/sandbox-loop/LoopEvent"
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import { answerAnnotation } from "@cogni/sandbox-core/RunFacts"
import { describeExhaustion } from "@cogni/sandbox-core/BudgetWords"
import type { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Result, type Schema } from "effect"
import type { AgentRunEnd } from "../AgentRun.ts"
import type { AiErrorCode, AiEvent } from "../events/AiEvent.ts"
import type { Ending } from "../events/EventGrammar.ts"
import type { GraphPatch } from "../events/GraphPatch.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import type { GraphFinal, GraphRefused } from "../graphs/GraphRun.ts"
import type { RepositoryUnavailable } from "../RepositoryUse.ts"
import type { RepositoryDelivery } from "../RepositoryUse.ts"
import type { ThreadLost, ThreadsUnavailable } from "../threads/ThreadError.ts"
import type { TaskRunEnd } from "../TaskRun.ts"
import { executorType, fromTraffic, ofNothing } from "../events/UsageFact.ts"
import type { LifeEnd, Stop } from "../graphs/GraphLife.ts"

type ThreadGone = ThreadLost | ThreadsUnavailable

type Failure = NonNullable<Ending["failure"]>

/** The outcome of a run. */
export interface Outcome {
  /** Returns the failure of the run, if any. `traffic` is what its proxy recorded. */
  readonly failureOf: (traffic: LlmTraffic | undefined) => Failure | undefined
  readonly answer?: string | undefined
  /** Text so far of a run without an answer. */
  readonly textSoFar?: string | undefined
  /** How the commits were delivered, if there is a repository. */
  readonly delivery?: RepositoryDelivery | undefined
  readonly patch?: GraphPatch | undefined
  /** Traffic of the run, if its end reports it. */
  readonly traffic?: LlmTraffic | undefined
  /** True if the run has a record under its ID. If the ID was taken, the record belongs to another run. */
  readonly isOnRecord: boolean
  /** True if the run was refused before it could call a model, so that it has used nothing. */
  readonly isUnused?: boolean | undefined
  /** True if the end shows that the run owns its ID. */
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
  failing({ error: repositoryCodeOf(reason), reason, message }, { isOnRecord: false })

export const stopped = (why: Stop, textSoFar: string): Outcome =>
  failing({ error: "aborted", reason: "Aborted", message: stops[why] }, { textSoFar })

export const broken = (message: string): Outcome => failing({ error: "internal", reason: "Defect", message })

export const failed = ({ llm, message, reason }: SandboxError, textSoFar: string): Outcome => {
  const isOnRecord = !neverClaimed.has(reason._tag)
  return failing(
    { error: errorCodes[reason._tag] ?? "internal", reason: reason._tag, message },
    {
      textSoFar,
      traffic: llm,
      isOnRecord,
      isClaimed: isOnRecord,
      isUnused: reason._tag === "InsufficientCredits" || reason._tag === "AccountBusy"
    }
  )
}

/** Returns the outcome of an agent that ran to its end. */
export const ended = ({ delivery, judged, result }: AgentRunEnd<RepositoryDelivery>): Outcome => ({
  ...Result.match(judged, {
    onFailure: ({ message, textSoFar }) =>
      failing({ error: "internal", reason: "AgentFailed", message }, { textSoFar }),
    onSuccess: ({ text }) => ({ answer: text, failureOf: () => undelivered(delivery), isOnRecord: true })
  }),
  delivery,
  traffic: result.llm
})

/** Returns the outcome of a turn that could not begin: its thread was lost. */
export const notBegun = ({
  _tag: reason,
  message
}: {
  readonly _tag: string
  readonly message: string
}): Outcome => failing({ error: "internal", reason, message }, { isOnRecord: false })

/** Returns the outcome of a turn that its thread does not contain, although its agent may have answered. */
export const forgotten = (
  { _tag: reason, message }: ThreadGone,
  end?: AgentRunEnd<RepositoryDelivery>
): Outcome => ({
  ...(end === undefined ? {} : ended(end)),
  ...failing({ error: "internal", reason, message }),
  ...(end === undefined ? {} : { traffic: end.result.llm })
})

/** Returns the outcome of a host loop over a sandbox that ran to its end. Uncommitted changes were not delivered. */
export const looped = (run: TaskRunEnd<RepositoryDelivery>): Outcome => {
  const { complaint, end, patch } = run
  const problem =
    complaint === undefined
      ? undefined
      : { reason: "CommitFailed", message: `${complaint}. The patch contains the changes` }
  const delivery = run.delivery && { ...run.delivery, problem: run.delivery.problem ?? problem }
  return {
    ...(end.outcome === "finished" ? { answer: end.text } : { textSoFar: end.text }),
    failureOf: (traffic) => loopFailureOf(end, traffic) ?? undelivered(delivery),
    delivery,
    patch,
    isOnRecord: true
  }
}

/** Coarse codes of the reasons that end a run. All others are `internal`. */
const errorCodes: Partial<Record<Reason["_tag"], AiErrorCode>> = {
  TimedOut: "timeout",
  BudgetExceeded: "insufficient_credits",
  InsufficientCredits: "insufficient_credits",
  AccountBusy: "rate_limit",
  ExfiltrationSuspected: "policy_denied",
  InvalidSpec: "invalid_request",
  RunIdInUse: "invalid_request"
}

const stops: Record<Stop, string> = {
  cancelled: "the run was cancelled",
  reader_left: "the run was ended because its reader left",
  reader_stalled: "the run was ended because its events were not read for too long"
}

/** Reasons before the run owned its ID. */
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

/** Returns the failure of a loop, if any. On budgets, the proxy knows more than the model's error. */
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
  return problem === undefined ? undefined : { ...problem, error: repositoryCodeOf(problem.reason) }
}

/** Coarse code of a reason of the relay. */
const repositoryCodeOf = (reason: string): AiErrorCode =>
  reason === "PolicyRefused" || reason === "CredentialsDenied" ? "policy_denied" : "internal"

/** Returns the text after an answer that states where the commits are. */
const deliveryText = (delivery: RepositoryDelivery | undefined): string => {
  if (delivery === undefined || (delivery.status !== "pushed" && delivery.status !== "unchanged")) return ""
  const { branch, pullRequestUrl } = delivery
  return `\n\nBranch: ${branch}${pullRequestUrl === undefined ? "" : `\nPull request: ${pullRequestUrl}`}`
}

/** Returns the part of the answer that the reader has not received in deltas. */
export const unspoken = ({ answer, delivery }: Outcome, hasSpoken: boolean): ReadonlyArray<AiEvent> => {
  const delta = answer === undefined ? "" : `${hasSpoken ? "" : answer}${deliveryText(delivery)}`
  return delta === "" ? [] : [{ type: "text_delta", delta }]
}

const contentOf = ({ answer, delivery, textSoFar }: Outcome, hasFailed: boolean): string | undefined => {
  const text = answer === undefined ? textSoFar : `${answer}${deliveryText(delivery)}`
  return text === "" && hasFailed ? undefined : text
}

/** Builds the end of a run. `traffic` is what its proxy recorded, as far as known. */
export const make = (
  request: GraphRunRequest,
  context: RunContext,
  outcome: Outcome,
  traffic: LlmTraffic | undefined
): LifeEnd => {
  const { billingAccountId, requestId, virtualKeyId } = request.caller
  const { attempt, runId } = context
  const owner = { runId, attempt, graphId: request.graphId, billingAccountId, virtualKeyId }
  const { delivery, isOnRecord, isUnused, patch } = outcome
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
    traffic === undefined && (!isOnRecord || isUnused === true)
      ? ([ofNothing(owner)] as const)
      : fromTraffic(owner, traffic)
  return { ending: { content, facts, failure }, final }
}

/** Maximum length of the kept answer of a run, in characters. */
export const answerCharsMax = 64 * 1024

/** Returns the text of the answer for the run's record: the beginning of it, or nothing if the agent said nothing. */
export const answered = ({ final: { content = "" } }: LifeEnd): Readonly<Record<string, Schema.Json>> =>
  content === "" ? {} : { [answerAnnotation]: content.slice(0, answerCharsMax) }

/** Returns the annotation of the run's record, under the key `graph`. */
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
  ...(request.repository === undefined ? {} : { repository: request.repository.url }),
  executorType,
  ok: final.ok,
  ...(final.error === undefined ? {} : { error: final.error, reason: final.reason ?? final.error }),
  ...(final.content === undefined || final.content === ""
    ? {}
    : { answer: { chars: final.content.length, truncated: final.content.length > answerCharsMax } }),
  ...(final.patch === undefined ? {} : { patch: { files: final.patch.files, bytes: final.patch.bytes } }),
  events
})
