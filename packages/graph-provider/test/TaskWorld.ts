/** The task provider on an in-memory runner with a scripted model, for tests. */
import * as ChatModel from "@cogni/sandbox-loop/ChatModel"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import type * as LlmObservation from "@cogni/sandbox-core/LlmObservation"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import type { LlmTraffic } from "@cogni/sandbox-core/RunFigures"
import * as RunStore from "@cogni/sandbox-core/RunStore"
import type * as RunRecord from "@cogni/sandbox-core/RunRecord"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import * as EventGrammar from "../src/events/EventGrammar.ts"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import type { GraphRunRequest, RunContext } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as TaskGraphProvider from "@cogni/sandbox-graph-provider/graphs/TaskGraphProvider"
import { assert } from "@effect/vitest"
import { type Duration, Effect, Layer, Result, Stream } from "effect"
import * as GraphWorld from "./GraphWorld.ts"

export const asked = (over: Parameters<typeof GraphWorld.request>[0] = {}) =>
  GraphWorld.request({ ...over, graphId: "sandbox:task" })

/** Answers the two scripts of a patch. Any other command goes to `command`. */
export const program =
  (
    command: (io: MemoryContainerRuntime.ProgramIo) => Effect.Effect<number>,
    patch = "1 3\nYWJj"
  ): MemoryContainerRuntime.Program =>
  (io) =>
    io.argv.length === 5
      ? Effect.as(io.stdout("0".repeat(40)), 0)
      : io.argv.length === 8
        ? Effect.as(io.stdout(patch), 0)
        : command(io)

export const callOf = (name: string, input: unknown, id: string): ChatMessage.ChatToolCall => ({
  id,
  name,
  arguments: JSON.stringify(input)
})

export interface TaskWorldOptions extends Partial<TaskGraphProvider.TaskGraphOptions> {
  readonly enabled?: boolean
  readonly program?: MemoryContainerRuntime.Program
  /** Answers of the model, in order of its requests. */
  readonly answers?: ReadonlyArray<ChatModel.ScriptedAnswer>
  /** Answers every request. */
  readonly model?: () => ChatModel.ScriptedAnswer
  readonly grants?: ReadonlyArray<ExecutionGrant>
  readonly repositories?: Layer.Layer<Repositories.Repositories>
  readonly images?: ReadonlySet<string>
  readonly proxy?: Layer.Layer<LlmProxy.LlmProxy>
}

/** A proxy with this traffic, which reports its observations after a delay. */
export const proxyOf = (
  used: LlmTraffic,
  observations: ReadonlyArray<LlmObservation.LlmObservation> = [],
  after: Duration.Input = 0
): Layer.Layer<LlmProxy.LlmProxy> =>
  Layer.effect(
    LlmProxy.LlmProxy,
    Effect.map(LlmProxy.makeMemory(), (memory) =>
      LlmProxy.LlmProxy.of({
        ...memory,
        acquire: (asked) =>
          Effect.gen(function* () {
            const endpoint = yield* memory.acquire(asked)
            yield* Effect.sleep(after).pipe(
              Effect.andThen(Effect.forEach(observations, asked.observe)),
              Effect.forkScoped
            )
            return { ...endpoint, traffic: Effect.succeed(used), finish: Effect.succeed(used) }
          })
      })
    )
  )

/** Requests to the model, and their endpoints. */
export interface Heard {
  readonly requests: Array<ChatModel.ChatRequest>
  readonly places: Array<ChatMessage.ChatEndpoint>
}

export const world = ({
  answers = [],
  grants,
  images,
  model: answer,
  program: run,
  proxy,
  repositories,
  ...options
}: TaskWorldOptions = {}) => {
  const heard: Heard = { requests: [], places: [] }
  const model = ChatModel.layerMemory((request, at) => {
    heard.requests.push(request)
    heard.places.push(at)
    if (answer !== undefined) return answer()
    return answers[heard.requests.length - 1] ?? ChatError.failed("invalid_request", "the script is over")
  })
  const layer = TaskGraphProvider.layer({ enabled: true, models: ["gpt"], ...options }).pipe(
    Layer.provide([
      model,
      Layer.mock(GrantStore, {
        find: (id) => Effect.succeed((grants ?? [GraphWorld.grantOf()]).find((grant) => grant.id === id))
      }),
      repositories ?? Repositories.layerNoop
    ]),
    Layer.provideMerge(
      SandboxRunner.layer.pipe(
        Layer.provide([proxy ?? LlmProxy.layerMemory(), Workspace.layerMemory()]),
        Layer.provideMerge(
          Layer.merge(
            MemoryContainerRuntime.layer({ images, program: run ?? program(() => Effect.succeed(0)) }),
            RunStore.layerMemory
          )
        )
      )
    ),
    Layer.provideMerge(GraphWorld.observing())
  )
  return { heard, layer }
}

export const run = (request: GraphRunRequest, as: RunContext = GraphWorld.context) =>
  TaskGraphProvider.TaskGraphProvider.use((provider) => provider.run(request, as))

/** Returns all events of a run, checked with the grammar, and its final. */
export const told = (request: GraphRunRequest = asked(), as: RunContext = GraphWorld.context) =>
  Effect.scoped(
    Effect.gen(function* () {
      const live = yield* run(request, as)
      const events: ReadonlyArray<AiEvent> = [...(yield* Stream.runCollect(live.events))]
      const judged = events.reduce<Result.Result<EventGrammar.Grammar, string>>(
        (state, event) => Result.flatMap(state, (before) => EventGrammar.next(before, event)),
        Result.succeed(EventGrammar.initial)
      )
      assert.strictEqual(Result.isSuccess(judged) ? judged.success.phase : judged.failure, "done")
      return { events, final: yield* live.final }
    })
  )

export const recordOf = (
  as: RunContext = GraphWorld.context
): Effect.Effect<RunRecord.RunRecord | undefined, unknown, RunStore.RunStore> =>
  RunStore.RunStore.use((store) => store.get(as.runId))
