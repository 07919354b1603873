/**
 * A call that ends early costs no less than its whole answer. The tests cut off every kind of answer at every byte, and
 * let an agent hang up on the gateway's own socket.
 */
import { assert, describe, it } from "@effect/vitest"
import type { LlmOutcome } from "@cogni/sandbox-core/RunFigures"
import { Effect } from "effect"
import * as net from "node:net"
import * as Budget from "../src/internal/policy/Budget.ts"
import * as ChargeRule from "../src/internal/policy/ChargeRule.ts"
import * as ScriptedModelApi from "../src/ScriptedModelApi.ts"
import type * as Script from "../src/internal/scripted/Script.ts"
import type { Api } from "../src/internal/policy/RoutePolicy.ts"
import * as Usage from "../src/internal/policy/Usage.ts"
import { passed, policyOf } from "./Bodies.ts"
import * as Gateway from "./GatewaySocket.ts"

const events = (...bodies: ReadonlyArray<object | string>) =>
  bodies
    .map((body) => {
      const type = typeof body === "object" && "type" in body ? `event: ${String(body.type)}\n` : ""
      return `${type}data: ${typeof body === "string" ? body : JSON.stringify(body)}\n\n`
    })
    .join("")

const word = { choices: [{ index: 0, delta: { content: "word" }, finish_reason: null }], usage: null }
const openAi = { prompt_tokens: 90, completion_tokens: 40 }
const responses = { input_tokens: 90, output_tokens: 40 }

/** Answers with 90 input and 40 output tokens, as each API reports them. The call reserves 90, and its cap is 50. */
const answers: ReadonlyArray<readonly [string, Api, string, string]> = [
  [
    "chat_completions, streamed",
    "chat_completions",
    "text/event-stream",
    events(word, word, { choices: [], usage: openAi }, "[DONE]")
  ],
  [
    "chat_completions, figures in every chunk",
    "chat_completions",
    "text/event-stream",
    events(
      { ...word, usage: { prompt_tokens: 90, completion_tokens: 1 } },
      { ...word, usage: { prompt_tokens: 90, completion_tokens: 2 } },
      { choices: [{ finish_reason: "stop" }], usage: openAi },
      "[DONE]"
    )
  ],
  [
    "chat_completions, whole",
    "chat_completions",
    "application/json",
    JSON.stringify({ choices: [{ message: { content: '"usage":{"completion_tokens":0}' } }], usage: openAi })
  ],
  [
    "messages, streamed",
    "messages",
    "text/event-stream",
    events(
      { type: "message_start", message: { usage: { input_tokens: 90, output_tokens: 1 } } },
      { type: "content_block_delta", delta: { text: "word" } },
      { type: "message_delta", usage: { output_tokens: 40 } },
      { type: "message_stop" }
    )
  ],
  [
    "messages, whole",
    "messages",
    "application/json",
    JSON.stringify({ content: [{ type: "text", text: "word" }], usage: responses })
  ],
  [
    "responses, streamed",
    "responses",
    "text/event-stream",
    events(
      { type: "response.created", response: { usage: null } },
      { type: "response.output_text.delta", delta: "word" },
      { type: "response.completed", response: { usage: responses } }
    )
  ],
  [
    "responses, whole",
    "responses",
    "application/json",
    JSON.stringify({ output: [{ type: "reasoning", summary: [] }], usage: responses })
  ]
]

/** Charges a call with the answer `bytes` and a cap of 50 output tokens, and returns the totals. */
const chargeOf = (api: Api, contentType: string, bytes: Buffer, outcome: LlmOutcome) => {
  const ledger = Budget.make(undefined, {
    prices: { m: { input: 1_000_000, output: 2_000_000, cacheRead: 100_000 } },
    defaults: { concurrentCallsMax: 1, requestsPerSecondMax: 1 }
  })
  const ticket = ledger.begin({
    model: "m",
    requestBytes: 270,
    inputTokensMax: 90,
    outputTokensMax: 50
  }) as Budget.Ticket
  const reader = Usage.makeReader({ api, contentType, withholdUsage: false })
  reader.push(bytes)
  const { usage } = reader.end()
  ledger.end(ticket, {
    responseBytes: bytes.byteLength,
    mayHaveRun: ChargeRule.mayHaveRun({ sent: true, outcome, upstreamStatus: 200 }),
    ...(usage === undefined ? {} : { usage })
  })
  return ledger.total()
}

