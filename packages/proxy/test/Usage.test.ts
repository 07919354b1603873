import { assert, describe, it, vi } from "@effect/vitest"
import { Schema } from "effect"
import { LlmUsage } from "@cogni/sandbox-core/RunFigures"
import * as Usage from "../src/internal/policy/Usage.ts"

type Api = Usage.UsageReaderOptions["api"]

interface Reading {
  readonly api?: Api
  readonly contentType?: string
  readonly withholdUsage?: boolean
  /** Sizes of the pieces in order, repeated from the first. */
  readonly pieces?: ReadonlyArray<number>
}

const read = (
  answer: string | Uint8Array,
  {
    api = "chat_completions",
    contentType = "text/event-stream",
    pieces = [],
    withholdUsage = false
  }: Reading = {}
) => {
  const bytes = typeof answer === "string" ? Buffer.from(answer) : answer
  const reader = Usage.makeReader({ api, contentType, withholdUsage })
  const out: Array<Uint8Array> = []
  for (let from = 0, index = 0; from < bytes.length; index++) {
    const to = from + (pieces[index % pieces.length] ?? bytes.length)
    // A socket reuses its buffer.
    const piece = Buffer.from(bytes.subarray(from, to))
    out.push(Buffer.from(reader.push(piece)))
    piece.fill(0)
    from = to
  }
  const { rest, ...end } = reader.end()
  return { out: Buffer.concat(rest === undefined ? out : [...out, rest]).toString("latin1"), ...end }
}

const json = (body: unknown, api: Api) => read(JSON.stringify(body), { api, contentType: "application/json" })

const event = (body: unknown, name?: string) =>
  `${name === undefined ? "" : `event: ${name}\n`}data: ${JSON.stringify(body)}\n\n`

const word = event({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  model: "gpt",
  choices: [{ index: 0, delta: { content: 'a "usage" of ü😀' }, finish_reason: null }],
  usage: null
})
const last = event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage: null })
const bill = event({
  choices: [],
  usage: {
    prompt_tokens: 100,
    completion_tokens: 20,
    total_tokens: 120,
    prompt_tokens_details: { cached_tokens: 60 },
    cost: 0.25
  }
})
const done = "data: [DONE]\n\n"
const chat = word + word + last + bill + done
const chatUsage = { inputTokens: 100, outputTokens: 20, cacheReadTokens: 60, costUsd: 0.25 }

const messageStart = (usage: unknown) =>
  event({ type: "message_start", message: { id: "msg_1", content: [], usage } }, "message_start")
const messageDelta = (usage: unknown) =>
  event({ type: "message_delta", delta: { stop_reason: "end_turn" }, usage }, "message_delta")
const text = event(
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "message_stop" } },
  "content_block_delta"
)
const messageStop = event({ type: "message_stop" }, "message_stop")
const begun = {
  input_tokens: 10,
  cache_read_input_tokens: 70,
  cache_creation_input_tokens: 20,
  output_tokens: 1
}

