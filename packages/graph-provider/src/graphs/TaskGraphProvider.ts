/**
 * The graph `sandbox:task`: the host asks the model, and the sandbox only executes.
 *
 * Admitted as every other graph of the sandbox is: off unless switched on, and nothing without a grant that opens it.
 * The model is asked through the run's own proxy, so the key, the identity, the budgets and the audit are those of a
 * run whose agent is inside; but nothing of that proxy is in the container.
 */
import type { ChatModel } from "@cogni/sandbox-loop/ChatModel"
import type { LoopLimits } from "@cogni/sandbox-loop/HostLoop"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import type { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Context, Effect, Layer } from "effect"
import type { CatalogProvider } from "./AgentCatalog.ts"
import type { GraphProvider, GraphRunRequest, RunContext } from "./GraphProvider.ts"
import type { GrantStore } from "../grants/GrantStore.ts"
import * as GraphEnd from "../internal/GraphEnd.ts"
import * as GraphWork from "../internal/GraphWork.ts"
import * as TaskAdmission from "../internal/TaskAdmission.ts"
import * as TaskSpeech from "../internal/TaskSpeech.ts"
import { Repositories } from "../Repositories.ts"
import { defaultRuntimeSecondsMax, type SandboxGraphOptions, settled } from "./SandboxGraphProvider.ts"
import * as TaskRun from "../TaskRun.ts"
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
export const catalog: CatalogProvider = Effect.succeed([
  {
    agentId: TaskRun.graphId,
    graphId: TaskRun.graphId,
    name: "Task",
    description:
      "The host asks the model; the sandbox only runs commands, reads and writes. What changed comes back as a patch.",
    modelApi: "chat-completions",
    capabilities: {
      tools: true,
      streaming: "delta",
      toolEvents: true,
      history: "messages",
      personalities: []
    }
  }
])

export const make = Effect.fnUntraced(function* (options: TaskGraphOptions) {
  const runtimeSecondsMax = options.runtimeSecondsMax ?? defaultRuntimeSecondsMax
  const admit = yield* TaskAdmission.make({
    ...settled(options),
    limits: options.limits,
    patchBytesMax: options.patchBytesMax,
    runtimeSecondsMax: Math.min(runtimeSecondsMax, options.limits?.runtimeSecondsMax ?? runtimeSecondsMax)
  })
  const repositories = yield* Repositories
  const store = yield* RunStore
  const services = yield* Effect.context<ChatModel | RunStore | SandboxRunner>()

  return TaskGraphProvider.of({
    providerId: sandboxNamespace,
    canHandle: (graphId) => graphId === TaskRun.graphId,
    check: (request: GraphRunRequest, context: RunContext) =>
      Effect.asVoid(Effect.scoped(admit(request, context))),
    run: (request, context) =>
      GraphWork.run(request, context, store, admit, (plan, { claimed, tell }) => {
        const { messages, repository } = request
        const eventsOf = TaskSpeech.make()
        return TaskRun.live({
          ...plan,
          messages,
          see: (event) => {
            if (event.type === "sandbox_opened") claimed()
            return tell(eventsOf(event))
          },
          inClone: repository && repositories.inClone({ ...repository, runId: context.runId })
        }).pipe(Effect.map(GraphEnd.looped), Effect.provideContext(services))
      })
  })
})

export const layer = (
  options: TaskGraphOptions
): Layer.Layer<TaskGraphProvider, never, ChatModel | GrantStore | Repositories | RunStore | SandboxRunner> =>
  Layer.effect(TaskGraphProvider, make(options))
