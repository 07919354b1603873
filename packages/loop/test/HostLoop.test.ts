import type { Executor, SandboxError } from "@cogni/sandbox-core"
import { ChatModel, HostLoop } from "@cogni/sandbox-loop"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import * as ChatBounds from "../src/internal/ChatBounds.ts"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as World from "./LoopWorld.ts"

const { callOf } = World

const options = (
  executor: Executor.Executor,
  over: Partial<HostLoop.LoopOptions> = {}
): HostLoop.LoopOptions => ({
  at: { socketPath: "/s" },
  model: "m",
  messages: [{ role: "user", content: "Do it" }],
  tools: HostLoop.executorTools(executor),
  ...over
})

const silent = World.executorOf(() => Effect.succeed(0))

const told = (loop: HostLoop.LoopOptions) =>
  Effect.gen(function* () {
    const events = yield* Stream.runCollect(HostLoop.stream(loop))
    assert.deepStrictEqual(World.misorderOf(events), [])
    const last = events.at(-1)
    assert(last?.type === "ended")
    return { events, end: last.end }
  })

/** Returns the results that the model received. */
const heardOf = (requests: ReadonlyArray<ChatModel.ChatRequest>) =>
  (requests.at(-1)?.messages ?? []).flatMap((message) => (message.role === "tool" ? [message.content] : []))

