/** Calls whose agent has gone: how far their answers are read, what they are charged, and what they still occupy. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as CallDrains from "../src/internal/gateway/CallDrains.ts"
import * as Gateway from "./GatewaySocket.ts"
import { make, until } from "./HeldUpstream.ts"

const event = (body: object | string): string => {
  const type = typeof body === "object" && "type" in body ? `event: ${String(body.type)}\n` : ""
  return `${type}data: ${typeof body === "string" ? body : JSON.stringify(body)}\n\n`
}

const streamed = { "content-type": "text/event-stream" }
const whole = { "content-type": "application/json" }
const word = event({ choices: [{ index: 0, delta: { content: "word" }, finish_reason: null }] })
const bill = { prompt_tokens: 90, completion_tokens: 40, cost: 0.25 }
const lastWords = event({ choices: [], usage: bill }) + event("[DONE]")
const given = { inputTokens: 90, outputTokens: 40, costUsd: 0.25 }
const own = { input_tokens: 90, output_tokens: 40, cost: 0.25 }
const messages = (over: object) =>
  Gateway.http(
    { max_tokens: 50, messages: [{ role: "user", content: "hi" }], ...over },
    { path: "/v1/messages" }
  )

interface Way {
  readonly name: string
  readonly request: Buffer
  readonly headers: Readonly<Record<string, string>>
  /** Written before the agent leaves; absent if the answer has not begun by then. */
  readonly before?: string
  readonly after: string
}

const ways: ReadonlyArray<Way> = [
  {
    name: "chat completions, streamed",
    request: Gateway.http(Gateway.chat({ stream: true, max_tokens: 50 })),
    headers: streamed,
    before: word,
    after: word + lastWords
  },
  {
    name: "chat completions, whole",
    request: Gateway.http(Gateway.chat({ max_tokens: 50 })),
    headers: whole,
    after: JSON.stringify({ choices: [], usage: bill })
  },
  {
    name: "responses, streamed",
    request: Gateway.http({ input: "hi", stream: true, max_output_tokens: 50 }, { path: "/v1/responses" }),
    headers: streamed,
    before: event({ type: "response.output_text.delta", delta: "word" }),
    after: event({ type: "response.completed", response: { usage: own } })
  },
  {
    name: "responses, whole",
    request: Gateway.http({ input: "hi", max_output_tokens: 50 }, { path: "/v1/responses" }),
    headers: whole,
    before: '{"output":[],',
    after: `"usage":${JSON.stringify(own)}}`
  },
  {
    name: "messages, streamed",
    request: messages({ stream: true }),
    headers: streamed,
    before: event({ type: "message_start", message: { usage: { input_tokens: 90, output_tokens: 1 } } }),
    after: event({ type: "message_delta", usage: own }) + event({ type: "message_stop" })
  },
  {
    name: "messages, whole",
    request: messages({}),
    headers: whole,
    after: JSON.stringify({ content: [], usage: own })
  }
]