describe("a call that ends early", () => {
  it.each(answers)(
    "%s: is charged no less than the whole answer, wherever it is cut off",
    (_, api, contentType, text) => {
      const bytes = Buffer.from(text)
      const whole = chargeOf(api, contentType, bytes, "completed")
      assert.deepInclude(whole, { inputTokens: 90, outputTokens: 40, costUsd: 170, callsWithoutUsage: 0 })
      let estimated = 0
      for (const outcome of ["client_aborted", "upstream_cut", "run_ended"] as const)
        for (let cut = 0; cut < bytes.byteLength; cut++) {
          const early = chargeOf(api, contentType, bytes.subarray(0, cut), outcome)
          const where = `${outcome} at byte ${cut}`
          assert.isAtLeast(early.inputTokens, 90, where)
          assert.isAtLeast(early.outputTokens, 40, where)
          assert.isAtLeast(early.costUsd ?? 0, 170, where)
          assert.include([40, 50], early.outputTokens, where)
          if (early.callsWithoutUsage > 0) {
            estimated += 1
            assert.strictEqual(early.estimatedOutputTokens, 50, where)
          }
        }
      assert.isAbove(estimated, bytes.byteLength)
    }
  )

  const rows: ReadonlyArray<readonly [boolean, LlmOutcome, number | undefined, boolean]> = [
    [false, "client_aborted", undefined, false],
    [false, "run_ended", undefined, false],
    [true, "upstream_unreachable", undefined, false],
    [true, "upstream_timeout", undefined, false],
    [true, "upstream_cut", undefined, true],
    [true, "client_aborted", undefined, true],
    [true, "run_ended", undefined, true],
    [true, "completed", 400, false],
    [true, "client_aborted", 429, false],
    [true, "completed", 500, false],
    [true, "upstream_cut", 503, false],
    [true, "completed", 302, false],
    [true, "completed", 408, true],
    [true, "completed", 504, true],
    [true, "client_aborted", 524, true],
    [true, "completed", 200, true],
    [true, "upstream_cut", 200, true],
    [true, "run_ended", 201, true]
  ]
  it.each(rows)("sent %s, %s, status %s: may have run is %s", (sent, outcome, upstreamStatus, expected) => {
    assert.strictEqual(ChargeRule.mayHaveRun({ sent, outcome, upstreamStatus }), expected)
  })
})

