import {
  AgentRegistry,
  AggregatingGraphExecutor,
  GraphId,
  GraphObserver,
  GrantStore,
  Repositories,
  SandboxGraphProvider
} from "@cogni/sandbox-graph-provider"
import { RunId, SandboxRunner } from "@cogni/sandbox-core"
import { Effect, Layer, Stream } from "effect"

// Simulates the minimal agent in memory. The layers of @cogni/sandbox-docker and a proxy of @cogni/sandbox-proxy run
// the real one in a sealed container.
const runner = SandboxRunner.layerMemory({
  program: ({ stdout }) =>
    Effect.as(stdout(`{"payloads":[{"text":"Lima."}],"meta":{"durationMs":1,"error":null}}`), 0)
})

const program = Effect.gen(function* () {
  const executor = yield* AggregatingGraphExecutor.make([yield* SandboxGraphProvider.SandboxGraphProvider])
  const grants = yield* GrantStore.GrantStore
  const { grant } = yield* grants.issue({
    userId: "me",
    billingAccountId: "acct-1",
    scopes: ["graph:execute:sandbox:agent"],
    allowSandbox: true,
    expiresAt: null
  })
  const run = yield* executor.run(
    {
      graphId: GraphId.GraphId.make("sandbox:agent"),
      messages: [{ role: "user", content: "What is the capital of Peru?" }],
      model: "gpt-5",
      caller: { billingAccountId: "acct-1", virtualKeyId: "vk-1", requestId: "req-1", traceId: "trace-1" }
    },
    { runId: yield* RunId.generate, attempt: 0, ingressRequestId: "req-1", grantId: grant.id }
  )
  yield* Stream.runForEach(run.events, ({ type }) => Effect.sync(() => console.log(type)))
  const { content, ok } = yield* run.final
  console.log(`ok ${ok}: ${content}`)
})

// A ledger stores these facts, each under its key once.
const observer = GraphObserver.layer(({ facts }) =>
  Effect.sync(() => {
    for (const { billingAccountId, inputTokens, source } of facts)
      console.log(`${billingAccountId} used ${inputTokens ?? "unknown"} input tokens (${source})`)
  })
)

const layers = SandboxGraphProvider.layer({ enabled: true, models: ["gpt-5"] }).pipe(
  Layer.provideMerge(observer),
  Layer.provideMerge(GrantStore.layerMemory),
  Layer.provide([AgentRegistry.layer(), Repositories.layerNoop, runner])
)

await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(layers)))
