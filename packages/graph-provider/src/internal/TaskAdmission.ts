/** Whether a task may start, and as what. Asked before anything is made. */
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import type { LoopLimits } from "@cogni/sandbox-loop/HostLoop"
import { Effect, type Scope } from "effect"
import { GraphRefused, type GraphRunRequest, type RunContext } from "../graphs/GraphProvider.ts"
import { Repositories } from "../Repositories.ts"
import * as TaskRun from "../TaskRun.ts"
import * as Admission from "./Admission.ts"
import * as GraphRefusal from "./GraphRefusal.ts"
import * as GraphSpec from "./GraphSpec.ts"

export interface TaskAdmissionOptions extends GraphSpec.SettledOptions {
  readonly enabled: boolean
  readonly limits: Partial<LoopLimits> | undefined
  readonly patchBytesMax: number | undefined
}

/** What a request may ask of other agents, and not of this one. */
const cannot = (detail: string) =>
  new GraphRefused({
    error: "invalid_request",
    reason: "CapabilityMissing",
    detail: `${TaskRun.graphId} ${detail}`
  })

/** After the gate refuses in this order: not what a task can do, no repository, no spec. */
export const make = Effect.fnUntraced(function* (options: TaskAdmissionOptions) {
  const gate = yield* Admission.makeGate(options)
  const repositories = yield* Repositories

  return Effect.fnUntraced(function* (
    request: GraphRunRequest,
    context: RunContext
  ): Effect.fn.Return<TaskRun.TaskPlan, GraphRefused, Scope.Scope> {
    const granted = yield* gate(request, context)
    const { personality, repository, toolIds = [] } = request
    if (personality !== undefined) {
      return yield* cannot("has no personalities: leave it out, or choose an agent that has them")
    }
    if (toolIds.length > 0) {
      return yield* cannot("calls no tools of the host: leave toolIds out, or choose another agent")
    }
    if (repository !== undefined) {
      yield* Effect.mapError(repositories.check(repository), GraphRefusal.ofRepository)
    }
    const runtimeSecondsMax = Math.min(
      request.runtimeSecondsMax ?? TaskRun.defaultRuntimeSecondsMax,
      options.runtimeSecondsMax
    )
    const plan = TaskRun.plan(
      GraphSpec.termsOf(TaskRun.image, granted, request, context, options),
      { ...options.limits, runtimeSecondsMax },
      options.patchBytesMax
    )
    yield* Effect.mapError(SandboxSpec.decode({ ...plan.spec, argv: ["task"] }), GraphRefusal.ofSpec)
    return plan
  })
})