describe("HostLoop", () => {
  it.effect("executes the model's tool calls, returns the results, and ends with the answer", () =>
    Effect.gen(function* () {
      const files = new Map([["/workspace/a.txt", "one\n"]])
      const commands: Array<unknown> = []
      const executor = World.executorOf((command, { workingDirectory }) => {
        commands.push([command, workingDirectory])
        return Effect.succeed(World.output("ok\n", "hm\n"))
      }, files)
      const model = World.inTurn(
        [
          { type: "text_delta", delta: "Let me look." },
          ...ChatModel.calls(callOf("file__read", { path: "a.txt" }, "1"))
        ],
        ChatModel.calls(
          callOf("file__write", { path: "a.txt", content: "two\n" }, "2"),
          callOf("shell__exec", { command: "cat a.txt" }, "3")
        ),
        [{ type: "usage", inputTokens: 7, outputTokens: 3 }, ...ChatModel.says("Done.")]
      )
      const { end, events } = yield* Effect.provide(told(options(executor)), model.layer)
      assert.deepInclude(end, {
        outcome: "finished",
        text: "Done.",
        steps: 3,
        toolCalls: 3,
        message: "the model answered"
      })
      assert.strictEqual(files.get("/workspace/a.txt"), "two\n")
      assert.deepStrictEqual(commands, [["cat a.txt", undefined]])
      assert.deepStrictEqual(model.requests.at(-1)?.messages.slice(0, 3), [
        { role: "user", content: "Do it" },
        {
          role: "assistant",
          content: "Let me look.",
          toolCalls: [callOf("file__read", { path: "a.txt" }, "1")]
        },
        { role: "tool", toolCallId: "1", toolName: "file__read", content: heardOf(model.requests)[0] ?? "" }
      ])
      assert.containSubset(
        heardOf(model.requests).map((content) => JSON.parse(content)),
        [
          { path: "a.txt", text: "one\n", lines: 1 },
          { path: "a.txt", bytes: 4 },
          { exit_code: 0, stdout: "ok\n", stderr: "hm\n", timed_out: false, cwd: "/workspace" }
        ]
      )
      assert.deepStrictEqual(
        model.requests.map(({ messages }) => World.problemsOf(messages)),
        [[], [], []]
      )
      assert.deepStrictEqual(
        events
          .filter(({ type }) => type === "tool_call_started")
          .map((event) => ("input" in event ? event.input : {})),
        [{ path: "a.txt" }, { path: "a.txt", content: "two\n" }, { command: "cat a.txt" }]
      )
    })
  )

  it.effect("does not use text of an earlier step as the answer", () =>
    Effect.gen(function* () {
      const model = World.inTurn(
        [
          { type: "text_delta", delta: "Let me look." },
          ...ChatModel.calls(callOf("shell__exec", { command: "a" }))
        ],
        [{ type: "finish", reason: "stop" }]
      )
      const { end } = yield* Effect.provide(told(options(silent)), model.layer)
      assert.deepInclude(end, { outcome: "finished", text: "" })
    })
  )

  it.effect("sends the tools with the schemas of their arguments", () =>
    Effect.gen(function* () {
      const model = World.inTurn(ChatModel.says("Hi"))
      yield* Effect.provide(HostLoop.run(options(silent)), model.layer)
      const tools = model.requests[0]?.tools ?? []
      assert.deepStrictEqual(
        tools.map(({ name }) => name),
        ["shell__exec", "file__read", "file__write", "file__list"]
      )
      assert.deepInclude(tools[0]?.inputSchema, {
        type: "object",
        required: ["command"],
        additionalProperties: false
      })
      assert.notProperty(model.requests[0], "outputTokensMax")
    })
  )

  it.effect("returns the problem with an invalid call, and continues", () =>
    Effect.gen(function* () {
      const model = World.inTurn(
        ChatModel.calls(
          callOf("rm -rf", { path: "/" }, "1"),
          callOf("file__read", '{"path": "a', "2"),
          callOf("file__read", [], "3"),
          callOf("file__read", { path: 3 }, "4"),
          callOf("shell__exec", { command: "true", sudo: true }, "5"),
          callOf("file__read", { path: "none.txt" }, "6")
        ),
        ChatModel.says("Sorry")
      )
      const { end, events } = yield* Effect.provide(told(options(silent)), model.layer)
      assert.strictEqual(end.outcome, "finished")
      const heard = heardOf(model.requests)
      assert.strictEqual(
        heard[0],
        'policy_denied: the tool "rm -rf" may not be called. Allowed tools: shell__exec, file__read, file__write, file__list'
      )
      assert.match(heard[1] ?? "", /^invalid_json: the arguments are not JSON \(.+\)\. Send one object/u)
      assert.match(heard[2] ?? "", /^validation: the arguments are not a JSON object/u)
      assert.match(heard[3] ?? "", /^validation: path: Expected string/u)
      assert.match(heard[4] ?? "", /^validation: sudo: /u)
      assert.match(heard[5] ?? "", /^validation: "none\.txt" does not exist\. List it/u)
      assert.deepStrictEqual(World.problemsOf(model.requests[1]?.messages ?? []), [])
      assert.isTrue(events.every((event) => event.type !== "tool_call_ended" || event.isError))
    })
  )

  it.effect("gives a call a new ID if its ID is missing or not unique", () =>
    Effect.gen(function* () {
      const model = World.inTurn(
        ChatModel.calls(
          callOf("shell__exec", { command: "a" }, ""),
          callOf("shell__exec", { command: "b" }, "call_1")
        ),
        ChatModel.calls(
          callOf("shell__exec", { command: "c" }, "call_1"),
          callOf("shell__exec", { command: "d" }, "x\n")
        ),
        ChatModel.says("Done")
      )
      const { end } = yield* Effect.provide(told(options(silent)), model.layer)
      assert.strictEqual(end.outcome, "finished")
      assert.deepStrictEqual(World.problemsOf(model.requests[2]?.messages ?? []), [])
    })
  )

  it.effect("treats a command that fails or times out as a result", () =>
    Effect.gen(function* () {
      const executor = World.executorOf((command) => (command === "false" ? Effect.succeed(1) : Effect.never))
      const model = World.inTurn(
        ChatModel.calls(
          callOf("shell__exec", { command: "false" }, "1"),
          callOf("shell__exec", { command: "sleep", timeout_seconds: 5 }, "2"),
          callOf("shell__exec", { command: "sleep", timeout_seconds: 1e9 }, "3")
        ),
        ChatModel.says("So")
      )
      const fiber = yield* Effect.forkChild(Effect.provide(told(options(executor)), model.layer), {
        startImmediately: true
      })
      for (let second = 0; second < 30; second += 1) yield* TestClock.adjust("1 second")
      const { end, events } = yield* Fiber.join(fiber)
      assert.strictEqual(end.outcome, "finished")
      const heard = heardOf(model.requests)
      assert.containSubset(JSON.parse(heard[0] ?? ""), { exit_code: 1, timed_out: false })
      assert.containSubset(JSON.parse(heard[1] ?? ""), { timed_out: true })
      assert.match(heard[2] ?? "", /^validation: timeout_seconds: .* from 0\.1 to 120/u)
      assert.deepStrictEqual(
        events.flatMap((event) => (event.type === "tool_call_ended" ? [event.isError] : [])),
        [false, false, true]
      )
    })
  )

  it.effect("ends with the sandbox's error when the sandbox has ended", () =>
    Effect.gen(function* () {
      const model = World.inTurn(
        ChatModel.calls(callOf("shell__exec", { command: "a" })),
        ChatModel.says("Never")
      )
      const executor = World.executorOf(() => Effect.fail(World.gone))
      const { end } = yield* Effect.provide(told(options(executor)), model.layer)
      assert.deepInclude(end, { outcome: "sandbox_failed", error: World.gone, message: World.gone.message })
      assert.lengthOf(model.requests, 1)
    })
  )

  it.effect("ends when the sandbox ends during a model call", () =>
    Effect.gen(function* () {
      const over = yield* Deferred.make<never, SandboxError.SandboxError>()
      const loop = options(silent, { ended: Deferred.await(over) })
      const fiber = yield* Effect.forkChild(
        Effect.provide(
          told(loop),
          ChatModel.layerMemory(() => Stream.never)
        )
      )
      yield* TestClock.adjust("1 second")
      yield* Deferred.fail(over, World.gone)
      const { end } = yield* Fiber.join(fiber)
      assert.strictEqual(end.outcome, "sandbox_failed")
    })
  )
})

