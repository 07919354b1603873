/** The official clients of OpenAI, Anthropic and MCP, unchanged, in a sealed container. */
import { assert, it } from "@effect/vitest"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as CurrentTime from "@cogni/sandbox-proxy/tools/CurrentTime"
import { Context, Effect, Layer, Redacted } from "effect"
import { chmodSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import { rolldown } from "rolldown"
import * as Images from "../harness/Images.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as RunHarness from "../harness/RunHarness.ts"

class Upstream extends Context.Service<Upstream, ModelApi.ModelApi>()("test/Upstream") {
  static readonly layer = Layer.effect(Upstream, ModelApi.acquire)
}

const proxyLayer = (carrier: "directory" | "container") =>
  Layer.unwrap(
    Effect.map(Upstream, ({ url }) =>
      GatewayLlmProxy.layer({
        url,
        key: Redacted.make("sk-made-up"),
        carrier,
        image: Images.gateway,
        tools: [CurrentTime.tool]
      }).pipe(Layer.provide(UsageObserver.layerNone))
    )
  )

const program = Effect.promise(async () => {
  const bundle = await rolldown({
    input: join(import.meta.dirname, "clients", "agent.mjs"),
    platform: "node",
    logLevel: "silent"
  })
  const { output } = await bundle.generate({ format: "esm", codeSplitting: false })
  await bundle.close()
  return output[0].code
})

for (const carrier of ["directory", "container"] as const) {
  it.layer(RunHarness.layer(proxyLayer(carrier)).pipe(Layer.provideMerge(Upstream.layer)), {
    excludeTestServices: true
  })(`official clients through a gateway with sockets in a ${carrier}`, (it) => {
    it.effect("chat, responses, messages, streams, tools, MCP and errors work as without a sandbox", () =>
      Effect.gen(function* () {
        const { run } = yield* SandboxRunner.SandboxRunner
        const { received } = yield* Upstream
        const workspace = join(yield* RunHarness.Directory, `project-${carrier}`)
        mkdirSync(workspace)
        chmodSync(workspace, 0o777)
        const result = yield* run({
          image: Images.runtime,
          argv: ["sh", "-c", "cat /cogni/agent-*.mjs >agent.mjs && exec node agent.mjs"],
          inputs: pieces(yield* program),
          workspace: { type: "directory", path: workspace },
          tools: ["core__get_current_time"],
          llm: { model: "m", identity: { billingAccountId: "acct" } }
        })
        const sentence = "It is sunny in Oslo."
        assert.deepStrictEqual(JSON.parse(result.output.stdout.text), {
          chat: sentence,
          chatUsage: 16,
          chatStream: sentence,
          chatStreamUsage: 16,
          chatStreamPlain: sentence,
          chatStreamTool: '{"city":"Oslo"}',
          models: ["m"],
          responses: sentence,
          responsesStream: sentence,
          messages: sentence,
          messagesStream: sentence,
          messagesStreamTool: { city: "Oslo" },
          countTokens: 6,
          wrongModel: ["NotFoundError", 404, "model_not_found"],
          wrongModelAnthropic: ["NotFoundError", 404, "not_found_error"],
          embeddings: ["PermissionDeniedError", 403, "path_not_allowed"],
          mcpTools: ["core__get_current_time"],
          mcpTime: "Europe/Oslo",
          mcpDenied: true
        })
        for (const { body } of yield* received) {
          const { metadata, user } = body as { readonly metadata?: unknown; readonly user?: unknown }
          if (!("max_tokens" in body) && "stream" in body) assert.strictEqual(user, "acct")
          if ("max_tokens" in body) assert.deepStrictEqual(metadata, { user_id: "acct" })
        }
        const { usage } = result.llm!
        assert.strictEqual(usage?.callsWithoutUsage, 0)
        // Twelve calls of five tokens each. Token counting runs no model.
        assert.strictEqual(usage?.outputTokens, 60)
        assert.strictEqual(result.llm!.toolCallsTotal, 2)
      })
    )
  })
}

/** Splits the bundle into several inputs, because it is larger than one input may be. */
const pieces = (text: string) =>
  Array.from({ length: Math.ceil(text.length / 500_000) }, (_, index) => ({
    name: `agent-${String(index).padStart(2, "0")}.mjs`,
    content: text.slice(index * 500_000, (index + 1) * 500_000)
  }))
