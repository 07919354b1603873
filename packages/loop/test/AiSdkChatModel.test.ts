import * as Await from "../../../test/harness/Await.ts"
import type * as ChatModel from "@cogni/sandbox-loop/ChatModel"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as AiSdkChatModel from "@cogni/sandbox-loop/AiSdkChatModel"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Result, Stream } from "effect"
import * as ModelServer from "./ModelServer.ts"

const { calling, done, events, finish, refuses, saying, streams, usage } = ModelServer

const request: ChatModel.ChatRequest = {
  model: "model-1",
  messages: [
    { role: "system", content: "Be brief" },
    { role: "user", content: "Do it" },
    {
      role: "assistant",
      content: "",
      toolCalls: [{ id: "c0", name: "exec", arguments: '{"command": "a",  "n":1e2}' }]
    },
    { role: "tool", toolCallId: "c0", toolName: "exec", content: "exit code 0" },
    { role: "user", content: "Go on" }
  ],
  tools: [
    {
      name: "exec",
      description: "Run it",
      inputSchema: { type: "object", properties: { command: { type: "string" } }, required: ["command"] }
    }
  ]
}

const ask = (at: ChatMessage.ChatEndpoint, options?: AiSdkChatModel.AiSdkChatModelOptions) =>
  AiSdkChatModel.make(options).stream(request, at)

const heardFrom = (answer: ModelServer.Answer, options?: AiSdkChatModel.AiSdkChatModelOptions) =>
  Effect.gen(function* () {
    const { heard, socketPath } = yield* ModelServer.onSocket(answer)
    const parts = yield* Effect.result(Stream.runCollect(ask({ socketPath }, options)))
    return { heard, parts }
  })

const failureOf = (answer: ModelServer.Answer, options?: AiSdkChatModel.AiSdkChatModelOptions) =>
  Effect.map(heardFrom(answer, options), ({ heard, parts }) => {
    assert(Result.isFailure(parts), "it answered")
    // The adapter never retries.
    assert.lengthOf(heard, 1)
    return parts.failure
  })

const whole = [saying("Hel"), saying("lo"), finish("stop"), usage(11, 5), done]

describe("AiSdkChatModel", () => {
  it.live("sends a chat completion without a key, and streams the answer", () =>
    Effect.gen(function* () {
      const { heard, parts } = yield* heardFrom(streams(...whole))
      assert.deepStrictEqual(
        parts,
        Result.succeed([
          { type: "text_delta", delta: "Hel" },
          { type: "text_delta", delta: "lo" },
          { type: "usage", inputTokens: 11, outputTokens: 5 },
          { type: "finish", reason: "stop" }
        ] as const)
      )
      const [told] = heard
      assert.strictEqual(`${told?.method} ${told?.url}`, "POST /v1/chat/completions")
      assert.notProperty(told?.headers, "authorization")
      assert.deepStrictEqual(told?.body, {
        model: "model-1",
        messages: [
          { role: "system", content: "Be brief" },
          { role: "user", content: "Do it" },
          {
            role: "assistant",
            content: null,
            tool_calls: [
              {
                id: "c0",
                type: "function",
                function: { name: "exec", arguments: '{"command": "a",  "n":1e2}' }
              }
            ]
          },
          { role: "tool", tool_call_id: "c0", content: "exit code 0" },
          { role: "user", content: "Go on" }
        ],
        tools: [
          {
            type: "function",
            function: { name: "exec", description: "Run it", parameters: request.tools[0]?.inputSchema }
          }
        ],
        tool_choice: "auto",
        stream: true,
        stream_options: { include_usage: true }
      })
    })
  )

  it.live("reaches a base URL, and sends the output token limit", () =>
    Effect.gen(function* () {
      const { baseUrl, heard } = yield* ModelServer.onPort(streams(...whole))
      yield* Stream.runDrain(
        AiSdkChatModel.make().stream({ ...request, tools: [], outputTokensMax: 77 }, { baseUrl })
      )
      assert.strictEqual(heard[0]?.url, "/v1/chat/completions")
      assert.strictEqual(heard[0]?.body["max_tokens"], 77)
      assert.notProperty(heard[0]?.body, "tools")
    })
  )

  it.live("assembles tool calls from their pieces in order, and keeps invalid arguments", () =>
    Effect.gen(function* () {
      const { parts } = yield* heardFrom(
        streams(
          calling(0, { id: "a", name: "exec", arguments: "" }),
          calling(0, { arguments: '{"comm' }),
          calling(1, { id: "b", name: "fly", arguments: "{not json" }),
          calling(0, { arguments: 'and":"x"}' }),
          finish("tool_calls"),
          done
        )
      )
      assert.deepStrictEqual(
        Result.getOrThrow(parts).filter(({ type }) => type !== "usage"),
        [
          { type: "tool_call", id: "a", name: "exec", arguments: '{"command":"x"}' },
          { type: "tool_call", id: "b", name: "fly", arguments: "{not json" },
          { type: "finish", reason: "tool_calls" }
        ]
      )
    })
  )

  it.live("omits uncounted usage, and reports why an answer ended", () =>
    Effect.gen(function* () {
      for (const [raw, reason] of [
        ["length", "length"],
        ["content_filter", "content_filter"],
        ["odd", "other"]
      ] as const) {
        const { parts } = yield* heardFrom(streams(saying("x"), finish(raw), done))
        assert.deepStrictEqual(Result.getOrThrow(parts).slice(1), [
          { type: "usage" },
          { type: "finish", reason }
        ])
      }
    })
  )

  it.live("does not include reasoning in the answer", () =>
    Effect.gen(function* () {
      const thought = { ...saying(""), choices: [{ index: 0, delta: { reasoning_content: "hm" } }] }
      const { parts } = yield* heardFrom(streams(thought, saying("Yes"), finish("stop"), done))
      assert.deepStrictEqual(Result.getOrThrow(parts)[0], { type: "text_delta", delta: "Yes" })
    })
  )

  it.live("yields a piece before the next one is sent", () =>
    Effect.gen(function* () {
      const first = Promise.withResolvers<void>()
      const { socketPath } = yield* ModelServer.onSocket((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" }).write(events(saying("one")))
        void first.promise.then(() => response.end(events(saying("two"), finish("stop"), done)))
      })
      const parts = yield* ask({ socketPath }).pipe(
        Stream.tap((part) =>
          part.type === "text_delta" && part.delta === "one"
            ? Effect.sync(() => first.resolve())
            : Effect.void
        ),
        Stream.runCollect
      )
      assert.lengthOf(parts, 4)
    })
  )

  it.live("aborts the request when the reader is interrupted", () =>
    Effect.gen(function* () {
      const began = yield* Deferred.make<void>()
      const { aborted, socketPath } = yield* ModelServer.onSocket((response) => {
        response.writeHead(200, { "content-type": "text/event-stream" }).write(events(saying("one")))
      })
      const fiber = yield* ask({ socketPath }).pipe(
        Stream.runForEach(() => Deferred.succeed(began, undefined)),
        Effect.forkChild
      )
      yield* Deferred.await(began)
      yield* Fiber.interrupt(fiber)
      yield* Await.until(
        "the request is aborted",
        Effect.sync(() => aborted() === 1)
      )
    })
  )

  it.live("aborts the request before an answer has started", () =>
    Effect.gen(function* () {
      const asked = Promise.withResolvers<void>()
      const { aborted, socketPath } = yield* ModelServer.onSocket(() => {
        asked.resolve()
      })
      const fiber = yield* Effect.forkChild(Stream.runDrain(ask({ socketPath })))
      yield* Effect.promise(() => asked.promise)
      yield* Fiber.interrupt(fiber)
      yield* Await.until(
        "the request is aborted",
        Effect.sync(() => aborted() === 1)
      )
    })
  )
})

