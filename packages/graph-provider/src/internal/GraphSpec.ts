/** A request that was admitted, as the spec of its run. Pure. */
import type {
  CanaryPolicy,
  LlmBudget,
  LlmIdentity,
  SandboxSpecInput,
  WorkspaceSource
} from "@cogni/sandbox-core/SandboxSpec"
import type { Agent } from "../agents/Agent.ts"
import * as AgentRun from "../AgentRun.ts"
import type { ExecutionGrant } from "../grants/ExecutionGrant.ts"
import type { HostOffer } from "../grants/GrantPermissions.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"

/** Who pays and in whose name: the grant says it. A request adds what belongs to its trace. */
export const identityOf = (
  { caller, graphId }: GraphRunRequest,
  { attempt }: RunContext,
  { billingAccountId, userId }: ExecutionGrant
): LlmIdentity => ({
  billingAccountId,
  attempt,
  userId,
  graphId,
  existingTraceId: caller.traceId,
  ...(caller.sessionId === undefined ? {} : { sessionId: caller.sessionId }),
  ...(caller.userId === undefined ? {} : { traceUserId: caller.userId })
})

/** A grant that opens a request, and how much of a model the run may have. */
export interface Granted {
  readonly grant: ExecutionGrant
  readonly budget: LlmBudget | undefined
}

/** The host's options, each with a value. */
export interface SettledOptions {
  readonly enabled: boolean
  readonly canaries: CanaryPolicy
  readonly imageOf: (image: string) => string
  /** Models and budget that a grant cannot exceed, or has when it names none. */
  readonly offer: HostOffer
  readonly runtimeSecondsMax: number
  readonly workspaceOf: (request: GraphRunRequest, context: RunContext) => WorkspaceSource
}

/** What an agent is asked by a graph's caller. */
export const requestOf = ({ messages, personality, repository }: GraphRunRequest): AgentRun.AgentRequest => ({
  messages,
  personality,
  hasRepository: repository !== undefined
})

/** What the host decides of a run, whether an agent works in it or a task. */
export const termsOf = (
  image: string,
  { budget, grant }: Granted,
  request: GraphRunRequest,
  context: RunContext,
  options: SettledOptions
): AgentRun.HostTerms => ({
  runId: context.runId,
  image: options.imageOf(image),
  workspace: options.workspaceOf(request, context),
  llm: {
    model: request.model,
    identity: identityOf(request, context, grant),
    ...(budget === undefined ? {} : { budget })
  },
  ...(options.canaries === "off" ? {} : { canaries: options.canaries })
})

export const make = (
  agent: Agent,
  granted: Granted,
  request: GraphRunRequest,
  context: RunContext,
  options: SettledOptions
): SandboxSpecInput => {
  const { runtimeSecondsMax: asked, toolIds = [] } = request
  return AgentRun.specOf(agent, requestOf(request), {
    ...termsOf(agent.image, granted, request, context, options),
    limits: {
      runtimeSecondsMax: Math.min(AgentRun.runtimeSecondsOf(agent, asked), options.runtimeSecondsMax)
    },
    ...(toolIds.length === 0 ? {} : { tools: toolIds })
  })
}
