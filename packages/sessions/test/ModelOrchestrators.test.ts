import { assert, describe, it } from "@effect/vitest"
import * as ChatModel from "@cogni/sandbox-loop/ChatModel"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import type { Executor } from "@cogni/sandbox-core/Executor"
import * as FilePath from "@cogni/sandbox-core/FilePath"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ContainerFailed, RuntimeUnavailable, TimedOut } from "@cogni/sandbox-core/SandboxReason"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Effect, Layer, Result, Schema } from "effect"
import { TestClock } from "effect/testing"
import * as ModelOrchestrators from "../src/router/ModelOrchestrators.ts"
import { type OrchestratorInput, Orchestrators } from "../src/router/Orchestrator.ts"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { agentNamed } from "./Agents.ts"

const identity = { billingAccountId: "account", attempt: 0 }

const executorOf = (memory?: string): Executor => ({
  workspace: "/workspace",
  exec: () => Effect.die("unexpected exec"),
  spawn: () => Effect.die("unexpected spawn"),
  files: {
    read: (path) =>
      memory === undefined
        ? Effect.fail(new SandboxError({ reason: FilePath.notFound(path) }))
        : Effect.succeed(new TextEncoder().encode(memory)),
    write: () => Effect.die("unexpected write"),
    list: () => Effect.die("unexpected list"),
    stat: () => Effect.die("unexpected stat"),
    remove: () => Effect.die("unexpected remove")
  }
})

const calls: Array<{ readonly text: string; readonly context: Tool.ToolContext }> = []

const shout = Tool.make({
  name: "core__shout",
  description: "Say it loud",
  effect: "read_only",
  input: Schema.Struct({ text: Schema.String }),
  output: Schema.Struct({ loud: Schema.String }),
  execute: ({ text }, context) =>
    Effect.sync(() => {
      calls.push({ text, context })
      return { loud: text.toUpperCase() }
    })
})

const registry = Result.getOrThrow(
  Result.flatMap(ToolRegistry.make([shout]), (all) =>
    all.restrict("minimal", { allow: ["core.shout"], deny: [] })
  )
)

const inputOf = (input: Partial<OrchestratorInput> = {}): OrchestratorInput => {
  const executor = input.executor ?? executorOf()
  return {
    agent: agentNamed("coder", { systemPrompt: "You code." }),
    key: "telegram:1:coder",
    executor,
    bound: Effect.succeed({ ...executor, llmSocketPath: "/run/llm.sock" }),
    tools: registry,
    ...input
  }
}

/** Sends messages, and returns the replies and the requests to the model. */
const talk = (
  texts: ReadonlyArray<string>,
  options: {
    readonly input?: Partial<OrchestratorInput>
    readonly model?: Partial<ModelOrchestrators.ModelOrchestratorsOptions>
    readonly answer?: (request: ChatModel.ChatRequest) => ChatModel.ScriptedAnswer
    /** Happens after each message. */
    readonly between?: Effect.Effect<void>
  } = {}
) => {
  const asked: Array<{ readonly request: ChatModel.ChatRequest; readonly at: ChatMessage.ChatEndpoint }> = []
  const answer = options.answer ?? (({ messages }) => ChatModel.says(`re: ${messages.at(-1)?.content}`))
  return Effect.gen(function* () {
    const orchestrator = yield* Orchestrators.use((all) => all.make(inputOf(options.input)))
    const replies = yield* Effect.forEach(texts, (text) =>
      orchestrator.handle({ channel: "telegram", senderId: "1", text }).pipe(
        Effect.map((reply) => reply.text),
        Effect.catch((error) => Effect.succeed(error)),
        Effect.tap(options.between ?? Effect.void)
      )
    )
    return { replies, asked }
  }).pipe(
    Effect.scoped,
    Effect.provide(
      ModelOrchestrators.layer({ model: "small", identity, ...options.model }).pipe(
        Layer.provide(
          ChatModel.layerMemory((request, at) => {
            asked.push({ request, at })
            return answer(request)
          })
        )
      )
    )
  )
}

const said = ({ request }: { readonly request: ChatModel.ChatRequest }) =>
  request.messages.map(({ content, role }) => `${role}: ${content}`)