describe("AiSdkChatModel failures", () => {
  const error = (message: string, more: object = {}) => ({
    error: { message, type: null, code: null, ...more }
  })

  it.live.each([
    {
      name: "maps status 429 to rate_limit",
      status: 429,
      body: error("slow down"),
      headers: { "retry-after": "7" },
      code: "rate_limit",
      retryAfterSeconds: 7
    },
    {
      name: "reads retry-after-ms",
      status: 429,
      body: error("slow"),
      headers: { "retry-after-ms": "1500" },
      code: "rate_limit",
      retryAfterSeconds: 1.5
    },
    {
      name: "maps the type insufficient_quota",
      status: 429,
      body: error("spent", { type: "insufficient_quota" }),
      headers: { "retry-after": "7" },
      code: "insufficient_quota"
    },
    {
      name: "maps the code insufficient_quota",
      status: 429,
      body: error("spent", { code: "insufficient_quota" }),
      headers: {},
      code: "insufficient_quota"
    },
    {
      name: "maps a final 429 to insufficient_quota",
      status: 429,
      body: error("spent"),
      headers: { "x-should-retry": "false" },
      code: "insufficient_quota"
    },
    { name: "maps status 402", status: 402, body: error("pay"), headers: {}, code: "insufficient_quota" },
    { name: "maps status 401", status: 401, body: error("who?"), headers: {}, code: "unauthorized" },
    { name: "maps status 403", status: 403, body: error("no"), headers: {}, code: "unauthorized" },
    {
      name: "maps exfiltration_suspected to refused",
      status: 403,
      body: error("saw it", { code: "exfiltration_suspected" }),
      headers: {},
      code: "refused"
    },
    {
      name: "maps content_filter to refused",
      status: 400,
      body: error("no", { code: "content_filter" }),
      headers: {},
      code: "refused"
    },
    {
      name: "maps status 400 to invalid_request",
      status: 400,
      body: error("too long", { code: "context_length_exceeded" }),
      headers: {},
      code: "invalid_request"
    },
    { name: "maps status 404", status: 404, body: error("none"), headers: {}, code: "invalid_request" },
    {
      name: "maps upstream_refused to unauthorized",
      status: 502,
      body: error("key", { code: "upstream_refused" }),
      headers: {},
      code: "unauthorized"
    },
    {
      name: "maps upstream_unreachable to unreachable",
      status: 502,
      body: error("away", { code: "upstream_unreachable" }),
      headers: {},
      code: "unreachable"
    },
    {
      name: "maps status 503 to unavailable",
      status: 503,
      body: error("busy"),
      headers: { "retry-after": "1" },
      code: "unavailable",
      retryAfterSeconds: 1
    },
    { name: "maps status 504", status: 504, body: error("late"), headers: {}, code: "timeout" },
    {
      name: "does not follow a redirect",
      status: 302,
      body: "",
      headers: { location: "http://127.0.0.1:1/" },
      code: "invalid_answer"
    }
  ] as const)("$name", ({ body, code, headers, status, ...more }) =>
    Effect.gen(function* () {
      const failure = yield* failureOf(refuses(status, body, headers))
      assert.strictEqual(failure.code, code)
      assert.strictEqual(failure.status, status)
      assert.strictEqual(
        failure.retryAfterSeconds,
        "retryAfterSeconds" in more ? more.retryAfterSeconds : undefined
      )
      if (typeof body === "object") assert.include(failure.message, body.error.message)
    })
  )

  it.live("converts a retry-after date to seconds from now", () =>
    Effect.gen(function* () {
      const at = new Date(Date.now() + 60_000).toUTCString()
      const failure = yield* failureOf(refuses(429, error("slow"), { "retry-after": at }))
      assert.isAtLeast(failure.retryAfterSeconds ?? 0, 50)
      assert.isAtMost(failure.retryAfterSeconds ?? 0, 61)
    })
  )

  it.live("reports a long error page by its status", () =>
    Effect.gen(function* () {
      const failure = yield* failureOf(refuses(500, "<html>\u001B[31m".repeat(100_000)))
      assert.strictEqual(failure.code, "unavailable")
      assert.notInclude(failure.message, "\u001B")
      assert.isAtMost(failure.message.length, 1000)
    })
  )

  it.live("maps an error that arrives in the stream", () =>
    Effect.gen(function* () {
      const failure = yield* failureOf(
        streams(saying("Half"), { error: { message: "overloaded", type: "server_error", code: null } })
      )
      assert.deepInclude(failure, { code: "unavailable", detail: "overloaded" })
    })
  )

  it.live("reports a missing socket as unreachable", () =>
    Effect.gen(function* () {
      const at = { socketPath: "/nonexistent/llm.sock" }
      const failure = yield* Effect.flip(Stream.runDrain(ask(at)))
      assert.strictEqual(failure.code, "unreachable")
      assert.match(failure.message, /ENOENT/u)
    })
  )

  it.live("reports a truncated answer as unreachable", () =>
    Effect.gen(function* () {
      const failure = yield* failureOf((response) => {
        response
          .writeHead(200, { "content-type": "text/event-stream" })
          .write(events(saying("Half")), () => response.destroy())
      })
      assert.strictEqual(failure.code, "unreachable")
    })
  )

  it.live("reports an answer without a finish as invalid_answer", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* failureOf(streams(saying("Half")))).code, "invalid_answer")
      assert.strictEqual((yield* failureOf(streams(done))).code, "invalid_answer")
    })
  )

  it.live("reports a malformed body as invalid_answer", () =>
    Effect.gen(function* () {
      for (const body of [
        "",
        "\0\u0001\xFF".repeat(1000),
        "<html>It works</html>",
        'data: {"a"\n\n',
        "data: [1]\n\n"
      ]) {
        const failure = yield* failureOf((response) => {
          response.writeHead(200, { "content-type": "text/event-stream" }).end(body)
        })
        assert.strictEqual(failure.code, "invalid_answer", body)
      }
    })
  )

  it.live("refuses an oversized line or body", () =>
    Effect.gen(function* () {
      const endless: ModelServer.Answer = (response) => {
        response.writeHead(200, { "content-type": "text/event-stream" })
        const more = () => {
          while (!response.destroyed && response.write("x".repeat(10_000)));
        }
        response.on("drain", more)
        more()
      }
      const endlessly = yield* failureOf(endless, { lineBytesMax: 100_000 })
      assert.deepInclude(endlessly, {
        code: "answer_too_large",
        detail: "a line of the answer exceeds 100000 bytes"
      })
      const talkative = streams(
        ...Array.from({ length: 100 }, () => saying("x".repeat(1000))),
        finish("stop")
      )
      assert.strictEqual((yield* failureOf(talkative, { bodyBytesMax: 50_000 })).code, "answer_too_large")
      assert.isTrue(Result.isSuccess((yield* heardFrom(talkative, { lineBytesMax: 50_000 })).parts))
    })
  )

  it.live("reports an invalid status as invalid_answer", () =>
    Effect.gen(function* () {
      const failure = yield* failureOf((response) => {
        response.socket?.end("HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n")
      })
      assert.strictEqual(failure.code, "invalid_answer")
    })
  )

  it.live("reports a response that is not HTTP as unreachable", () =>
    Effect.gen(function* () {
      const failure = yield* failureOf((response) => {
        response.socket?.end("SSH-2.0-OpenSSH\r\n")
      })
      assert.strictEqual(failure.code, "unreachable")
    })
  )
})
