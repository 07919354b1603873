/** Sandbox graphs over real Docker: the provider, a grant that allows everything, and a proxy. */
import type { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import * as EventGrammar from "../../packages/graph-provider/src/events/EventGrammar.ts"
import type { AiEvent } from "@cogni/sandbox-graph-provider/events/AiEvent"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as GrantStore from "@cogni/sandbox-graph-provider/grants/GrantStore"
import type { GraphRunRequest } from "@cogni/sandbox-graph-provider/graphs/GraphProvider"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import { assert } from "@effect/vitest"
import { Effect, Layer, Result, Stream } from "effect"
import * as Images from "./Images.ts"
import * as RunHarness from "./RunHarness.ts"

export const account = "acct-graphs"

export interface GraphHarnessOptions extends Omit<
  SandboxGraphProvider.SandboxGraphOptions,
  "enabled" | "imageOf" | "models"
> {
  /** Agents in addition to the built-in ones. */
  readonly agents?: ReadonlyArray<Agent> | undefined
  /** Sandboxes that wait for runs. Default: none. */
  readonly pool?: SandboxPool.PoolOptions | undefined
  /** Default: none. */
  readonly observe?: Parameters<typeof GraphObserver.layer>[0] | undefined
}

/** The provider, the services of {@link RunHarness}, and those of the repositories. */
export const layer = <E, R, A = never, E2 = never, R2 = never>(
  proxy: Layer.Layer<LlmProxy, E, R>,
  options: GraphHarnessOptions = {},
  repositories: Layer.Layer<Repositories.Repositories | A, E2, R2> = Repositories.layerNoop as Layer.Layer<
    Repositories.Repositories | A,
    E2,
    R2
  >
) =>
  SandboxGraphProvider.layer({ ...options, models: ["**"], enabled: true, imageOf: Images.ofAgent }).pipe(
    Layer.provide(
      options.observe === undefined ? GraphObserver.layerNone : GraphObserver.layer(options.observe)
    ),
    Layer.provideMerge(Layer.merge(GrantStore.layerMemory, repositories)),
    Layer.provide(AgentRegistry.layer([...AgentRegistry.builtIn, ...(options.agents ?? [])])),
    Layer.provideMerge(RunHarness.layer(proxy, options.pool))
  )

/** Issues a grant for every sandbox graph. */
export const grant = GrantStore.GrantStore.use((store) =>
  store.issue({
    userId: "user-graphs",
    billingAccountId: account,
    scopes: ["graph:execute:*"],
    allowSandbox: true,
    permissions: { tools: ["**"], repositories: ["**"] },
    expiresAt: null
  })
)

export const request = (
  over: Partial<Omit<GraphRunRequest, "graphId">> & { readonly graphId: string }
): GraphRunRequest => ({
  messages: [{ role: "user", content: "hello" }],
  model: "scripted",
  caller: {
    billingAccountId: account,
    virtualKeyId: "vk-graphs",
    requestId: "req-graphs",
    traceId: "trace-graphs"
  },
  ...over,
  graphId: GraphId.make(over.graphId)
})

/** Executes one run, and returns its events and its final result. */
export const told = Effect.fnUntraced(function* (asked: GraphRunRequest, runId: RunId) {
  const { grant: granted } = yield* grant
  const provider = yield* SandboxGraphProvider.SandboxGraphProvider
  return yield* Effect.scoped(
    Effect.gen(function* () {
      const run = yield* provider.run(asked, {
        runId,
        attempt: 0,
        ingressRequestId: "in-graphs",
        grantId: granted.id
      })
      const events = [...(yield* Stream.runCollect(run.events))]
      return { events, final: yield* run.final }
    })
  )
})

/** Asserts that the events of a graph follow the grammar, from the first to the last. */
export const isWhole = (events: ReadonlyArray<AiEvent>): void => {
  const state = events.reduce<Result.Result<EventGrammar.Grammar, string>>(
    (before, event) => Result.flatMap(before, (now) => EventGrammar.next(now, event)),
    Result.succeed(EventGrammar.initial)
  )
  assert.isTrue(Result.isSuccess(state) && state.success.phase === "done", JSON.stringify(state))
}
