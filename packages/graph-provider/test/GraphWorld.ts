/** A graph provider on an in-memory runner, for tests. */
import { AgentId, type Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { openClaw } from "@cogni/sandbox-graph-provider/agents/OpenClaw"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import type { ExecutionGrant } from "@cogni/sandbox-graph-provider/grants/ExecutionGrant"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import type { GraphRunRequest, RunContext } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import type { MemoryProxyOptions } from "@cogni/sandbox-core/LlmProxy"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { Context, Effect, Layer, Stream } from "effect"

export const envelope = (text: string) =>
  JSON.stringify({ payloads: [{ text }], meta: { durationMs: 1, error: null } })

/** The minimal agent, declared as one that calls tools. */
export const worker: Agent = {
  ...minimal,
  id: AgentId.make("worker"),
  name: "Worker",
  capabilities: { ...minimal.capabilities, tools: true }
}

export const grantOf = (over: Partial<ExecutionGrant> = {}): ExecutionGrant => ({
  id: "grant-1",
  userId: "user",
  billingAccountId: "acct",
  scopes: ["graph:execute:*"],
  allowSandbox: true,
  expiresAt: null,
  revokedAt: null,
  createdAt: new Date(0),
  permissions: { tools: ["**"], repositories: ["**"] },
  ...over
})

export const context: RunContext = {
  runId: RunId.make("run-000000000001"),
  attempt: 2,
  ingressRequestId: "in-1",
  grantId: "grant-1"
}

export const request = (over: Partial<Omit<GraphRunRequest, "graphId">> & { graphId?: string } = {}) =>
  ({
    messages: [{ role: "user", content: "Where?" }],
    model: "gpt",
    caller: { billingAccountId: "acct", virtualKeyId: "vk", requestId: "req-1", traceId: "trace-1" },
    ...over,
    graphId: GraphId.make(over.graphId ?? "sandbox:agent")
  }) satisfies GraphRunRequest

const grantsOf = (grants: ReadonlyArray<ExecutionGrant>) =>
  Layer.mock(GrantStore, { find: (id) => Effect.succeed(grants.find((grant) => grant.id === id)) })

/** Calls of the observer of a test. */
export class Heard extends Context.Service<
  Heard,
  {
    readonly ends: Array<GraphObserver.ObservedEnd>
    /** Answer of the observer to each end. */
    answer: Effect.Effect<void, unknown>
  }
>()("test/Heard") {}

/** An observer whose calls a test can read. */
export const observing = (): Layer.Layer<GraphObserver.GraphObserver | Heard> =>
  Layer.effect(
    GraphObserver.GraphObserver,
    Effect.map(Heard, (heard) =>
      GraphObserver.GraphObserver.of({
        observe: (end) =>
          Effect.suspend(() => {
            heard.ends.push(end)
            return heard.answer
          })
      })
    )
  ).pipe(Layer.provideMerge(Layer.sync(Heard, () => ({ ends: [], answer: Effect.void }))))

export const world = (
  options: {
    readonly program?: Program
    readonly enabled?: boolean
    readonly grants?: ReadonlyArray<ExecutionGrant>
    readonly agents?: ReadonlyArray<Agent>
    readonly repositories?: Layer.Layer<Repositories.Repositories>
    readonly calls?: MemoryProxyOptions["calls"]
    readonly admissions?: MemoryProxyOptions["admissions"]
  } = {}
) =>
  SandboxGraphProvider.layer({ enabled: options.enabled ?? true, models: ["gpt"] }).pipe(
    Layer.provide([
      AgentRegistry.layer([minimal, openClaw, worker, ...(options.agents ?? [])]),
      grantsOf(options.grants ?? [grantOf()]),
      options.repositories ?? Repositories.layerNoop
    ]),
    Layer.provideMerge(
      Layer.merge(
        SandboxRunner.layerMemory({
          program: options.program,
          llm: { calls: options.calls, admissions: options.admissions }
        }),
        observing()
      )
    )
  )

export const run = (asked: GraphRunRequest, as: RunContext = context) =>
  SandboxGraphProvider.SandboxGraphProvider.use((provider) => provider.run(asked, as))

export const refusal = (asked: GraphRunRequest) =>
  SandboxGraphProvider.SandboxGraphProvider.use((provider) => Effect.flip(provider.check(asked, context)))

/** Returns all events of a run, and its final. */
export const told = (asked: GraphRunRequest, as: RunContext = context) =>
  Effect.scoped(
    Effect.gen(function* () {
      const live = yield* run(asked, as)
      const events: ReadonlyArray<AiEvent> = [...(yield* Stream.runCollect(live.events))]
      return { events, final: yield* live.final }
    })
  )