describe("a prompt that is cached for an hour", () => {
  const price = { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 }
  const split = { ephemeral_5m_input_tokens: 10_000, ephemeral_1h_input_tokens: 90_000 }
  const ofAnthropic = {
    input_tokens: 5,
    cache_creation_input_tokens: 100_000,
    cache_read_input_tokens: 0,
    output_tokens: 1
  }
  const ofLiteLlm = { prompt_tokens: 100_005, completion_tokens: 1 }
  const details = { cache_creation_tokens: 100_000 }

  /** Returns the cost of an answer to a call that did, or did not, request such a cache. */
  const costOf = (
    api: Api,
    contentType: string,
    text: string,
    cachesForHour: boolean,
    prices: object = price
  ) => {
    const ledger = Budget.make(undefined, {
      prices: { m: { ...price, ...prices } },
      defaults: { concurrentCallsMax: 1, requestsPerSecondMax: 1 }
    })
    const ticket = ledger.begin({
      model: "m",
      requestBytes: 400_000,
      inputTokensMax: 400_000,
      outputTokensMax: 1,
      cachesForHour
    }) as Budget.Ticket
    const reader = Usage.makeReader({ api, contentType, withholdUsage: false })
    reader.push(Buffer.from(text))
    const usage = ledger.end(ticket, { responseBytes: 1, mayHaveRun: true, usage: reader.end().usage })
    return { reserved: ticket.reserved.costUsd, costUsd: ledger.total().costUsd!, usage: usage! }
  }
  const costs = (five: number, hour: number, hourPrice = 6) =>
    (5 * 3 + five * 3.75 + hour * hourPrice + 15) / 1e6

  const told: ReadonlyArray<readonly [string, Api, string, string]> = [
    [
      "messages, whole",
      "messages",
      "application/json",
      JSON.stringify({ content: [], usage: { ...ofAnthropic, cache_creation: split } })
    ],
    [
      "messages, streamed",
      "messages",
      "text/event-stream",
      events(
        { type: "message_start", message: { usage: { ...ofAnthropic, cache_creation: split } } },
        { type: "message_delta", usage: ofAnthropic },
        { type: "message_stop" }
      )
    ],
    [
      "chat_completions of LiteLLM",
      "chat_completions",
      "application/json",
      JSON.stringify({
        choices: [],
        usage: { ...ofLiteLlm, prompt_tokens_details: { ...details, cache_creation_token_details: split } }
      })
    ]
  ]
  it.each(told)("%s: has the 1-hour price, by default twice that of input", (_, api, contentType, text) => {
    for (const asked of [true, false]) {
      const { costUsd, reserved, usage } = costOf(api, contentType, text, asked)
      assert.closeTo(costUsd, costs(10_000, 90_000), 1e-9)
      assert.deepInclude(usage, { cacheWriteTokens: 100_000, cacheWrite1hTokens: 90_000 })
      assert.closeTo(reserved, (400_000 * (asked ? 6 : 3.75) + 15) / 1e6, 1e-9)
    }
    const { costUsd } = costOf(api, contentType, text, true, { cacheWrite1h: 7 })
    assert.closeTo(costUsd, costs(10_000, 90_000, 7), 1e-9)
  })

  it("has the price of the requested lifetime if the upstream does not report one", () => {
    const text = JSON.stringify({ choices: [], usage: { ...ofLiteLlm, prompt_tokens_details: details } })
    const cost = (asked: boolean) => costOf("chat_completions", "application/json", text, asked).costUsd
    assert.closeTo(cost(true), costs(0, 100_000), 1e-9)
    assert.closeTo(cost(false), costs(100_000, 0), 1e-9)
  })

  it("is recognized by the body that is sent", () => {
    const cached = (ttl: string) => ({
      messages: [
        {
          role: "user",
          content: [{ type: "text", text: '"ttl":"1h"', cache_control: { type: "ephemeral", ttl } }]
        }
      ]
    })
    for (const api of ["messages", "chat_completions"] as const) {
      assert.isTrue(passed(cached("1h"), policyOf(api)).cachesForHour)
      assert.isFalse(passed(cached("5m"), policyOf(api)).cachesForHour)
    }
  })
})

/**
 * Creates a gateway with an upstream that never answers, and records the bodies that it receives. By default, the
 * gateway reads no answer without its agent.
 */
const beforeSilence = Effect.fnUntraced(function* (options: Gateway.Options = {}) {
  const bodies: Array<Script.Body> = []
  const { url } = yield* ScriptedModelApi.acquire({
    script: ({ body }) => {
      bodies.push(body)
      return { _tag: "Hang" }
    }
  })
  const gateway = yield* Gateway.make({ drainSecondsMax: 0, ...options, url })
  /** Sends a request and hangs up once the upstream has it, or the gateway has answered. */
  const hangUp = Effect.fnUntraced(function* (request: Buffer, isLeftOpen = false) {
    const before = bodies.length
    const answer: Array<Buffer> = []
    const socket = net.connect({ path: gateway.socketPath })
    socket.on("error", () => undefined)
    socket.on("data", (data: Buffer) => answer.push(data))
    socket.write(request)
    yield* Effect.suspend(() => Effect.succeed(bodies.length > before || answer.length > 0)).pipe(
      Effect.filterOrFail((arrived) => arrived),
      Effect.eventually
    )
    if (!isLeftOpen) socket.destroy()
    return Buffer.concat(answer).toString("latin1")
  })
  return { ...gateway, bodies, hangUp }
})

/** Published maxima: an image of 2048 × 768 pixels for gpt-4o-mini, and the largest input of Gemini. */
const highest = { image: 2833 + 8 * 5667, window: 2_097_152 }