describe("Usage of an answer in one piece", () => {
  it("is read from each API, with cached tokens included in the input", () => {
    assert.deepStrictEqual(
      json(
        {
          id: "1",
          usage: { prompt_tokens: 100, completion_tokens: 20, prompt_tokens_details: { cached_tokens: 60 } }
        },
        "chat_completions"
      ).usage,
      { inputTokens: 100, outputTokens: 20, cacheReadTokens: 60 }
    )
    assert.deepStrictEqual(
      json(
        {
          output: [{ usage: 1 }],
          usage: { input_tokens: 9, input_tokens_details: { cached_tokens: 0 }, output_tokens: 3 }
        },
        "responses"
      ).usage,
      { inputTokens: 9, outputTokens: 3, cacheReadTokens: 0 }
    )
    assert.deepStrictEqual(
      json({ content: [], usage: { ...begun, output_tokens: 5, cost: 0.1 } }, "messages").usage,
      {
        inputTokens: 100,
        outputTokens: 5,
        cacheReadTokens: 70,
        cacheWriteTokens: 20,
        costUsd: 0.1
      }
    )
    assert.deepStrictEqual(
      json({ data: [], usage: { prompt_tokens: 8, total_tokens: 8 } }, "embeddings").usage,
      {
        inputTokens: 8,
        outputTokens: 0
      }
    )
    assert.isUndefined(json({ data: [] }, "embeddings").usage)
    assert.isUndefined(json({ input_tokens: 3, usage: { input_tokens: 3 } }, "count_tokens").usage)
  })

  it("has LiteLLM's figures for the cache if the details have none", () => {
    assert.deepStrictEqual(
      json(
        { usage: { prompt_tokens: 9, cache_read_input_tokens: 4, cache_creation_input_tokens: 3 } },
        "chat_completions"
      ).usage,
      { inputTokens: 9, cacheReadTokens: 4, cacheWriteTokens: 3 }
    )
  })

  it("omits an invalid figure instead of reporting 0", () => {
    for (const lie of [-1, 1.5, "12", null, true, [1], {}, 1e10, 1e300]) {
      const usage = { prompt_tokens: lie, completion_tokens: lie, cost: typeof lie === "number" ? -1 : lie }
      assert.isUndefined(json({ usage }, "chat_completions").usage, JSON.stringify(lie))
      assert.isUndefined(
        json({ usage: { ...usage, input_tokens: lie } }, "messages").usage,
        JSON.stringify(lie)
      )
    }
    for (const usage of [
      undefined,
      null,
      3,
      "x",
      [],
      [{ prompt_tokens: 1 }],
      {},
      { prompt_tokens: undefined }
    ])
      assert.isUndefined(json({ usage }, "chat_completions").usage)
    assert.deepStrictEqual(json({ usage: { prompt_tokens: 0 } }, "chat_completions").usage, {
      inputTokens: 0
    })
  })

  it("has no input figure if only the cache is reported", () => {
    assert.deepStrictEqual(json({ usage: { cache_read_input_tokens: 5 } }, "messages").usage, {
      cacheReadTokens: 5
    })
  })

  it("is the answer's own, and the last one if there are several", () => {
    const tricky = `{"a":{"usage":{"prompt_tokens":1}},"b":"\\"usage\\":{","c":["usage",{"usage":2}],"usage":{"prompt_tokens":3},"usage" : {"prompt_tokens":4,"x":"}\\\\"} ,"d":{}} \n`
    for (const size of [1, 2, 3, 1000]) {
      const { garbage, sawEnd, usage } = read(tricky, { contentType: "application/json", pieces: [size] })
      assert.deepStrictEqual(
        { garbage, sawEnd, usage },
        { garbage: false, sawEnd: true, usage: { inputTokens: 4 } }
      )
    }
  })

  it("ignores nested usage", () => {
    for (const body of [
      { a: { usage: { prompt_tokens: 1 } } },
      { a: [{ usage: { prompt_tokens: 1 } }], b: 1 }
    ])
      assert.deepInclude(json(body, "chat_completions"), { usage: undefined, garbage: false })
  })

  it("reports an answer that is truncated or not JSON", () => {
    const whole = JSON.stringify({ usage: { prompt_tokens: 3 }, x: 1 })
    const of = (answer: string) => {
      const { garbage, sawEnd, usage } = read(answer, { contentType: "application/json" })
      return { garbage, sawEnd, usage }
    }
    assert.deepStrictEqual(of(whole.slice(0, -1)), {
      garbage: false,
      sawEnd: false,
      usage: { inputTokens: 3 }
    })
    assert.deepStrictEqual(of(whole.slice(0, 15)), { garbage: false, sawEnd: false, usage: undefined })
    assert.deepStrictEqual(of("<html>"), { garbage: true, sawEnd: false, usage: undefined })
    assert.deepStrictEqual(of("[1]"), { garbage: true, sawEnd: false, usage: undefined })
    assert.deepStrictEqual(of(`${whole}{"usage":{}}`), {
      garbage: true,
      sawEnd: true,
      usage: { inputTokens: 3 }
    })
    assert.deepStrictEqual(of('{"usage":{"prompt_tokens":x}}'), {
      garbage: true,
      sawEnd: true,
      usage: undefined
    })
    assert.deepStrictEqual(of(""), { garbage: false, sawEnd: false, usage: undefined })
  })

  it("is unknown if it is too long", () => {
    const padded = (bytes: number) =>
      json({ usage: { x: "x".repeat(bytes), prompt_tokens: 1 } }, "chat_completions")
    assert.deepStrictEqual(padded(Usage.usageBytesMax - 100).usage, { inputTokens: 1 })
    const spaces = `{"usage":{"prompt_tokens":1}${" ".repeat(Usage.usageBytesMax)}}`
    assert.isUndefined(read(spaces, { contentType: "application/json" }).usage)
    assert.deepInclude(padded(Usage.usageBytesMax), { usage: undefined, garbage: true, sawEnd: true })
  })

  it.prop(
    "equals the result of a parser, for any split into pieces",
    [Schema.Record(Schema.String, Schema.Json), Schema.Json, Schema.Array(Schema.Int)],
    ([body, usage, sizes]) => {
      const answer = { ...body, usage: { prompt_tokens: 7, completion_tokens: usage, more: usage } }
      const pieces = sizes.map((size) => 1 + (Math.abs(size) % 50))
      for (const space of [undefined, 1]) {
        const found = read(JSON.stringify(answer, undefined, space), {
          contentType: "application/json",
          pieces
        })
        assert.deepStrictEqual(found.usage, {
          inputTokens: 7,
          ...(typeof usage === "number" && Number.isInteger(usage) && usage >= 0 && usage <= Usage.tokensMax
            ? // JSON has no negative zero.
              { outputTokens: Math.abs(usage) }
            : {})
        })
        assert.deepInclude(found, { sawEnd: true, garbage: false })
      }
    }
  )
})

