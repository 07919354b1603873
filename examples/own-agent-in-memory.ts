import {
  Agent,
  AgentRegistry,
  GrantStore,
  GraphId,
  GraphObserver,
  Repositories,
  SandboxGraphProvider
} from "@cogni/sandbox-graph-provider"
import { RunId, SandboxRunner } from "@cogni/sandbox-core"
import { Effect, Layer, Result, Stream } from "effect"

/** Reads a program whose whole standard output is its answer. `said` is the output so far. */
const plainText = (said: string): Agent.Agent["reader"] => ({
  feed: (text) => [[{ type: "text_delta", delta: text }], plainText(said + text)],
  end: () => Result.succeed({ text: said.trim() })
})

const reviewer: Agent.Agent = {
  id: Agent.AgentId.make("reviewer"),
  name: "Reviewer",
  description: "Reviews the files of its workspace and prints a report.",
  image: "reviewer",
  modelApi: "chat-completions",
  capabilities: { tools: false, streaming: "delta", toolEvents: false, history: "prompt", personalities: [] },
  argv: ({ model }) => Agent.withPrompt(["review", "--model", model]),
  env: () => ({ NO_COLOR: "1" }),
  limits: { runtimeSecondsMax: 300 },
  inputs: (task) => [Agent.promptInput(task)],
  reader: plainText("")
}

// Simulates the agent in memory. The layers of @cogni/sandbox-docker and a proxy of @cogni/sandbox-proxy run the real
// one, in the image cogni-sandbox/reviewer:latest.
const runner = SandboxRunner.layerMemory({
  program: ({ argv, stdout }) => Effect.as(stdout(`${argv.slice(2).join(" ")}: no problem found\n`), 0)
})

const program = Effect.gen(function* () {
  const provider = yield* SandboxGraphProvider.SandboxGraphProvider
  const grants = yield* GrantStore.GrantStore
  const { grant } = yield* grants.issue({
    userId: "me",
    billingAccountId: "acct-1",
    scopes: ["graph:execute:sandbox:reviewer"],
    allowSandbox: true,
    expiresAt: null
  })
  const run = yield* provider.run(
    {
      graphId: GraphId.GraphId.make("sandbox:reviewer"),
      messages: [{ role: "user", content: "Review the change to main.ts" }],
      model: "gpt-5",
      caller: { billingAccountId: "acct-1", virtualKeyId: "vk-1", requestId: "req-1", traceId: "trace-1" }
    },
    { runId: yield* RunId.generate, attempt: 0, ingressRequestId: "req-1", grantId: grant.id }
  )
  yield* Stream.runForEach(run.events, (event) => Effect.sync(() => console.log(JSON.stringify(event))))
  const { content, ok } = yield* run.final
  console.log(`ok ${ok}: ${content}`)
})

const layers = SandboxGraphProvider.layer({ enabled: true, models: ["gpt-5"] }).pipe(
  Layer.provideMerge(GrantStore.layerMemory),
  Layer.provide([
    AgentRegistry.layer([...AgentRegistry.builtIn, reviewer]),
    GraphObserver.layerNone,
    Repositories.layerNoop,
    runner
  ])
)

await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(layers)))