describe("an agent that hangs up", () => {
  const capNames = ["max_completion_tokens", "max_output_tokens", "max_tokens"] as const
  const capOf = (sent: Record<string, unknown>): number | undefined => {
    const name = capNames.find((cap) => sent[cap] !== undefined)
    return name === undefined ? undefined : Number(sent[name])
  }

  it.live("is allowed no more output tokens than its budget, however many calls it makes", () =>
    Effect.gen(function* () {
      const gateway = yield* beforeSilence({
        llm: { budget: { outputTokensMax: 4000, onExhausted: "refuse" } }
      })
      let refused = 0
      for (let index = 0; index < 20; index++) {
        const body = Gateway.chat({ stream: index % 2 === 0, max_tokens: 1000 })
        const text = yield* gateway.hangUp(Gateway.http(body))
        if (text.includes("429")) refused += 1
      }
      const allowed = gateway.bodies.reduce((sum, body) => sum + capOf(body)!, 0)
      assert.strictEqual(allowed, 4000)
      assert.strictEqual(refused, 20 - gateway.bodies.length)
      const traffic = yield* gateway.endpoint.finish
      assert.strictEqual(traffic.exhausted?.budget, "output_tokens")
      assert.deepInclude(traffic.usage, { outputTokens: 4000, estimatedOutputTokens: 4000 })
      const [call] = traffic.calls
      assert.deepInclude(call!.usage, { outputTokens: 1000, estimated: true })
      assert.include(yield* gateway.audit, '"outputTokens":1000,"estimated":true')
    })
  )

  const calls: ReadonlyArray<readonly [string, object]> = [
    ["/v1/chat/completions", Gateway.chat()],
    ["/v1/chat/completions", Gateway.chat({ stream: true, reasoning_effort: "high" })],
    ["/v1/responses", { input: "hello" }],
    ["/v1/responses", { input: "hello", stream: true, reasoning: { effort: "high" } }],
    ["/v1/messages", { messages: [{ role: "user", content: "hello" }] }],
    [
      "/v1/messages",
      {
        messages: [{ role: "user", content: "hello" }],
        stream: true,
        thinking: { type: "enabled", budget_tokens: 90_000 }
      }
    ]
  ]
  it.live.each(calls)(
    "%s %j: gets a cap under a budget if it sets none, and is charged the cap",
    ([path, body]) =>
      Effect.gen(function* () {
        for (const [budget, expected] of [
          [{ outputTokensMax: 9000 }, 9000],
          [{ outputTokensMax: 1_000_000 }, Budget.outputTokensDefault],
          [{ costUsdMax: 1 }, Budget.outputTokensDefault]
        ] as const) {
          const gateway = yield* beforeSilence({
            llm: { budget: { ...budget, onExhausted: "refuse" } }
          })
          yield* gateway.hangUp(Gateway.http(body, { path }))
          assert.deepStrictEqual(gateway.bodies.map(capOf), [expected])
          const thinking = gateway.bodies[0]!["thinking"]
          if (thinking !== undefined) assert.deepInclude(thinking, { budget_tokens: expected - 1 })
          const { usage } = yield* gateway.endpoint.finish
          assert.deepInclude(usage, { outputTokens: expected, estimatedOutputTokens: expected })
        }
      })
  )

  const inline = "data:image/png;base64,iVBORw0KGgo="
  const media: ReadonlyArray<readonly [string, object, least: number]> = [
    [
      "/v1/chat/completions",
      { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: inline } }] }] },
      highest.image
    ],
    [
      "/v1/responses",
      { input: [{ type: "message", role: "user", content: [{ type: "input_image", image_url: inline }] }] },
      highest.image
    ],
    [
      "/v1/messages",
      {
        messages: [
          {
            role: "user",
            content: [
              {
                type: "document",
                source: { type: "base64", media_type: "application/pdf", data: "JVBERi0xLjQK" }
              }
            ]
          }
        ]
      },
      highest.window
    ]
  ]
  it.live.each(media)(
    "%s %j: is charged no less than the highest published figure for media",
    ([path, body, least]) =>
      Effect.gen(function* () {
        const budget = { inputTokensMax: 3 * least, onExhausted: "refuse" } as const
        const gateway = yield* beforeSilence({ llm: { budget } })
        for (let index = 0; index < 6; index++)
          yield* gateway.hangUp(Gateway.http({ ...body, max_tokens: 1 }, { path }))
        const { exhausted, usage } = yield* gateway.endpoint.finish
        assert.strictEqual(exhausted?.budget, "input_tokens")
        assert.isAtLeast(usage!.inputTokens, gateway.bodies.length * least)
        assert.isAtMost(gateway.bodies.length, 3)
      })
  )

  it.live("is refused concurrent calls with images that could exceed its budget", () =>
    Effect.gen(function* () {
      const gateway = yield* beforeSilence({
        llm: { budget: { inputTokensMax: 10_000, onExhausted: "refuse" } }
      })
      const request = Gateway.http({ ...media[0]![1], max_tokens: 1 })
      const answers = []
      for (let index = 0; index < 8; index++) answers.push(yield* gateway.hangUp(request, true))
      assert.strictEqual(gateway.bodies.length, 1)
      assert.strictEqual(answers.filter((text) => text.includes("input_tokens_exceeded")).length, 7)
    })
  )

  it.live("gets a cap that the rest of its cost budget pays for", () =>
    Effect.gen(function* () {
      const gateway = yield* beforeSilence({
        prices: { "contract-model": { input: 1, output: 10 } },
        llm: { budget: { costUsdMax: 0.1, onExhausted: "refuse" } }
      })
      for (let index = 0; index < 5; index++)
        yield* gateway.hangUp(Gateway.http(Gateway.chat({ max_tokens: 1_000_000 })))
      assert.deepStrictEqual(gateway.bodies.map(capOf), [10_000])
      const { exhausted, usage } = yield* gateway.endpoint.finish
      assert.strictEqual(exhausted?.budget, "cost_usd")
      assert.isAtLeast(usage!.estimatedCostUsd!, 0.1)
      assert.closeTo(usage!.estimatedCostUsd!, 0.1 + usage!.estimatedInputTokens! / 1e6, 1e-9)
    })
  )

  it.live("is charged nothing for counting tokens", () =>
    Effect.gen(function* () {
      const gateway = yield* beforeSilence({
        llm: { budget: { outputTokensMax: 100, onExhausted: "refuse" } }
      })
      const body = { messages: [{ role: "user", content: "hello" }] }
      for (let index = 0; index < 3; index++)
        yield* gateway.hangUp(Gateway.http(body, { path: "/v1/messages/count_tokens" }))
      const { usage } = yield* gateway.endpoint.finish
      assert.deepInclude(usage, { calls: 3, inputTokens: 0, outputTokens: 0, callsWithoutUsage: 0 })
    })
  )

  it.live("is charged nothing if the upstream cannot be reached or refuses", () =>
    Effect.gen(function* () {
      const refusing = yield* Gateway.make({
        script: [
          { _tag: "Error", status: 429 },
          { _tag: "Error", status: 500 }
        ]
      })
      for (let index = 0; index < 2; index++) yield* refusing.send(Gateway.http(Gateway.chat()))
      assert.deepInclude((yield* refusing.endpoint.finish).usage, {
        calls: 2,
        outputTokens: 0,
        callsWithoutUsage: 0
      })
      const closed = yield* Gateway.make({ url: "http://127.0.0.1:1" })
      yield* closed.send(Gateway.http(Gateway.chat()))
      assert.deepInclude((yield* closed.endpoint.finish).usage, {
        calls: 1,
        outputTokens: 0,
        callsWithoutUsage: 0
      })
    })
  )

  it.live("is charged for an open call when its run ends", () =>
    Effect.gen(function* () {
      const gateway = yield* beforeSilence()
      yield* gateway.hangUp(Gateway.http(Gateway.chat({ max_tokens: 77 })), true)
      const { calls, usage } = yield* gateway.endpoint.finish
      assert.strictEqual(calls[0]!.outcome, "run_ended")
      assert.deepInclude(usage, { outputTokens: 77, estimatedOutputTokens: 77 })
    })
  )
})