describe("Usage of a stream", () => {
  it("is read from each API", () => {
    const { out, ...rest } = read(chat)
    assert.strictEqual(out, Buffer.from(chat).toString("latin1"))
    assert.deepStrictEqual(rest, { usage: chatUsage, sawEnd: true, events: 5, garbage: false })

    const response = (type: string, usage: unknown) => event({ type, response: { id: "r", usage } }, type)
    const usage = { input_tokens: 8, input_tokens_details: { cached_tokens: 3 }, output_tokens: 2 }
    for (const type of ["response.completed", "response.incomplete", "response.failed"])
      assert.deepInclude(
        read(response("response.created", null) + word + response(type, usage), { api: "responses" }),
        { usage: { inputTokens: 8, outputTokens: 2, cacheReadTokens: 3 }, sawEnd: true, events: 3 }
      )
    assert.deepInclude(read(response("response.failed", null), { api: "responses" }), {
      usage: undefined,
      sawEnd: true
    })

    assert.deepInclude(
      read(messageStart(begun) + text + messageDelta({ output_tokens: 55 }) + messageStop, {
        api: "messages"
      }),
      {
        usage: { inputTokens: 100, outputTokens: 55, cacheReadTokens: 70, cacheWriteTokens: 20 },
        sawEnd: true,
        events: 4,
        garbage: false
      }
    )
  })

  it("never decreases after a report with smaller figures", () => {
    const of = (...usages: ReadonlyArray<unknown>) =>
      read(messageStart(begun) + usages.map(messageDelta).join("") + messageStop, { api: "messages" }).usage
    const input = { inputTokens: 100, cacheReadTokens: 70, cacheWriteTokens: 20 }
    assert.deepStrictEqual(of({ output_tokens: 5, input_tokens: 0 }, { output_tokens: 3 }), {
      ...input,
      outputTokens: 5
    })
    assert.deepStrictEqual(of({ output_tokens: 5, input_tokens: 10 }), { ...input, outputTokens: 5 })
    assert.deepStrictEqual(of({ ...begun, output_tokens: 5 }), { ...input, outputTokens: 5 })
    assert.deepStrictEqual(of({ output_tokens: -5 }, { output_tokens: "9" }), input)
    // LiteLLM begins with zeros and reports all figures at the end.
    assert.deepStrictEqual(
      read(
        messageStart({ input_tokens: 0, output_tokens: 0 }) +
          messageDelta({ input_tokens: 7, output_tokens: 2, cost: 0.5 }) +
          messageStop,
        { api: "messages" }
      ).usage,
      { inputTokens: 7, outputTokens: 2, costUsd: 0.5 }
    )
  })

  it("has the cost of the last event, unless that cost leaves out input", () => {
    const costOf = (...usages: ReadonlyArray<object>) =>
      read(messageStart({ ...begun, cost: 9 }) + usages.map(messageDelta).join("") + messageStop, {
        api: "messages"
      }).usage?.costUsd
    const output = { output_tokens: 50, cost: 0.00075 }
    // Seen of LiteLLM 1.101.6: the provider's last event had no input, so the cost is that of the output.
    assert.isUndefined(costOf(output))
    assert.isUndefined(costOf({ ...output, input_tokens: 10 }))
    assert.strictEqual(costOf({ ...begun, ...output }), 0.00075)
    assert.strictEqual(costOf({ ...begun, ...output, cost: 0.00267 }, output), 0.00267)
    assert.strictEqual(costOf({ ...begun, input_tokens: 11, ...output }), 0.00075)
  })

  it("has OpenRouter's cost and cache figures", () => {
    // From its documentation of usage accounting.
    const usage = {
      completion_tokens: 2,
      completion_tokens_details: { reasoning_tokens: 0 },
      cost: 0.95,
      cost_details: { upstream_inference_cost: 19 },
      prompt_tokens: 194,
      prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: 100, audio_tokens: 0 },
      total_tokens: 196
    }
    const expected = {
      inputTokens: 194,
      outputTokens: 2,
      cacheReadTokens: 0,
      cacheWriteTokens: 100,
      costUsd: 0.95
    }
    assert.deepStrictEqual(read(word + event({ choices: [], usage }) + done).usage, expected)
    assert.deepStrictEqual(json({ choices: [], usage }, "chat_completions").usage, expected)
  })

  it("ignores provisional output and cost if the stream breaks off", () => {
    const messages = (answer: string) => read(answer, { api: "messages" })
    assert.deepInclude(messages(messageStart(begun) + text), {
      usage: { inputTokens: 100, cacheReadTokens: 70, cacheWriteTokens: 20 },
      sawEnd: false
    })
    assert.isUndefined(messages(messageStart({ input_tokens: 0, output_tokens: 0 }) + text).usage)
    assert.deepStrictEqual(
      messages(messageStart(begun) + messageDelta({ output_tokens: 9 })).usage?.outputTokens,
      9
    )

    const running = (reason: string | null) =>
      event({
        choices: [{ delta: { content: "a" }, finish_reason: reason }],
        usage: { prompt_tokens: 5, completion_tokens: 1, cost: 0.1 }
      })
    assert.deepStrictEqual(read(running(null)).usage, { inputTokens: 5 })
    assert.deepStrictEqual(read(running("stop")).usage, { inputTokens: 5, outputTokens: 1, costUsd: 0.1 })
    assert.deepStrictEqual(read(running(null) + last + done).usage, {
      inputTokens: 5,
      outputTokens: 1,
      costUsd: 0.1
    })
    assert.deepStrictEqual(read(word + last + bill).usage, chatUsage)
    assert.isUndefined(read(word + last).usage)
  })

  it("is read with any line ends and any layout of the data", () => {
    const body = '{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
    const usage = { inputTokens: 1, outputTokens: 2 }
    for (const end of ["\n", "\r\n", "\r"]) {
      const lines = (...all: ReadonlyArray<string>) => all.join(end) + end + end
      for (const answer of [
        lines(`data: ${body}`),
        lines(`data:${body}`),
        lines(": hello", "event: x", "id: 1", "retry: 3", `data: ${body}`, "data"),
        lines(
          'data: {"choices":[],',
          'data:"usage":',
          'data:   {"prompt_tokens":1,',
          'data: "completion_tokens":2}}'
        ),
        lines(`\ufeffdata: ${body}`),
        lines("") + lines(`data: ${body}`),
        lines(": ping") + lines(`data: ${body}`)
      ]) {
        for (const size of [1, 2, 3, 7, 1000]) {
          const found = read(answer + lines("data: [DONE]"), { pieces: [size] })
          assert.deepInclude(
            found,
            { usage, events: 2, sawEnd: true, garbage: false },
            JSON.stringify(answer)
          )
          const withheld = read(answer + lines("data: [DONE]"), { pieces: [size], withholdUsage: true })
          assert.notInclude(withheld.out, "prompt_tokens")
          assert.include(withheld.out, "[DONE]")
        }
      }
    }
  })

  it("allows a byte order mark only at the beginning", () => {
    assert.deepInclude(read(`\ufeff${bill}`, { pieces: [1] }), {
      usage: chatUsage,
      events: 1,
      garbage: false
    })
    for (const before of ["\n", "\r\n", word]) {
      const { out, ...rest } = read(`${before}\ufeff${bill}`, { withholdUsage: true })
      assert.strictEqual(out, Buffer.from(`${before}\ufeff${bill}`).toString("latin1"))
      assert.deepInclude(rest, { usage: undefined, garbage: true })
    }
  })

  it("ignores text of the answer that looks like usage or an end", () => {
    const says = (content: string) => event({ choices: [{ delta: { content }, finish_reason: null }] })
    for (const content of [
      bill,
      done,
      '"usage":{"prompt_tokens":3}',
      '{"type":"response.completed"}',
      "[DONE]"
    ]) {
      for (const api of ["chat_completions", "responses", "messages"] as const)
        assert.deepInclude(read(says(content), { api }), { usage: undefined, sawEnd: false, garbage: false })
    }
  })

  it("parses only events that may hold usage", () => {
    const parse = vi.spyOn(JSON, "parse")
    const says = (content: string) => event({ choices: [{ delta: { content } }], usage: null })
    read(
      word +
        says(`[DONE] "usage" ${"and so on ".repeat(9)}`) +
        word.replace('"usage":null', '"usage" : null') +
        last +
        done
    )
    const none = parse.mock.calls.length
    read(word + last + bill + done)
    const one = parse.mock.calls.length
    parse.mockRestore()
    assert.deepStrictEqual([none, one], [0, 1])
  })

  it("passes on an error in the middle of a stream", () => {
    const error = event({ type: "error", error: { type: "overloaded_error" } }, "error")
    const { out, sawEnd, usage } = read(word + error, { withholdUsage: true, pieces: [5] })
    assert.strictEqual(out, Buffer.from(word + error).toString("latin1"))
    assert.deepStrictEqual({ sawEnd, usage }, { sawEnd: false, usage: undefined })
  })

  it("reports a malformed stream", () => {
    assert.deepInclude(read("<html>\n\nhello\n\n"), { garbage: true, events: 0, usage: undefined })
    assert.deepInclude(read('data: {"usage":{"prompt_tokens":1}\n\n'), { garbage: true, usage: undefined })
    assert.deepInclude(read('data: "usage":{\n\ndata: 3 "usage"\n\n'), { garbage: true, usage: undefined })
    assert.deepInclude(read('data: {"usage":{"prompt_tokens":1\ndata:2}}\n\n'), {
      garbage: true,
      usage: undefined
    })
    // A truncated stream is not garbage.
    assert.deepInclude(read(chat.slice(0, chat.indexOf("total_tokens"))), {
      garbage: false,
      usage: undefined
    })
  })
})

