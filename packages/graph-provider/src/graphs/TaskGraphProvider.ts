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
import { type GraphProvider, GraphRefused, type GraphRunRequest, type RunContext } from "./GraphProvider.ts"
import type { GrantStore } from "../grants/GrantStore.ts"
import * as Admission from "../internal/Admission.ts"
import * as GraphEnd from "../internal/GraphEnd.ts"
import * as GraphSpec from "../internal/GraphSpec.ts"
import * as GraphWork from "../internal/GraphWork.ts"
import * as TaskSpeech from "../internal/TaskSpeech.ts"
import { Repositories } from "../Repositories.ts"
import { type SandboxGraphOptions, settled } from "./SandboxGraphProvider.ts"
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

/** What a request may ask of other agents, and not of this one. */
const cannot = (detail: string) =>
  new GraphRefused({
    error: "invalid_request",
    reason: "CapabilityMissing",
    detail: `${TaskRun.graphId} ${detail}`
  })

export const make = Effect.fnUntraced(function* (options: TaskGraphOptions) {
  const host = settled(options)
  const runtimeSecondsMax = Math.min(host.runtimeSecondsMax, options.limits?.runtimeSecondsMax ?? Infinity)
  const admit = yield* Admission.make(host, (request, context) =>
    Effect.gen(function* () {
      if (request.personality !== undefined) {
        return yield* cannot("has no personalities: leave it out, or choose an agent that has them")
      }
      if (request.toolIds !== undefined && request.toolIds.length > 0) {
        return yield* cannot("calls no tools of the host: leave toolIds out, or choose another agent")
      }
      const asked = request.runtimeSecondsMax ?? TaskRun.defaultRuntimeSecondsMax
      return (granted) =>
        TaskRun.plan(
          GraphSpec.termsOf(TaskRun.image, granted, request, context, host),
          { ...options.limits, runtimeSecondsMax: Math.min(asked, runtimeSecondsMax) },
          options.patchBytesMax
        )
    })
  )
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
