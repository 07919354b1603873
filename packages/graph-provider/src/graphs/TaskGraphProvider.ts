/**
 * Provider of the graph `sandbox:task`: the host calls the model, and the sandbox only executes.
 *
 * Admission is that of the other graphs of the sandbox: off by default, and only with a grant that allows the graph.
 * Model calls go through the run's own proxy, so the key, identity, budgets and audit are those of a run whose agent is
 * inside. But no part of that proxy is in the container.
 */
import type { ChatModel } from "@cogni/sandbox-loop/ChatModel"
import type { LoopLimits } from "@cogni/sandbox-loop/LoopLimits"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import { RunJournal } from "@cogni/sandbox-core/RunJournal"
import type { RunStore } from "@cogni/sandbox-core/RunStore"
import type { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Context, Effect, Layer, Result } from "effect"
import * as AgentRun from "../AgentRun.ts"
import type { Capabilities } from "../agents/AgentFields.ts"
import type { CatalogProvider } from "./AgentCatalog.ts"
import type { GraphObserver } from "./GraphObserver.ts"
import type { GraphProvider, GraphRunRequest } from "./GraphProvider.ts"
import type { GrantStore } from "../grants/GrantStore.ts"
import * as Admission from "../internal/Admission.ts"
import * as AgentJournal from "../internal/AgentJournal.ts"
import * as GraphEnd from "../internal/GraphEnd.ts"
import * as GraphRefusal from "../internal/GraphRefusal.ts"
import * as GraphSpec from "../internal/GraphSpec.ts"
import * as GraphWork from "../internal/GraphWork.ts"
import * as RememberedTurn from "../internal/RememberedTurn.ts"
import * as TaskSpeech from "../internal/TaskSpeech.ts"
import type { Repositories } from "../Repositories.ts"
import { type SandboxGraphOptions, settled } from "./SandboxGraphProvider.ts"
import * as TaskRun from "../TaskRun.ts"

export interface TaskGraphOptions extends SandboxGraphOptions {
  /** Limits of every loop. They also apply to a request's time limit. */
  readonly limits?: Partial<LoopLimits> | undefined
  /** Maximum size of the returned patch. Default: 2 MiB. */
  readonly patchBytesMax?: number | undefined
  /** Host tools that a request can name in `toolIds`: those of the proxy. Default: none. */
  readonly tools?: ReadonlyArray<Tool> | undefined
}

export class TaskGraphProvider extends Context.Service<TaskGraphProvider, GraphProvider>()(
  "@cogni/sandbox-graph-provider/TaskGraphProvider"
) {}

const capabilities: Capabilities = {
  tools: true,
  streaming: "delta",
  toolEvents: true,
  history: "messages",
  personalities: []
}

/** Catalog entry of the task: `AgentCatalog.layer([TaskGraphProvider.catalog])`. */
export const catalog: CatalogProvider = Effect.succeed([
  {
    agentId: TaskRun.graphId,
    graphId: TaskRun.graphId,
    name: "Task",
    description:
      "The host calls the model; the sandbox only runs commands, reads and writes. Returns the changes as a patch.",
    modelApi: "chat-completions",
    capabilities
  }
])

/** Rejects a request for capabilities that other agents have, and a task does not. */
const check = (
  request: GraphRunRequest,
  tools: ReadonlyArray<Tool>
): Result.Result<void, AgentRun.CapabilityMissing> =>
  Result.flatMap(AgentRun.check({ id: TaskRun.graphId, capabilities }, GraphSpec.requestOf(request)), () =>
    tools.length > 0 || request.toolIds === undefined || request.toolIds.length === 0
      ? Result.succeed(undefined)
      : Result.fail(
          new AgentRun.CapabilityMissing({
            agentId: TaskRun.graphId,
            capability: "tools",
            detail: "calls no host tools on this host: omit toolIds, or choose another agent"
          })
        )
  )

const make = Effect.fnUntraced(function* (options: TaskGraphOptions) {
  const host = settled(options)
  const runtimeSecondsMax = Math.min(host.runtimeSecondsMax, options.limits?.runtimeSecondsMax ?? Infinity)
  const journal = yield* RunJournal
  const { tools = [] } = options
  const services = yield* Effect.context<ChatModel | RunStore | SandboxRunner>()
  const admit = yield* Admission.make(host, (request, context) =>
    Effect.gen(function* () {
      if (request.remember === true) return yield* RememberedTurn.refusedHere
      yield* Effect.mapError(Effect.fromResult(check(request, tools)), GraphRefusal.as("invalid_request"))
      const { messages, runtimeSecondsMax: asked = TaskRun.defaultRuntimeSecondsMax } = request
      return (granted) =>
        Result.succeed({
          ...TaskRun.plan(
            {
              ...GraphSpec.termsOf(TaskRun.image, granted, request, context, host),
              ...GraphSpec.toolsOf(granted, request)
            },
            { ...options.limits, runtimeSecondsMax: Math.min(asked, runtimeSecondsMax) },
            options.patchBytesMax
          ),
          tools: tools.filter(({ name }) => request.toolIds?.includes(name) === true),
          messages
        })
    })
  )
  const provider = yield* GraphWork.provider(
    (graphId) => graphId === TaskRun.graphId,
    admit,
    (plan, { claimed, inClone, tell }) => {
      const eventsOf = TaskSpeech.make()
      const own = AgentJournal.make(journal, plan.spec.runId)
      return TaskRun.live({
        ...plan,
        see: (event) => {
          if (event.type === "sandbox_opened") claimed()
          const events = eventsOf(event)
          return Effect.andThen(own.write(events), tell(events))
        },
        inClone
      }).pipe(Effect.map(GraphEnd.looped), Effect.provideContext(services))
    }
  )
  return TaskGraphProvider.of(provider)
})

export const layer = (
  options: TaskGraphOptions
): Layer.Layer<
  TaskGraphProvider,
  never,
  ChatModel | GrantStore | GraphObserver | Repositories | RunStore | SandboxRunner
> => Layer.effect(TaskGraphProvider, make(options))
