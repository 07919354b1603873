/** A request that was admitted, as the spec of its run. Pure. */
import type {
  CanaryPolicy,
  LlmBudget,
  LlmIdentity,
  SandboxSpecInput,
  WorkspaceSource
} from "@cogni/sandbox-core/SandboxSpec"
import type { Agent } from "../agents/Agent.ts"
import * as AgentSpec from "../agents/AgentSpec.ts"
import type { ExecutionGrant } from "../grants/ExecutionGrant.ts"
import type { HostOffer } from "../grants/GrantPermissions.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import { repositoryPath } from "../Repositories.ts"

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
  readonly canaries: CanaryPolicy
  readonly imageOf: (image: string) => string
  /** Models and budget that a grant cannot exceed, or has when it names none. */
  readonly offer: HostOffer
  readonly runtimeSecondsMax: number
  readonly workspaceOf: (request: GraphRunRequest, context: RunContext) => WorkspaceSource
}

export const make = (
  agent: Agent,
  { budget, grant }: Granted,
  request: GraphRunRequest,
  context: RunContext,
  options: SettledOptions
): SandboxSpecInput => {
  const runtimeSecondsMax = Math.min(
    request.runtimeSecondsMax ?? agent.limits.runtimeSecondsMax ?? defaultSeconds,
    options.runtimeSecondsMax
  )
  const { messages, model, personality, repository, toolIds } = request
  const task = {
    messages,
    model,
    runId: context.runId,
    workingDirectory: repository === undefined ? "/workspace" : repositoryPath,
    runtimeSecondsMax,
    ...(personality === undefined ? {} : { personality })
  }
  return {
    ...AgentSpec.make(agent, task, { runtimeSecondsMax }),
    runId: context.runId,
    image: options.imageOf(agent.image),
    workspace: options.workspaceOf(request, context),
    llm: {
      model,
      identity: identityOf(request, context, grant),
      ...(budget === undefined ? {} : { budget })
    },
    ...(toolIds === undefined || toolIds.length === 0 ? {} : { tools: toolIds }),
    ...(options.canaries === "off" ? {} : { canaries: options.canaries })
  }
}

const defaultSeconds = 600