describe("a call whose agent has gone", () => {
  it.live.each(ways)("$name: is read to its end, and has the figures of the upstream", (way) =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const call = yield* gateway.opened(way.request)
      if (way.before !== undefined) {
        call.response.writeHead(200, way.headers).write(way.before)
        yield* until(
          Effect.sync(() => call.told.text),
          (text) => text.includes("\r\n\r\n") && text.length > 200
        )
      }
      call.socket.destroy()
      yield* gateway.send(Gateway.http("", { method: "GET", path: "/health" }))
      assert.deepStrictEqual(yield* gateway.calls, [], "the call is still open")
      assert.isFalse(call.isCut())
      if (way.before === undefined) call.response.writeHead(200, way.headers)
      call.response.end(way.after)
      const [listed] = yield* gateway.ended(1)
      assert.deepInclude(listed, { outcome: "client_aborted", completed: false })
      assert.deepStrictEqual(listed?.usage, given)
      const { ends, traffic } = yield* gateway.finished
      assert.deepInclude(traffic.usage, { ...given, calls: 1, callsWithoutUsage: 0 })
      assert.deepInclude(ends[0], {
        outcome: "client_aborted",
        status: way.before === undefined ? 499 : 200,
        usage: given,
        responseBytes: (way.before ?? "").length + way.after.length
      })
      assert.strictEqual(ends[0]!["drained"].bytes, way.after.length)
      assert.isUndefined(ends[0]!["usageMissing"])
    })
  )

  it.live("is read to its end although its agent had stopped reading", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const call = yield* gateway.opened(Gateway.http(Gateway.chat({ stream: true })))
      call.socket.pause()
      const { response, socket } = call
      // More than fits into the buffers between the gateway and the agent, so the gateway stops reading.
      const text = word.repeat(70_000)
      response.writeHead(200, streamed).write(text)
      yield* until(
        Effect.sync(() => socket.readableLength),
        (length) => length >= socket.readableHighWaterMark
      )
      const health = gateway.send(Gateway.http("", { method: "GET", path: "/health" }))
      yield* Effect.replicateEffect(health, 3)
      socket.destroy()
      response.end(lastWords)
      const [listed] = yield* gateway.ended(1)
      assert.deepStrictEqual(listed?.usage, given)
      const { ends } = yield* gateway.finished
      assert.strictEqual(ends[0]!["responseBytes"], text.length + lastWords.length)
      // Most of it was read only after the agent had gone.
      assert.isAbove(ends[0]!["drained"].bytes, text.length / 2)
    })
  )

  const limits: ReadonlyArray<readonly [string, Gateway.Options, more: number, RegExp]> = [
    ["bytes", { drainBytesMax: 20_000 }, 1000, /not complete 20000 bytes after/u],
    ["seconds", { drainSecondsMax: 0.05 }, 1, /not complete 0\.05 s after/u],
    ["no bytes at all", { drainBytesMax: 0 }, 0, /no answer of it is read without one/u],
    ["no time at all", { drainSecondsMax: 0 }, 0, /no answer of it is read without one/u]
  ]
  it.live.each(limits)("is cut off after %s, and is charged what was reserved", ([, options, more, says]) =>
    Effect.gen(function* () {
      const gateway = yield* make(options)
      const call = yield* gateway.opened(Gateway.http(Gateway.chat({ stream: true, max_tokens: 50 })))
      call.response.writeHead(200, streamed).write(word)
      yield* until(
        Effect.sync(() => call.told.text),
        (text) => text.includes("word")
      )
      call.socket.destroy()
      for (let index = 0; index < more; index++) call.response.write(word)
      const [listed] = yield* gateway.ended(1)
      assert.strictEqual(listed?.outcome, "client_aborted")
      assert.deepInclude(listed?.usage, { outputTokens: 50, estimated: true })
      yield* until(Effect.sync(call.isCut), (isCut) => isCut)
      const { ends } = yield* gateway.finished
      assert.match(ends[0]!["detail"], says)
      assert.isTrue(ends[0]!["usageMissing"])
    })
  )

  it.live("is charged nothing if the upstream then refuses it, or cannot be reached", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const refused = yield* gateway.abandoned(Gateway.http(Gateway.chat()))
      refused.response.writeHead(500, whole).end('{"error":{"message":"overloaded"}}')
      yield* gateway.ended(1)
      const limited = yield* gateway.abandoned(Gateway.http(Gateway.chat()))
      limited.response.writeHead(429, whole).end("{}")
      yield* gateway.ended(2)
      const broken = yield* gateway.abandoned(Gateway.http(Gateway.chat({ max_tokens: 7 })))
      broken.response.socket?.resetAndDestroy()
      yield* gateway.ended(3)
      const { ends, traffic } = yield* gateway.finished
      assert.deepStrictEqual(
        ends.map(({ outcome, status }) => [outcome, status]),
        [
          ["client_aborted", 499],
          ["client_aborted", 499],
          ["upstream_cut", 499]
        ]
      )
      assert.include(ends[0]!["detail"], "overloaded")
      // Only of the last call it is not known whether the model ran.
      assert.deepInclude(traffic.usage, { outputTokens: 7, estimatedOutputTokens: 7, callsWithoutUsage: 1 })
    })
  )

  it.live("is cut off at once if it only counts tokens, which costs nothing", () =>
    Effect.gen(function* () {
      const gateway = yield* make()
      const call = yield* gateway.abandoned(
        Gateway.http({ messages: [] }, { path: "/v1/messages/count_tokens" })
      )
      yield* until(Effect.sync(call.isCut), (isCut) => isCut)
      const { ends, traffic } = yield* gateway.finished
      assert.match(ends[0]!["detail"], /no answer of it is read without one/u)
      assert.deepInclude(traffic.usage, { calls: 1, inputTokens: 0, callsWithoutUsage: 0 })
    })
  )
})

