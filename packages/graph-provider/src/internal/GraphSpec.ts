/** Builds the spec of an admitted request. Pure. */
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import type { CanaryPolicy, LlmBudget, LlmIdentity, WorkspaceSource } from "@cogni/sandbox-core/SpecFields"
import type { Agent } from "../agents/Agent.ts"
import * as AgentRun from "../AgentRun.ts"
import * as AgentLimits from "./AgentLimits.ts"
import type { ExecutionGrant } from "../grants/ExecutionGrant.ts"
import * as GrantPermissions from "../grants/GrantPermissions.ts"
import type { OpenTurn } from "../threads/OpenTurn.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"

/**
 * Returns the paying account and the user, both from the grant. The request adds the key of its caller, which a proxy
 * can choose an upstream key by, and tracing data.
 */
export const identityOf = (
  { caller, graphId }: GraphRunRequest,
  { attempt }: RunContext,
  { billingAccountId, userId }: ExecutionGrant
): LlmIdentity => ({
  billingAccountId,
  virtualKeyId: caller.virtualKeyId,
  attempt,
  userId,
  graphId,
  existingTraceId: caller.traceId,
  ...(caller.sessionId === undefined ? {} : { sessionId: caller.sessionId }),
  ...(caller.userId === undefined ? {} : { traceUserId: caller.userId })
})

/** A grant that allows a request, and the model budget of the run. */
export interface Granted {
  readonly grant: ExecutionGrant
  readonly budget: LlmBudget | undefined
}

/** The host's options with their defaults. */
export interface SettledOptions {
  readonly enabled: boolean
  readonly canaries: CanaryPolicy
  readonly imageOf: (image: string) => string
  /** Maximum budget, and the models of a grant that names none. */
  readonly offer: GrantPermissions.HostOffer
  readonly runtimeSecondsMax: number
  readonly workspaceOf: (request: GraphRunRequest, context: RunContext) => WorkspaceSource
}

/** Returns the caller's part of an agent's task. */
export const requestOf = ({ messages, personality, repository }: GraphRunRequest): AgentRun.AgentRequest => ({
  messages,
  personality,
  hasRepository: repository !== undefined
})

/** Returns the host's part of a spec, for an agent or a task. */
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
  ...(request.packages === undefined || request.packages.length === 0 ? {} : { packages: request.packages }),
  ...(options.canaries === "off" ? {} : { canaries: options.canaries })
})

export const make = (
  agent: Agent,
  granted: Granted,
  request: GraphRunRequest,
  context: RunContext,
  options: SettledOptions,
  turn?: Pick<OpenTurn, "messages" | "session" | "workspace">
): SandboxSpecInput => {
  const { runtimeSecondsMax: asked } = request
  const plain = requestOf(request)
  const remembered = turn && { ...plain, messages: turn.messages, session: turn.session }
  return AgentRun.specOf(agent, remembered ?? plain, {
    ...termsOf(agent.image, granted, request, context, options),
    // Its sessions are in the directory of its memory, and not among the files that it works on.
    ...(turn === undefined ? {} : { workspace: turn.workspace, memory: true }),
    limits: {
      runtimeSecondsMax: Math.min(AgentLimits.runtimeSecondsOf(agent, asked), options.runtimeSecondsMax)
    },
    ...toolsOf(granted, request)
  })
}

/** Returns the host tools of a run, and the rules of its grant for them. */
export const toolsOf = (
  { grant }: Granted,
  { toolIds = [] }: Pick<GraphRunRequest, "toolIds">
): Pick<SandboxSpecInput, "toolRules" | "tools"> => {
  const toolRules = GrantPermissions.toolRulesOf(grant.permissions)
  return toolIds.length === 0 ? {} : { tools: toolIds, ...(toolRules === undefined ? {} : { toolRules }) }
}