describe("Usage and the bytes that are passed on", () => {
  it("passes on every piece at once, as the same object", () => {
    const reader = Usage.makeReader({
      api: "chat_completions",
      contentType: "text/event-stream",
      withholdUsage: false
    })
    for (const byte of Buffer.from(chat)) {
      const piece = Uint8Array.of(byte)
      assert.strictEqual(reader.push(piece), piece)
    }
    assert.isUndefined(reader.end().rest)
  })

  it("passes on whole events at once as the same object if usage is withheld", () => {
    const reader = Usage.makeReader({
      api: "chat_completions",
      contentType: "text/event-stream",
      withholdUsage: true
    })
    for (const events of [word, word + last, done]) {
      const piece = Buffer.from(events)
      assert.strictEqual(reader.push(piece), piece)
    }
  })

  it("withholds exactly the event that has only usage", () => {
    const azure = event({ choices: [], prompt_filter_results: [] })
    const both = event({ choices: [{ delta: {}, finish_reason: "stop" }], usage: { prompt_tokens: 1 } })
    const ping = ": ping\n\n"
    const all = [azure, word, ping, both, bill, done]
    for (const size of [1, 2, 10, 100, 10_000]) {
      const found = read(all.join(""), { withholdUsage: true, pieces: [size] })
      assert.strictEqual(
        found.out,
        Buffer.from(all.filter((one) => one !== bill).join("")).toString("latin1")
      )
      assert.deepStrictEqual(found.usage, chatUsage)
    }
    // At the end of a stream, the event is withheld even without its empty line.
    assert.strictEqual(read(done + bill.trimEnd(), { withholdUsage: true }).out, done)
    // Half of the event is passed on.
    const half = bill.slice(0, 40)
    assert.strictEqual(read(done + half, { withholdUsage: true, pieces: [9] }).out, done + half)
  })

  it("passes on an event that is too long, and reads the next one", () => {
    const long = `data: {"choices":[],"usage":{"prompt_tokens":1},"x":"${"x".repeat(Usage.eventBytesMax)}"}\n\n`
    const fits = `data: {"choices":[],"x":"${"x".repeat(Usage.eventBytesMax - 100)}","usage":{"prompt_tokens":1}}\n\n`
    for (const pieces of [[3 * Usage.eventBytesMax], [65_536], [1000, 1_000_000]]) {
      const found = read(long + bill + done, { withholdUsage: true, pieces })
      assert.strictEqual(found.out.length, long.length + done.length)
      assert.deepInclude(found, { usage: chatUsage, garbage: true, sawEnd: true, events: 3 })
      assert.strictEqual(read(fits, { withholdUsage: true, pieces }).out, "")
    }
    const reader = Usage.makeReader({
      api: "chat_completions",
      contentType: "text/event-stream",
      withholdUsage: true
    })
    assert.strictEqual(reader.push(Buffer.from("data: ")).length, 0)
    assert.strictEqual(reader.push(Buffer.alloc(Usage.eventBytesMax)).length, Usage.eventBytesMax + 6)
    assert.strictEqual(reader.push(Buffer.alloc(10)).length, 10)
  })

  it("reads a line of a gigabyte in bounded memory", () => {
    for (const [contentType, first] of [
      ["text/event-stream", "data: "],
      ["application/json", '{"usage":{"x":"'],
      ["application/json", '{"x":"']
    ] as const) {
      const reader = Usage.makeReader({ api: "chat_completions", contentType, withholdUsage: true })
      reader.push(Buffer.from(first))
      const piece = Buffer.alloc(1024 * 1024, "x")
      const before = process.memoryUsage().rss
      for (let index = 0; index < 1024; index++) reader.push(piece)
      assert.isBelow(process.memoryUsage().rss - before, 64 * 1024 * 1024)
      assert.isUndefined(reader.end().usage)
    }
    const reader = Usage.makeReader({
      api: "messages",
      contentType: "application/json",
      withholdUsage: false
    })
    reader.push(Buffer.from('{"usage":['))
    const before = process.memoryUsage().rss
    for (let index = 0; index < 64; index++) reader.push(Buffer.alloc(1024 * 1024, "1,"))
    assert.isBelow(process.memoryUsage().rss - before, 64 * 1024 * 1024)
  })

  it("does not copy an event for every byte if it arrives byte by byte", () => {
    const long = `data: {"choices":[],"x":"${"x".repeat(Usage.eventBytesMax - 100)}","usage":{"prompt_tokens":1}}\n\n`
    assert.deepStrictEqual(read(long, { withholdUsage: true, pieces: [1] }).usage, { inputTokens: 1 })
  })

  const fragments = [
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "data: ",
    "data:",
    "event: x",
    ": c",
    "ü😀",
    "\ufeff",
    "[DONE]",
    "x"
  ]
  const bodies = [
    '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}',
    '{"choices":[{"finish_reason":null}],"usage":{"prompt_tokens":9,"completion_tokens":3}}',
    '{"choices":[],"usage":null}',
    '{"choices":[],"usage":'
  ]
  const Stream = Schema.Array(
    Schema.Union([
      Schema.Literals(fragments),
      Schema.Literals(bodies.map((body) => `data: ${body}\n\n`)),
      Schema.Literals(bodies.flatMap((body) => [body, `data:${body}\r\n\r\n`, `data: ${body}\r\r`])),
      Schema.String
    ])
  )

  it.prop(
    "passes on everything except usage events, for any split into pieces",
    [Stream, Schema.Array(Schema.Int)],
    ([parts, sizes]) => {
      const answer = Buffer.from(parts.join(""))
      const pieces = sizes.map((size) => 1 + (Math.abs(size) % 9))
      const { out, ...rest } = read(answer)
      assert.strictEqual(out, answer.toString("latin1"))
      assert.deepStrictEqual(read(answer, { pieces }), { out, ...rest })
      const withheld = { out: withoutUsage(answer), ...rest }
      assert.deepStrictEqual(read(answer, { withholdUsage: true }), withheld)
      assert.deepStrictEqual(read(answer, { withholdUsage: true, pieces }), withheld)
      if (rest.usage !== undefined) assert.isTrue(Schema.is(LlmUsage)(rest.usage))
    },
    { arbitrary: { runs: 1000, seed: "usage-cuts" } }
  )

  it.prop(
    "passes on any bytes, and reads only valid usage",
    [
      Schema.Uint8Array,
      Schema.Literals(["chat_completions", "responses", "messages", "count_tokens", "embeddings"]),
      Schema.Json
    ],
    ([bytes, api, figure]) => {
      for (const contentType of ["text/event-stream", "application/json"]) {
        const { out } = read(bytes, { api, contentType, pieces: [3] })
        assert.strictEqual(out, Buffer.from(bytes).toString("latin1"))
      }
      const usage = { prompt_tokens: figure, input_tokens: figure, output_tokens: figure, cost: figure }
      for (const body of [
        { usage },
        { response: { usage } },
        { message: { usage } },
        { usage: figure },
        figure
      ]) {
        const found = read(event(body) + done, { api }).usage
        if (found !== undefined) assert.isTrue(Schema.is(LlmUsage)(found))
      }
    }
  )
})

