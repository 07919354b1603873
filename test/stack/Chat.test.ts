/**
 * A day of chat in real containers: three channels, two agents, rules of every kind, concurrent messages, a server that
 * one message starts and the next one calls, a changed configuration, and an engine that restarts.
 *
 * The model is a script. Its tool calls are executed, and the transcript is what users would read.
 */
import { assert, describe, it } from "@effect/vitest"
import * as ChatModel from "@cogni/sandbox-loop/ChatModel"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import { layerNoop } from "@cogni/sandbox-core/LlmProxy"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as ConfigurationStore from "@cogni/sandbox-sessions/config/ConfigurationStore"
import * as HostExecutor from "@cogni/sandbox-sessions/executor/HostExecutor"
import * as HostSessionWorkspaces from "@cogni/sandbox-sessions/sandbox/HostSessionWorkspaces"
import { MessageRouter } from "@cogni/sandbox-sessions/router/MessageRouter"
import * as ModelOrchestrators from "@cogni/sandbox-sessions/router/ModelOrchestrators"
import { SandboxManager } from "@cogni/sandbox-sessions/sandbox/SandboxManager"
import * as Sessions from "@cogni/sandbox-sessions/Sessions"
import { Effect, Layer, Ref, type Scope } from "effect"
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import * as Await from "../harness/Await.ts"
import * as Images from "../harness/Images.ts"
import * as PrivateEngine from "../harness/PrivateEngine.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/**
 * Model that obeys its user: `sh LINE` runs a command, `start LINE` starts a process, `list` lists the processes, and
 * `say WORD` answers. After a tool call, it answers with the result. Answers begin with its model, its prompt and the
 * number of user messages.
 */
const obedient = ({ messages, model }: ChatModel.ChatRequest): ReadonlyArray<ChatMessage.ChatPart> => {
  const last = messages.at(-1)!
  const system = messages.find(({ role }) => role === "system")?.content ?? "nobody"
  const turn = messages.filter(({ role }) => role === "user").length
  const sign = (text: string) => ChatModel.says(`[${model}, ${system}, ${turn}] ${text}`)
  if (last.role === "tool") return sign(said(last.content))
  const [, verb = "", rest = ""] = /^(\S+) ?(.*)$/su.exec(last.content) ?? []
  const call = (name: string, args: Readonly<Record<string, unknown>>) =>
    ChatModel.calls({ id: `call-${turn}`, name, arguments: JSON.stringify(args) })
  switch (verb) {
    case "sh":
      return call("shell__exec", { command: rest })
    case "start":
      return call("process__start", { command: rest })
    case "list":
      return call("process__list", {})
    default:
      return sign(rest)
  }
}

/** Formats a tool result for a person. */
const said = (content: string): string => {
  if (!content.startsWith("{")) return content.split(/[:.]/u)[0] ?? content
  const result: Record<string, unknown> = JSON.parse(content)
  if ("stdout" in result) {
    return `${String(result["stdout"]).trim()}${result["exit_code"] === 0 ? "" : ` (${String(result["exit_code"])})`}`
  }
  if ("process_id" in result) return `started ${String(result["process_id"])}`
  return JSON.stringify(
    (result["processes"] as ReadonlyArray<Record<string, unknown>>).map((process) => process["command"])
  )
}

const configuration = (options: {
  readonly image: string
  readonly coderPrompt?: string
  readonly discord?: string
  readonly onUnavailable?: string
}) => `
sandbox:
  enabled: true
  image: ${options.image}
  memory_limit: 128m
  on_unavailable: ${options.onUnavailable ?? "refuse"}
  persistent_workspaces: true
agent_configs:
  assistant:
    system_prompt: assistant
    tool_profile: coding
  coder:
    system_prompt: ${options.coderPrompt ?? "coder"}
    model_tier: complex
    tool_profile: coding
models:
  default: small
  complex: large
routing:
  default_agent: assistant
  channels:
    discord: ${options.discord ?? "coder"}
  senders:
    "telegram:12345": coder
    "slack:U0*": coder
    "slack:U0GUEST*": assistant
`