describe("an agent that opens calls and leaves", () => {
  it.live("has no more calls at once than one that stays", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ llm: { budget: { concurrentCallsMax: 3, onExhausted: "refuse" } } })
      const open = yield* Effect.replicateEffect(gateway.abandoned(Gateway.http(Gateway.chat())), 3)
      const refused = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(refused.status, 429, refused.text)
      assert.strictEqual(refused.headers.get("retry-after"), "1")
      assert.lengthOf(gateway.asked, 3)
      open[1]!.response.writeHead(200, whole).end(JSON.stringify({ usage: bill }))
      yield* gateway.ended(2)
      const next = yield* gateway.abandoned(Gateway.http(Gateway.chat()))
      assert.lengthOf(gateway.asked, 4)
      for (const { response } of [open[0]!, open[2]!, next])
        response.writeHead(200, whole).end(JSON.stringify({ usage: bill }))
      const { traffic } = yield* gateway.finished
      assert.deepInclude(traffic.usage, { calls: 4, inputTokens: 360, callsWithoutUsage: 0 })
    })
  )

  it.live("keeps what it reserved occupied, and gets back what was not used when it is known", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ llm: { budget: { outputTokensMax: 100, onExhausted: "refuse" } } })
      const call = yield* gateway.abandoned(Gateway.http(Gateway.chat({ max_tokens: 100 })))
      const refused = yield* gateway.send(Gateway.http(Gateway.chat({ max_tokens: 100 })))
      assert.strictEqual(refused.status, 429)
      assert.isFalse(refused.headers.has("x-should-retry"), "it may try again")
      call.response.writeHead(200, whole).end(JSON.stringify({ usage: bill }))
      yield* gateway.ended(2)
      const next = yield* gateway.abandoned(Gateway.http(Gateway.chat({ max_tokens: 100 })))
      assert.strictEqual(next.body["max_tokens"] ?? next.body["max_completion_tokens"], 60)
      next.response.writeHead(200, whole).end(JSON.stringify({ usage: { ...bill, completion_tokens: 60 } }))
      yield* gateway.ended(3)
      const last = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(last.headers.get("x-should-retry"), "false", last.text)
      const { traffic } = yield* gateway.finished
      assert.deepInclude(traffic.usage, { outputTokens: 100, callsWithoutUsage: 0 })
    })
  )

  it.live("holds the memory of its requests until their answers have ended", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ heldBytesMax: 1_000_000 })
      const large = Gateway.http(Gateway.chat({ messages: [{ role: "user", content: "x".repeat(600_000) }] }))
      const call = yield* gateway.abandoned(large)
      assert.strictEqual((yield* gateway.send(large)).status, 503)
      call.response.writeHead(200, whole).end(JSON.stringify({ usage: bill }))
      yield* gateway.ended(2)
      yield* gateway.abandoned(large)
      assert.lengthOf(gateway.asked, 2)
    })
  )
})