describe("HostLoop limits", () => {
  const more = ChatModel.layerMemory(() => ChatModel.calls(callOf("shell__exec", { command: "a" })))

  it.effect("steps: does not execute the calls of the last answer", () =>
    Effect.gen(function* () {
      let commands = 0
      const executor = World.executorOf(() => Effect.sync(() => ++commands && 0))
      const { end } = yield* told(options(executor, { limits: { stepsMax: 3 } }))
      assert.deepInclude(end, { outcome: "steps_exhausted", steps: 3, toolCalls: 2 })
      assert.strictEqual(commands, 2)
      assert.match(end.message, /not done after 3 steps\. Raise stepsMax/u)
    }).pipe(Effect.provide(more))
  )

  it.effect("tool calls: counts each call of an answer", () =>
    Effect.gen(function* () {
      const { end } = yield* told(options(silent, { limits: { toolCallsMax: 4 } }))
      assert.deepInclude(end, { outcome: "tool_calls_exhausted", toolCalls: 4, steps: 5 })
      const model = World.inTurn(
        ChatModel.calls(...[1, 2, 3].map((n) => callOf("shell__exec", { command: "a" }, `${n}`)))
      )
      const many = yield* Effect.provide(told(options(silent, { limits: { toolCallsMax: 2 } })), model.layer)
      assert.deepInclude(many.end, { outcome: "tool_calls_exhausted", toolCalls: 2, steps: 1 })
    }).pipe(Effect.provide(more))
  )

  it.effect("invalid calls: ends the loop over the limit", () =>
    Effect.gen(function* () {
      const { end } = yield* told(options(silent, { limits: { invalidCallsMax: 2 } }))
      assert.deepInclude(end, { outcome: "invalid_calls_exhausted", toolCalls: 3 })
    }).pipe(Effect.provide(ChatModel.layerMemory(() => ChatModel.calls(callOf("fly", {})))))
  )

  it.effect("output tokens: estimates uncounted answers", () =>
    Effect.gen(function* () {
      const { end } = yield* told(options(silent, { limits: { outputTokensMax: 20 } }))
      assert.strictEqual(end.outcome, "output_tokens_exhausted")
      assert.isAtLeast(end.usage.outputTokens, 20)
      assert.isAtMost(end.steps, 3)
    }).pipe(Effect.provide(more))
  )

  it.effect("output tokens: uses the upstream's count, and limits the request", () =>
    Effect.gen(function* () {
      const model = World.inTurn(
        [{ type: "usage", outputTokens: 70 }, ...ChatModel.calls(callOf("shell__exec", { command: "a" }))],
        [{ type: "usage", outputTokens: 30 }, ...ChatModel.calls(callOf("shell__exec", { command: "b" }))]
      )
      const limits = { outputTokensMax: 100, answerTokensMax: 50 }
      const { end } = yield* Effect.provide(told(options(silent, { limits })), model.layer)
      assert.deepInclude(end, { outcome: "output_tokens_exhausted", steps: 2 })
      assert.deepStrictEqual(
        model.requests.map(({ outputTokensMax }) => outputTokensMax),
        [50, 30]
      )
    })
  )

  it.effect("output tokens: estimates answers with an invalid count", () =>
    Effect.gen(function* () {
      for (const said of [-1e9, Number.NaN, 0.5, Number.POSITIVE_INFINITY]) {
        const model = ChatModel.layerMemory(() => [
          { type: "usage", inputTokens: said, outputTokens: said },
          ...ChatModel.calls(callOf("shell__exec", { command: "a" }))
        ])
        const { end } = yield* Effect.provide(
          told(options(silent, { limits: { outputTokensMax: 20 } })),
          model
        )
        assert.strictEqual(end.outcome, "output_tokens_exhausted", `${said}`)
        assert.deepInclude(end, { steps: 2, usage: { inputTokens: 0, outputTokens: 22 } }, `${said}`)
      }
    })
  )

  it.effect("conversation: never sends more bytes than the limit", () =>
    Effect.gen(function* () {
      const executor = World.executorOf(() => Effect.succeed(World.output("x".repeat(10_000))))
      const model = World.inTurn(
        ...Array.from({ length: 20 }, () => ChatModel.calls(callOf("shell__exec", { command: "a" })))
      )
      const limits = { contextBytesMax: 5000, toolResultBytesMax: 1000 }
      const { end } = yield* Effect.provide(told(options(executor, { limits })), model.layer)
      assert.strictEqual(end.outcome, "context_exhausted")
      for (const { messages } of model.requests) {
        assert.isAtMost(
          messages.reduce((sum, { content }) => sum + content.length, 0),
          5000
        )
      }
      assert.isAbove(model.requests.length, 2)
      assert.isTrue(heardOf(model.requests).every((content) => content.length <= 1000))
    })
  )

  it.effect("time: ends the running call, and reports its end", () =>
    Effect.gen(function* () {
      let wasInterrupted = false
      const began = yield* Deferred.make<void>()
      const executor = World.executorOf(() =>
        Effect.andThen(Deferred.succeed(began, undefined), Effect.never).pipe(
          Effect.onInterrupt(() =>
            Effect.sync(() => {
              wasInterrupted = true
            })
          )
        )
      )
      const fiber = yield* Effect.forkChild(told(options(executor, { limits: { runtimeSecondsMax: 60 } })))
      yield* Deferred.await(began)
      yield* TestClock.adjust("1 minute")
      const { end, events } = yield* Fiber.join(fiber)
      assert.deepInclude(end, { outcome: "timeout", durationMs: 60_000 })
      assert.isTrue(wasInterrupted)
      assert.deepInclude(events.at(-2), { type: "tool_call_ended", isError: true, durationMs: 60_000 })
    }).pipe(Effect.provide(more))
  )
})