describe("Usage.ofHeaders", () => {
  it("returns a finite number that is not negative, or nothing", () => {
    const of = (value: string | ReadonlyArray<string> | undefined) =>
      Usage.ofHeaders({ "x-litellm-response-cost": value })
    assert.deepStrictEqual(
      ["0", "0.0", "0.25", "4.5e-05", "1E2", "3"].map(of),
      [0, 0, 0.25, 0.000045, 100, 3]
    )
    for (const value of [
      undefined,
      "",
      " ",
      "None",
      "nan",
      "Infinity",
      "1e999",
      "-1",
      "+1",
      "0x10",
      "1,000",
      "0.1, 0.2",
      "1e7",
      "1".repeat(9000),
      ["0.1"]
    ])
      assert.isUndefined(of(value), String(value).slice(0, 20))
    assert.isUndefined(Usage.ofHeaders({}))
  })
})

/** Slow reference implementation of the bytes that are passed on, line by line over the whole text. */
const withoutUsage = (answer: Uint8Array): string => {
  const lines =
    Buffer.from(answer)
      .toString("latin1")
      .match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/gu) ?? []
  const events: Array<Array<string>> = [[]]
  for (const [index, line] of lines.entries()) {
    events.at(-1)!.push(line)
    if (/^[\r\n]+$/u.test(index === 0 ? line.replace("\u00ef\u00bb\u00bf", "") : line)) events.push([])
  }
  return events
    .map((lines, index) => ({ lines, data: dataIn(lines, index === 0) }))
    .filter(({ data }) => {
      try {
        const body = JSON.parse(data)
        return !(Array.isArray(body.choices) && body.choices.length === 0 && body.usage !== null)
      } catch {
        return true
      }
    })
    .map(({ lines }) => lines.join(""))
    .join("")
}

const dataIn = (lines: ReadonlyArray<string>, isFirst: boolean): string =>
  Buffer.from(lines.join(""), "latin1")
    .toString("utf8")
    .replace(isFirst ? /^\ufeff/u : "", "")
    .split(/\r\n|\r|\n/u)
    .flatMap((line) => (line.startsWith("data:") ? [line.slice(5).replace(/^ /u, "")] : []))
    .join("\n")