describe("the end of a run", () => {
  it.live("waits for the answers of open calls, and has their figures", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ endDrainSecondsMax: 20 })
      const left = yield* gateway.abandoned(Gateway.http(Gateway.chat()))
      const open = yield* gateway.opened(Gateway.http(Gateway.chat({ stream: true })))
      open.response.writeHead(200, streamed).write(word)
      const finishing = yield* Effect.forkChild(gateway.finished, { startImmediately: true })
      yield* until(
        Effect.sync(() => open.told.isClosed),
        (isClosed) => isClosed
      )
      left.response.writeHead(200, whole).end(JSON.stringify({ usage: bill }))
      open.response.end(lastWords)
      const { ends, traffic } = yield* Fiber.join(finishing)
      assert.sameMembers(
        ends.map(({ outcome }) => outcome),
        ["client_aborted", "run_ended"]
      )
      assert.deepInclude(traffic.usage, {
        calls: 2,
        inputTokens: 180,
        outputTokens: 80,
        costUsd: 0.5,
        callsWithoutUsage: 0
      })
    })
  )

  it.live("does not wait for longer than its limit, and charges what was reserved", () =>
    Effect.gen(function* () {
      const gateway = yield* make({ endDrainSecondsMax: 0.05, drainSecondsMax: 1e6 })
      yield* gateway.abandoned(Gateway.http(Gateway.chat({ max_tokens: 5 })))
      yield* gateway.opened(Gateway.http(Gateway.chat({ max_tokens: 6 })))
      const { ends, traffic } = yield* gateway.finished
      assert.sameMembers(
        ends.map(({ outcome }) => outcome),
        ["client_aborted", "run_ended"]
      )
      for (const { detail } of ends) assert.match(detail, /not complete 0\.05 s after the end of its run/u)
      assert.deepInclude(traffic.usage, { outputTokens: 11, estimatedOutputTokens: 11 })
      for (const { isCut } of gateway.asked) yield* until(Effect.sync(isCut), (cut) => cut)
    })
  )
})

describe("CallDrains", () => {
  const limits = { drainBytesMax: 100, drainSecondsMax: 1000, endDrainSecondsMax: 1000 }
  const opened = (drains: CallDrains.CallDrains, reads = true) => {
    const cuts: Array<string | undefined> = []
    const drain = drains.open(() => cuts.push(drain.drained()?.cutBy), { reads })
    return { ...drain, cuts }
  }

  it("counts only what is read after the agent has gone", () => {
    const { cuts, drained, left, read } = opened(CallDrains.make(limits))
    read(1e9)
    assert.isUndefined(drained())
    left()
    read(100)
    assert.deepInclude(drained(), { reason: "client_aborted", bytes: 100, cutBy: undefined })
    assert.deepStrictEqual(cuts, [])
    read(1)
    read(1)
    left()
    assert.lengthOf(cuts, 1)
    assert.match(cuts[0]!, /100 bytes/u)
  })

  it("cuts nothing that has ended", () => {
    const drains = CallDrains.make({ ...limits, drainSecondsMax: 0 })
    const { cuts, end, left, read } = opened(drains)
    end()
    left()
    read(1000)
    assert.deepStrictEqual(cuts, [])
  })

  it.live("finishes at once without open calls, and as soon as the last has ended", () =>
    Effect.gen(function* () {
      const drains = CallDrains.make(limits)
      yield* drains.finish(() => undefined)
      const calls = [opened(drains), opened(drains)]
      const finishing = yield* Effect.forkChild(
        drains.finish(() => {
          for (const { left } of calls) left()
        }),
        { startImmediately: true }
      )
      for (const { drained, end } of calls) {
        assert.strictEqual(drained()?.reason, "run_ended")
        assert.isUndefined(finishing.pollUnsafe())
        end()
      }
      yield* Fiber.join(finishing)
      for (const { cuts } of calls) assert.deepStrictEqual(cuts, [])
    })
  )
})