describe("HostLoop with a failing model", () => {
  it.effect("retries retryable failures after the upstream's delay, up to a limit", () =>
    Effect.gen(function* () {
      const model = World.inTurn(
        ChatError.failed("unavailable", "busy"),
        ChatError.failed("rate_limit", "slow down", { retryAfterSeconds: 20 }),
        ChatError.failed("rate_limit", "slow down", { retryAfterSeconds: 86_400 }),
        ChatModel.says("Here")
      )
      const fiber = yield* Effect.forkChild(Effect.provide(told(options(silent)), model.layer))
      const asked = (after: string, times: number) =>
        Effect.map(TestClock.adjust(after as "1 second"), () => assert.lengthOf(model.requests, times, after))
      yield* asked("999 millis", 1)
      yield* asked("1 millis", 2)
      yield* asked("19999 millis", 2)
      yield* asked("1 millis", 3)
      yield* asked("29999 millis", 3)
      yield* asked("1 millis", 4)
      const { end } = yield* Fiber.join(fiber)
      assert.deepInclude(end, { outcome: "finished", text: "Here", steps: 1 })
    })
  )

  it.effect("gives up after its attempts", () =>
    Effect.gen(function* () {
      const model = World.inTurn(
        ...Array.from({ length: 5 }, () => ChatError.failed("unreachable", "nobody there"))
      )
      const fiber = yield* Effect.forkChild(
        Effect.provide(told(options(silent, { limits: { attemptsMax: 3 } })), model.layer)
      )
      yield* TestClock.adjust("1 hour")
      const { end } = yield* Fiber.join(fiber)
      assert.strictEqual(end.outcome, "model_failed")
      assert.lengthOf(model.requests, 3)
      assert.match(end.message, /nobody there \(unreachable\)/u)
    })
  )

  it.effect("does not retry a final failure or a partial answer", () =>
    Effect.gen(function* () {
      const spent = World.inTurn(ChatError.failed("insufficient_quota", "spent"))
      const first = yield* Effect.provide(told(options(silent)), spent.layer)
      assert.strictEqual(first.end.outcome, "model_failed")
      const half = World.inTurn(
        Stream.concat(
          Stream.make<[ChatMessage.ChatPart]>({ type: "text_delta", delta: "Half" }),
          Stream.fail(ChatError.failed("unavailable", "gone"))
        )
      )
      const second = yield* Effect.provide(told(options(silent)), half.layer)
      assert.deepInclude(second.end, { outcome: "model_failed", text: "Half" })
      assert.lengthOf(half.requests, 1)
    })
  )

  it.effect("distinguishes truncated, filtered and empty answers", () =>
    Effect.gen(function* () {
      const ended = (reason: ChatMessage.ChatFinish, text = "") =>
        Effect.map(
          Effect.provide(
            told(options(silent)),
            ChatModel.layerMemory(() => [
              { type: "text_delta", delta: text },
              { type: "finish", reason }
            ])
          ),
          ({ end }) => ("error" in end ? `${end.outcome} ${end.error.message}` : end.outcome)
        )
      assert.strictEqual(yield* ended("length", "Half"), "output_tokens_exhausted")
      assert.match(yield* ended("content_filter", "Half"), /^model_failed .*\(refused\)/u)
      assert.match(yield* ended("tool_calls"), /^model_failed .*\(invalid_answer\)/u)
      assert.strictEqual(yield* ended("other", "Whole"), "finished")
      assert.strictEqual(yield* ended("stop"), "finished")
    })
  )

  it.effect("limits answers of every model", () =>
    Effect.gen(function* () {
      const endless = ChatModel.layerMemory(() =>
        Stream.forever(Stream.make<[ChatMessage.ChatPart]>({ type: "text_delta", delta: "x".repeat(1000) }))
      )
      const limits = { answer: { ...ChatBounds.defaultLimits, answerBytesMax: 5000 } }
      const { end } = yield* Effect.provide(told(options(silent, { limits })), endless)
      assert.deepInclude(end, { outcome: "model_failed", steps: 1 })
      assert.isAtMost(end.text.length, 5000)
    })
  )
})