/** Makes the services on a private engine, with a configuration text that can be changed. */
const world = Effect.fnUntraced(function* (
  engine: PrivateEngine.PrivateEngine,
  directory: string,
  text: Ref.Ref<string>
) {
  const hostDirectory = join(directory, "host")
  mkdirSync(hostDirectory)
  const host = yield* HostExecutor.make({
    workspace: hostDirectory,
    limits: { outputBytesMax: 1024 ** 2, outputRetainedBytesMax: 64 * 1024 }
  }).pipe(Effect.provide(NodeServices.layer))
  const runner = SandboxRunner.layer.pipe(
    Layer.provide(layerNoop),
    Layer.provide([
      DockerContainerRuntime.layer({ host: engine.host }),
      HostWorkspace.layer(),
      FileRunStore.layer({ directory: join(directory, "state"), trafficOf: "unknown" })
    ])
  )
  const model = ChatModel.layerMemory(obedient)
  return Sessions.layer({ host }).pipe(
    Layer.provideMerge(ConfigurationStore.layer(Ref.get(text), { file: "cogni.yaml" })),
    Layer.provide([
      runner,
      HostSessionWorkspaces.layer({ directory: join(directory, "sessions") }),
      ModelOrchestrators.layer({
        endpoint: { baseUrl: "http://nowhere.invalid" },
        model: "small",
        identity: { billingAccountId: "account", attempt: 0 }
      }).pipe(Layer.provide(model))
    ])
  )
})

/** Sends a message, and formats the reply: which agent answered, from where, and its text. */
const ask = (channel: string, senderId: string, text: string) =>
  MessageRouter.use((router) => router.handle({ channel, senderId, text })).pipe(
    Effect.map(
      ({ agent, executor, fallback, rule, text: reply, why }) =>
        `${agent} by ${rule._tag}${fallback ? ` on the ${executor} instead` : ""}${why === undefined ? "" : " (no sandbox)"}: ${reply}`
    ),
    Effect.catch((error) => Effect.succeed(`no answer: ${error.reason._tag}`))
  )

const scenario = <A, E>(
  play: (
    engine: PrivateEngine.PrivateEngine,
    configure: (
      options?: Omit<Parameters<typeof configuration>[0], "image">
    ) => Effect.Effect<void, Error, ConfigurationStore.ConfigurationStore>
  ) => Effect.Effect<
    A,
    E,
    MessageRouter | SandboxManager | ConfigurationStore.ConfigurationStore | Scope.Scope
  >
) =>
  Effect.gen(function* () {
    const engine = yield* PrivateEngine.acquire(Images.runtime)
    const directory = yield* RunHarness.Directory
    const text = yield* Ref.make(configuration({ image: engine.image }))
    const configure = (options = {}) =>
      Ref.set(text, configuration({ ...options, image: engine.image })).pipe(
        Effect.andThen(ConfigurationStore.ConfigurationStore.use((store) => store.reload)),
        Effect.asVoid
      )
    return yield* Effect.scoped(play(engine, configure)).pipe(
      Effect.provide(yield* world(engine, directory, text))
    )
  }).pipe(Effect.provide(RunHarness.Directory.layer), Effect.scoped)