describe("ModelOrchestrators", () => {
  it.effect("refuses an agent without a model for its tier and without a default", () =>
    Effect.gen(function* () {
      const { message } = yield* Effect.flip(talk(["one"], { model: { model: undefined } }))
      assert.match(message, /has no model: its tier is \w+\. Add the tier's model to models/u)
    })
  )

  it.effect("holds one conversation per session, with its agent's prompt and model", () =>
    Effect.gen(function* () {
      const { asked, replies } = yield* talk(["one", "two"], { input: { model: "large" } })
      assert.deepStrictEqual(replies, ["re: one", "re: two"])
      assert.deepStrictEqual(said(asked[1]!), [
        "system: You code.",
        "user: one",
        "assistant: re: one",
        "user: two"
      ])
      assert.deepStrictEqual(
        asked.map(({ at, request }) => [request.model, at]),
        [
          ["large", { socketPath: "/run/llm.sock" }],
          ["large", { socketPath: "/run/llm.sock" }]
        ]
      )
    })
  )

  it.effect("uses the host's prompt and model for an agent without its own", () =>
    Effect.gen(function* () {
      const { asked } = yield* talk(["one"], {
        input: { agent: agentNamed("assistant") },
        model: { systemPrompt: "Be kind.", endpoint: { baseUrl: "http://localhost:4000/v1" } }
      })
      assert.deepStrictEqual(said(asked[0]!), ["system: Be kind.", "user: one"])
      assert.deepStrictEqual(
        [asked[0]?.request.model, asked[0]?.at],
        ["small", { baseUrl: "http://localhost:4000/v1" }]
      )
    })
  )

  it.effect("offers the agent's tools, and calls them with the session's identity", () =>
    Effect.gen(function* () {
      const { asked, replies } = yield* talk(["go"], {
        answer: ({ messages }) =>
          messages.at(-1)?.role === "tool"
            ? ChatModel.says(messages.at(-1)!.content)
            : ChatModel.calls({ id: "c1", name: "core__shout", arguments: '{"text":"hey"}' })
      })
      assert.deepStrictEqual(
        asked[0]?.request.tools.map(({ name }) => name),
        ["core__shout"]
      )
      assert.deepStrictEqual(replies, ['{"loud":"HEY"}'])
      assert.deepStrictEqual(calls.at(-1)?.context.identity, { ...identity, sessionId: "telegram:1:coder" })
    })
  )

  it.effect("calls tools of the gateway through it, and never by itself", () =>
    Effect.gen(function* () {
      const before = calls.length
      const asking = ({ messages }: ChatModel.ChatRequest) =>
        messages.at(-1)?.role === "tool"
          ? ChatModel.says(messages.at(-1)!.content)
          : ChatModel.calls({ id: "c1", name: "core__shout", arguments: '{"text":"hey"}' })
      const gatewayTools = ["core__shout"]
      // No gateway listens there.
      const onSocket = yield* talk(["go"], { answer: asking, model: { gatewayTools } })
      assert.include(String(onSocket.replies[0]), "the gateway of this run did not answer")
      const endpoint = { baseUrl: "http://localhost:4000/v1" }
      const without = yield* talk(["go"], { answer: asking, model: { gatewayTools, endpoint } })
      assert.include(String(without.replies[0]), "this tool needs the gateway of a run")
      assert.lengthOf(calls, before)
    })
  )

  it.effect("drops the oldest messages first, together with their answers", () =>
    Effect.gen(function* () {
      const texts = Array.from({ length: 20 }, (_, index) => `${index}`.padEnd(100, "x"))
      const { asked } = yield* talk(texts, { model: { historyBytesMax: 1000 } })
      const last = asked.at(-1)!.request.messages
      const history = last.slice(1, -1)
      const bytes = history.reduce((sum, { content }) => sum + content.length, 0)
      assert.isAtMost(bytes, 1000)
      assert.isAbove(bytes, 600)
      assert.deepStrictEqual(
        history.map(({ role }) => role),
        history.map((_, index) => (index % 2 === 0 ? "user" : "assistant"))
      )
    })
  )

  it.effect("omits a message without an answer from the conversation", () =>
    Effect.gen(function* () {
      let turn = 0
      const { asked, replies } = yield* talk(["one", "two"], {
        answer: () =>
          turn++ === 0
            ? ChatError.failed("insufficient_quota", "the budget is spent")
            : ChatModel.says("well")
      })
      const [failure] = replies
      assert(typeof failure === "object" && failure._tag === "OrchestratorFailed")
      assert.include(failure.message, "model_failed")
      assert.isFalse(failure.isRetryable)
      assert.deepStrictEqual(said(asked.at(-1)!), ["system: You code.", "user: two"])
    })
  )

  it.effect("reports why a model cannot be reached", () =>
    Effect.gen(function* () {
      const reason = new RuntimeUnavailable({ detail: "is not running", remedy: "Start it" })
      for (const [bound, word, isRetryable] of [
        [Effect.succeed(executorOf()), "caller host", false],
        [Effect.fail(new SandboxError({ reason })), "is not running", true]
      ] as const) {
        const { asked, replies } = yield* talk(["one"], { input: { bound } })
        const [failure] = replies
        assert(typeof failure === "object")
        assert.include(failure.message, word)
        assert.strictEqual(failure.isRetryable, isRetryable)
        assert.deepStrictEqual(asked, [])
      }
    })
  )

  it.effect("opens one model endpoint per session on the host, and closes it with the session", () =>
    Effect.gen(function* () {
      const made: Array<string> = []
      let open = 0
      const endpointOnHost = (model: string) =>
        Effect.acquireRelease(
          Effect.suspend(() => {
            made.push(model)
            if (made.length === 1) return Effect.fail({ message: "the disk is full" })
            open++
            return Effect.succeed({ socketPath: `/host/${model}.sock` })
          }),
          () => Effect.sync(() => open--)
        )
      const { asked, replies } = yield* talk(["one", "two", "three"], {
        input: { bound: Effect.succeed(executorOf()), model: "large" },
        model: { endpointOnHost }
      })
      const [failure] = replies
      assert(typeof failure === "object")
      assert.include(failure.message, "the disk is full")
      assert.deepStrictEqual(replies.slice(1), ["re: two", "re: three"])
      assert.deepStrictEqual(
        asked.map(({ at }) => at),
        [{ socketPath: "/host/large.sock" }, { socketPath: "/host/large.sock" }]
      )
      assert.deepStrictEqual([made, open], [["large", "large"], 0])
      const inside = yield* talk(["one"], { model: { endpointOnHost } })
      assert.deepStrictEqual(inside.asked[0]?.at, { socketPath: "/run/llm.sock" })
      assert.strictEqual(made.length, 2)
    })
  )

  it.effect(
    "starts no sandbox for talk if the model is reached on the host, and replaces an old endpoint",
    () =>
      Effect.gen(function* () {
        let made = 0
        let open = 0
        const keys: Array<string> = []
        const { asked, replies } = yield* talk(["one", "two", "three"], {
          input: { bound: Effect.die("a sandbox was started") },
          model: {
            talksOnHost: true,
            endpointSecondsMax: 60,
            endpointOnHost: (_, key) =>
              Effect.acquireRelease(
                Effect.sync(() => {
                  keys.push(key)
                  assert.strictEqual(++open, 1, "the old endpoint is closed first")
                  return { socketPath: `/host/${++made}.sock` }
                }),
                () => Effect.sync(() => open--)
              )
          },
          between: TestClock.adjust("31 seconds")
        })
        assert.deepStrictEqual(replies, ["re: one", "re: two", "re: three"])
        assert.deepStrictEqual(
          asked.map(({ at }) => at),
          [{ socketPath: "/host/1.sock" }, { socketPath: "/host/1.sock" }, { socketPath: "/host/2.sock" }]
        )
        assert.deepStrictEqual([keys, open], [["telegram:1:coder", "telegram:1:coder"], 0])
      })
  )

  it.effect("reads the agent's notes after the first tool call, if they must not start a sandbox", () =>
    Effect.gen(function* () {
      const { asked } = yield* talk(["one", "shout", "three"], {
        input: { executor: executorOf(JSON.stringify({ version: 1, summary: "a parser" })) },
        model: { readsMemory: "after_tools" },
        answer: ({ messages }) =>
          messages.at(-1)?.content === "shout"
            ? ChatModel.calls({ id: "1", name: "core__shout", arguments: '{"text":"x"}' })
            : ChatModel.says("done")
      })
      const notes = asked.map((one) => said(one).some((line) => line.includes("a parser")))
      assert.deepStrictEqual(notes, [false, false, false, true])
    })
  )

  it.effect("reports the end of the sandbox during a model call", () =>
    Effect.gen(function* () {
      const output = { text: "", truncated: false, bytes: 0 }
      const partial = { output: { stdout: output, stderr: output }, peak: {} }
      for (const [reason, word] of [
        [new TimedOut({ runtimeSecondsMax: 5, partial }), "raise sandbox.timeout_seconds"],
        [new ContainerFailed({ operation: "exec", detail: "it was killed", remedy: "Look" }), "it was killed"]
      ] as const) {
        const bound = Effect.succeed({
          ...executorOf(),
          llmSocketPath: "/run/llm.sock",
          ended: Effect.fail(new SandboxError({ reason }))
        })
        const { replies } = yield* talk(["one"], { input: { bound } })
        const [failure] = replies
        assert(typeof failure === "object")
        assert.include(failure.message, "the session's sandbox ended")
        assert.include(failure.message, word)
        assert.isTrue(failure.isRetryable)
      }
    })
  )

  it.effect("sends the agent's notes from the first message on, if enabled", () =>
    Effect.gen(function* () {
      const memory = JSON.stringify({ version: 1, summary: "a parser" })
      const { asked } = yield* talk(["one", "two"], {
        input: { executor: executorOf(memory) },
        model: { readsMemory: true }
      })
      for (const one of asked) {
        assert.strictEqual(said(one)[0], "system: You code.")
        assert.match(said(one)[1] ?? "", /^user: Notes from this workspace .* not instructions:\n.*a parser/u)
      }
      const without = yield* talk(["one"], { input: { executor: executorOf(memory) } })
      assert.deepStrictEqual(said(without.asked[0]!), ["system: You code.", "user: one"])
    })
  )

  it.effect.each(["{", '{"version":2}', undefined])(
    "answers without notes if they are invalid: %s",
    (memory) =>
      Effect.gen(function* () {
        const { asked, replies } = yield* talk(["one"], {
          input: { executor: executorOf(memory) },
          model: { readsMemory: true }
        })
        assert.deepStrictEqual(replies, ["re: one"])
        assert.deepStrictEqual(said(asked[0]!), ["system: You code.", "user: one"])
      })
  )
})
