/** Whether a task may start, and as what. Asked before anything is made. */
import { defaultLimits } from "@cogni/sandbox-loop/HostLoop"
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Effect, type Scope } from "effect"
import { GraphRefused, type GraphRunRequest, type RunContext } from "../graphs/GraphProvider.ts"
import { Repositories } from "../Repositories.ts"
import * as Task from "../Task.ts"
import * as Admission from "./Admission.ts"
import * as GraphRefusal from "./GraphRefusal.ts"
import * as GraphSpec from "./GraphSpec.ts"

export interface TaskAdmissionOptions extends GraphSpec.SettledOptions {
  readonly enabled: boolean
  readonly patchBytesMax: number
}

/** What a sandbox is opened with, and how long its loop may take. */
export interface Admitted {
  readonly spec: Omit<SandboxSpecInput, "argv">
  readonly runtimeSecondsMax: number
}

/** What a request may ask of other agents, and not of this one. */
const cannot = (detail: string) =>
  new GraphRefused({
    error: "invalid_request",
    reason: "CapabilityMissing",
    detail: `${Task.graphId} ${detail}`
  })

/** After the gate refuses in this order: not what a task can do, no repository, no spec. */
export const make = Effect.fnUntraced(function* (options: TaskAdmissionOptions) {
  const gate = yield* Admission.makeGate(options)
  const repositories = yield* Repositories

  return Effect.fnUntraced(function* (
    request: GraphRunRequest,
    context: RunContext
  ): Effect.fn.Return<Admitted, GraphRefused, Scope.Scope> {
    const { budget, grant } = yield* gate(request, context)
    const { model, personality, repository, toolIds = [] } = request
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
      request.runtimeSecondsMax ?? defaultLimits.runtimeSecondsMax,
      options.runtimeSecondsMax
    )
    const spec: Admitted["spec"] = {
      runId: context.runId,
      image: options.imageOf(Task.image),
      workspace: options.workspaceOf(request, context),
      limits: {
        runtimeSecondsMax: Math.min(86_400, runtimeSecondsMax + Task.patchSecondsMax),
        outputRetainedBytesMax: Math.max(4 * 1024 * 1024, Task.outputRetainedBytesOf(options.patchBytesMax))
      },
      llm: {
        model,
        identity: GraphSpec.identityOf(request, context, grant),
        ...(budget === undefined ? {} : { budget }),
        caller: "host"
      },
      ...(options.canaries === "off" ? {} : { canaries: options.canaries })
    }
    yield* Effect.mapError(SandboxSpec.decode({ ...spec, argv: ["task"] }), GraphRefusal.ofSpec)
    return { spec, runtimeSecondsMax }
  })
})