describe.skipIf(PrivateEngine.obstacle !== undefined)("a chat", () => {
  it.live("survives concurrent messages, a new configuration and an engine restart", () =>
    scenario((engine, configure) =>
      Effect.gen(function* () {
        const server = `socat TCP-LISTEN:9000,bind=127.0.0.1,reuseaddr,fork SYSTEM:'echo pong'`
        const askServer = [
          "sh for i in $(seq 60); do",
          "socat -t 1 - TCP:127.0.0.1:9000 </dev/null 2>/dev/null && exit; sleep 0.1; done; echo nobody"
        ].join(" ")

        // Rules of every kind. Each session has separate files.
        assert.deepStrictEqual(
          yield* Effect.all(
            [
              ask("telegram", "12345", "sh echo from telegram > note; cat note"),
              ask("telegram", "999", "sh cat note 2>/dev/null || echo none"),
              ask("slack", "U0ABC", "sh echo from slack > note; cat note"),
              ask("slack", "U0GUEST1", "sh cat note 2>/dev/null || echo none"),
              ask("slack", "X1", "say hello"),
              ask("discord", "anyone", "sh exit 3")
            ],
            { concurrency: "unbounded" }
          ),
          [
            "coder by Sender: [large, coder, 1] from telegram",
            "assistant by Default: [small, assistant, 1] none",
            "coder by SenderPattern: [large, coder, 1] from slack",
            "assistant by SenderPattern: [small, assistant, 1] none",
            "assistant by Default: [small, assistant, 1] hello",
            "coder by Channel: [large, coder, 1]  (3)"
          ]
        )
        // A session that only talks needs no container.
        const busy = yield* SandboxManager.use((manager) => manager.list)
        assert.strictEqual(busy.length, 5)

        // One message starts a server, and the next one calls it. Another session has no such server.
        assert.strictEqual(
          yield* ask("telegram", "12345", `start ${server}`),
          "coder by Sender: [large, coder, 2] started proc-1"
        )
        assert.deepStrictEqual(
          yield* Effect.all(
            [
              ask("telegram", "12345", askServer),
              ask("telegram", "12345", "list"),
              ask("slack", "U0ABC", askServer),
              ask("slack", "U0ABC", "list")
            ],
            { concurrency: "unbounded" }
          ),
          [
            "coder by Sender: [large, coder, 3] pong",
            `coder by Sender: [large, coder, 4] ${JSON.stringify([server])}`,
            "coder by SenderPattern: [large, coder, 2] nobody",
            "coder by SenderPattern: [large, coder, 3] []"
          ]
        )

        // An invalid configuration changes nothing. A valid one applies from the next message on.
        const refused = yield* Effect.flip(configure({ discord: "nobody" }))
        assert.include(refused.message, "routing.channels.discord")
        yield* configure({ discord: "assistant", coderPrompt: "reviewer" })
        assert.deepStrictEqual(
          [
            yield* ask("discord", "anyone", "say hi"),
            yield* ask("telegram", "12345", "sh cat note"),
            yield* ask("slack", "U0GUEST1", "say still me")
          ],
          [
            "assistant by Channel: [small, assistant, 1] hi",
            "coder by Sender: [large, reviewer, 1] from telegram",
            "assistant by SenderPattern: [small, assistant, 2] still me"
          ]
        )

        // Nothing is executed without an engine, not even on the host.
        yield* engine.terminate
        // A sandbox stays in use until its end is detected.
        yield* Await.until(
          "no session has a sandbox",
          SandboxManager.use(({ list }) => Effect.map(list, (sandboxes) => sandboxes.length === 0))
        )
        assert.deepStrictEqual(
          [yield* ask("telegram", "12345", "sh cat note"), yield* ask("slack", "X1", "say I only talk")],
          [
            "coder by Sender (no sandbox): [large, reviewer, 2] unavailable",
            "assistant by Default: [small, assistant, 2] I only talk"
          ]
        )
        yield* configure({ coderPrompt: "reviewer", onUnavailable: "host" })
        assert.strictEqual(
          yield* ask("telegram", "12345", "sh ls; echo here"),
          "coder by Sender on the host instead (no sandbox): [large, reviewer, 1] here"
        )

        // After the restart, the kept files are in a new container.
        yield* configure({ coderPrompt: "reviewer" })
        yield* engine.restart
        assert.deepStrictEqual(
          yield* Effect.all(
            [
              ask("telegram", "12345", "sh cat note; ls /tmp"),
              ask("slack", "U0ABC", "sh cat note"),
              ask("telegram", "12345", "list")
            ],
            { concurrency: "unbounded" }
          ),
          [
            "coder by Sender: [large, reviewer, 1] from telegram",
            "coder by SenderPattern: [large, reviewer, 1] from slack",
            "coder by Sender: [large, reviewer, 2] []"
          ]
        )
      })
    )
  )
})