describe("HostLoop.executorTools", () => {
  const executor = World.executorOf(() =>
    Effect.succeed(World.output(`A${"o".repeat(5000)}B`, `C${"e".repeat(5000)}D`))
  )

  it.effect("shortens a result to its beginning and end, within the loop's limit", () =>
    Effect.gen(function* () {
      const tools = HostLoop.executorTools(executor, { toolResultBytesMax: 1000 })
      const model = World.inTurn(
        ChatModel.calls(callOf("shell__exec", { command: "a" })),
        ChatModel.says("Done")
      )
      yield* Effect.provide(
        told(options(executor, { tools, limits: { toolResultBytesMax: 1000 } })),
        model.layer
      )
      const [content = ""] = heardOf(model.requests)
      assert.isAtMost(content.length, 1000)
      for (const end of [/"stdout":"Ao/u, /left out/u, /eD"/u]) assert.match(content, end)
    })
  )

  it.effect("starts in the working directory, and stays inside the workspace", () =>
    Effect.gen(function* () {
      const places: Array<string | undefined> = []
      const files = new Map([["/workspace/repo/a.txt", "text"]])
      const inside = World.executorOf((_, { workingDirectory }) => {
        places.push(workingDirectory)
        return Effect.succeed(0)
      }, files)
      const tools = HostLoop.executorTools(inside, { workingDirectory: "/workspace/repo" })
      const model = World.inTurn(
        ChatModel.calls(
          callOf("shell__exec", { command: "a" }, "1"),
          callOf("shell__exec", { command: "a", cwd: ".." }, "2"),
          callOf("file__read", { path: "a.txt" }, "3"),
          callOf("file__read", { path: "../../etc/passwd" }, "4")
        ),
        ChatModel.says("Done")
      )
      yield* Effect.provide(told(options(inside, { tools })), model.layer)
      assert.deepStrictEqual(places, ["/workspace/repo", "/workspace"])
      const heard = heardOf(model.requests)
      assert.match(heard[2] ?? "", /"text":"text"/u)
      assert.match(heard[3] ?? "", /leads out of the workspace/u)
    })
  )
})
