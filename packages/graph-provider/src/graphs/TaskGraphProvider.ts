/**
 * The graph `sandbox:task`: the host asks the model, and the sandbox only executes.
 *
 * Admitted as every other graph of the sandbox is: off unless switched on, and nothing without a grant that opens it.
 * The model is asked through the run's own proxy, so the key, the identity, the budgets and the audit are those of a
 * run whose agent is inside; but nothing of that proxy is in the container.
 */
import { ChatModel } from "@cogni/sandbox-loop/ChatModel"
import type { LoopLimits } from "@cogni/sandbox-loop/HostLoop"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Context, Effect, Layer } from "effect"
import { defaultImage } from "../agents/Agent.ts"
import type { CatalogProvider } from "./AgentCatalog.ts"
import type { GraphProvider, GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { GrantStore } from "../grants/GrantStore.ts"
import * as GraphWork from "../internal/GraphWork.ts"
import * as TaskAdmission from "../internal/TaskAdmission.ts"
import * as TaskTurn from "../internal/TaskTurn.ts"
import { Repositories } from "../Repositories.ts"
import { defaultRuntimeSecondsMax, type SandboxGraphOptions } from "./SandboxGraphProvider.ts"
import * as Task from "../Task.ts"
import { sandboxNamespace } from "./GraphId.ts"

export interface TaskGraphOptions extends SandboxGraphOptions {
  /** Of every loop; what a request says of time is within them. */
  readonly limits?: Partial<LoopLimits> | undefined
  /** Of the patch that comes back. Absent: 2 MiB. */
  readonly patchBytesMax?: number | undefined
}

export class TaskGraphProvider extends Context.Service<TaskGraphProvider, GraphProvider>()(
  "@cogni/sandbox-graph-provider/TaskGraphProvider"
) {}

/** The task, for a catalog: `AgentCatalog.layer([TaskGraphProvider.catalog])`. */
export const catalog: CatalogProvider = Effect.succeed([Task.descriptor])

export const make = Effect.fnUntraced(function* (options: TaskGraphOptions) {
  const patchBytesMax = options.patchBytesMax ?? Task.defaultPatchBytesMax
  const runtimeSecondsMax = options.runtimeSecondsMax ?? defaultRuntimeSecondsMax
  const admit = yield* TaskAdmission.make({
    enabled: options.enabled,
    canaries: options.canaries ?? "off",
    imageOf: options.imageOf ?? defaultImage,
    offer: { models: options.models, budget: options.budget },
    patchBytesMax,
    runtimeSecondsMax: Math.min(runtimeSecondsMax, options.limits?.runtimeSecondsMax ?? runtimeSecondsMax),
    workspaceOf: options.workspaceOf ?? (() => ({ type: "temporary" }))
  })
  const chat = yield* ChatModel
  const repositories = yield* Repositories
  const runner = yield* SandboxRunner
  const store = yield* RunStore

  return TaskGraphProvider.of({
    providerId: sandboxNamespace,
    canHandle: (graphId) => graphId === Task.graphId,
    check: (request: GraphRunRequest, context: RunContext) =>
      Effect.asVoid(Effect.scoped(admit(request, context))),
    run: (request, context) =>
      GraphWork.run(request, context, store, admit, (admitted, work) =>
        TaskTurn.live(
          { request, context, admitted, limits: options.limits, patchBytesMax, work },
          { chat, repositories, runner, store }
        )
      )
  })
})

export const layer = (
  options: TaskGraphOptions
): Layer.Layer<TaskGraphProvider, never, ChatModel | GrantStore | Repositories | RunStore | SandboxRunner> =>
  Layer.effect(TaskGraphProvider, make(options))
