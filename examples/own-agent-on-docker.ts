/**
 * An agent of your own over a real Docker Engine: an image with one program, and a graph that runs it.
 *
 * Needs Docker, the runtime image and a model. Run `./dev setup`, then build the image of the agent:
 *
 *     docker build --build-arg RUNTIME=$(images/build --print runtime) --tag reviewer:1 examples/reviewer
 *
 * Set `COGNI_LLM_URL`, `COGNI_LLM_KEY` and `COGNI_LLM_MODEL` in the environment, then run
 * `pnpm example own-agent-on-docker`.
 */
import { RunId, SandboxRunner, UsageObserver } from "@cogni/sandbox-core"
import { DockerContainerRuntime, FileRunStore, HostWorkspace } from "@cogni/sandbox-docker"
import {
  Agent,
  AgentRegistry,
  GrantStore,
  GraphId,
  GraphObserver,
  Repositories,
  SandboxGraphProvider
} from "@cogni/sandbox-graph-provider"
import { AuditTraffic, GatewayLlmProxy } from "@cogni/sandbox-proxy"
import { Config, Effect, Layer, Result } from "effect"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** Reads a program whose whole standard output is its answer. `said` is the output so far. */
const plainText = (said: string): Agent.Agent["reader"] => ({
  feed: (text) => [[{ type: "text_delta", delta: text }], plainText(said + text)],
  end: () => Result.succeed({ text: said.trim() })
})

const reviewer: Agent.Agent = {
  id: Agent.AgentId.make("reviewer"),
  name: "Reviewer",
  description: "Reviews a change that its prompt describes.",
  image: "reviewer:1",
  modelApi: "chat-completions",
  capabilities: { tools: false, streaming: "final", toolEvents: false, history: "prompt", personalities: [] },
  argv: () => Agent.withPrompt(["node", "/usr/local/lib/review.mjs"]),
  env: () => ({}),
  limits: { runtimeSecondsMax: 120 },
  inputs: (task) => [Agent.promptInput(task)],
  reader: plainText("")
}

const model = Config.String("COGNI_LLM_MODEL")

const layers = Layer.unwrap(
  Effect.gen(function* () {
    const url = yield* Config.String("COGNI_LLM_URL")
    const key = yield* Config.Redacted("COGNI_LLM_KEY")
    const image = yield* Config.String("REVIEWER_IMAGE").pipe(Config.withDefault(reviewer.image))
    const runner = SandboxRunner.layer.pipe(
      Layer.provide(GatewayLlmProxy.layer({ url, key })),
      // An example bills no account.
      Layer.provide(UsageObserver.layerNone),
      Layer.provide([DockerContainerRuntime.layer(), HostWorkspace.layer()]),
      // Merged, not only provided: the graph provider below completes the records of the same store.
      Layer.provideMerge(
        FileRunStore.layer({
          directory: join(tmpdir(), "cogni-sandbox-example"),
          trafficOf: AuditTraffic.reader()
        })
      )
    )
    return SandboxGraphProvider.layer({ enabled: true, models: ["**"], imageOf: () => image }).pipe(
      Layer.provideMerge(GrantStore.layerMemory),
      Layer.provide([
        AgentRegistry.layer([reviewer]),
        GraphObserver.layerNone,
        Repositories.layerNoop,
        runner
      ])
    )
  })
)

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
      messages: [{ role: "user", content: "The change replaces a loop in main.ts with a call of map" }],
      model: yield* model,
      caller: { billingAccountId: "acct-1", virtualKeyId: "vk-1", requestId: "req-1", traceId: "trace-1" }
    },
    { runId: yield* RunId.generate, attempt: 0, ingressRequestId: "req-1", grantId: grant.id }
  )
  const { content, message, ok } = yield* run.final
  console.log(ok ? content : `failed: ${message}`)
})

await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(layers)))
