/**
 * A chat session over a real Docker Engine: two messages, one container, and a model that the host calls.
 *
 * Needs Docker, the runtime image and a model: run `./dev setup`, set `COGNI_LLM_URL`, `COGNI_LLM_KEY` and
 * `COGNI_LLM_MODEL` in the environment, then run `pnpm example chat-on-docker`.
 */
import { SandboxRunner, UsageObserver } from "@cogni/sandbox-core"
import { DockerContainerRuntime, FileRunStore, HostWorkspace } from "@cogni/sandbox-docker"
import { AiSdkChatModel } from "@cogni/sandbox-loop"
import { AuditTraffic, GatewayLlmProxy } from "@cogni/sandbox-proxy"
import {
  ConfigurationStore,
  MessageRouter,
  ModelOrchestrators,
  Sessions,
  SessionWorkspaces
} from "@cogni/sandbox-sessions"
import { Config, Effect, Layer, References } from "effect"
import { tmpdir } from "node:os"
import { join } from "node:path"

const identity = { billingAccountId: "acme", attempt: 0 }

const sessions = Layer.unwrap(
  Effect.gen(function* () {
    const url = yield* Config.String("COGNI_LLM_URL")
    const key = yield* Config.Redacted("COGNI_LLM_KEY")
    const model = yield* Config.String("COGNI_LLM_MODEL")
    const image = yield* Config.String("COGNI_RUNTIME_IMAGE").pipe(
      Config.withDefault("cogni-sandbox/runtime:latest")
    )
    const runner = SandboxRunner.layer.pipe(
      Layer.provide(GatewayLlmProxy.layer({ url, key })),
      // An example bills no account.
      Layer.provide(UsageObserver.layerNone),
      Layer.provide([
        DockerContainerRuntime.layer(),
        FileRunStore.layer({
          directory: join(tmpdir(), "cogni-sandbox-example"),
          trafficOf: AuditTraffic.reader()
        }),
        HostWorkspace.layer()
      ])
    )
    const text = `
sandbox: { enabled: true, image: "${image}" }
agent_configs: { coder: { system_prompt: You are a coding assistant., tool_profile: coding } }
routing: { default_agent: coder }`
    return Sessions.layer({ settings: { llm: { model, identity, caller: "host" } } }).pipe(
      Layer.provide(ModelOrchestrators.layer({ model, identity })),
      // To read a file, use `ConfigurationStore.layerFile`; to keep the session's files, use `HostSessionWorkspaces`.
      Layer.provide(ConfigurationStore.layer(Effect.succeed(text), { file: "cogni.yaml" })),
      Layer.provide([runner, AiSdkChatModel.layer(), SessionWorkspaces.layerTemporary])
    )
  })
)

const program = Effect.gen(function* () {
  const { handle } = yield* MessageRouter.MessageRouter
  for (const said of ["Write the date into a file", "What is in that file?"]) {
    const { executor, key, text } = yield* handle({ channel: "irc", senderId: "ana", text: said })
    console.log(`${key} (${executor}): ${text}`)
  }
})

// At level Info, the log has a line when the container of a session opens, and when it ends.
await Effect.runPromise(
  program.pipe(Effect.provide(sessions), Effect.provideService(References.MinimumLogLevel, "Warn"))
)
