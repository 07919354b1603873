import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import OpenAI, { type APIError } from "openai"
import * as Pace from "../../../test/harness/Pace.ts"
import * as ScriptedModelApi from "../src/ScriptedModelApi.ts"

/** Asks the API. Gives up after a moment only if no answer is expected. */
const ask = (url: string, body: object = {}, isAnswered = true) =>
  Effect.promise(async () => {
    try {
      const answer = await fetch(url, {
        method: "POST",
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(isAnswered ? Pace.hangMillis : 300)
      })
      try {
        return `${answer.status} ${await answer.text()}`
      } catch {
        return `${answer.status} broken`
      }
    } catch (cause) {
      return (cause as Error).name
    }
  })

const chat = (tools: ReadonlyArray<string>) => ({
  model: "m",
  messages: [{ role: "user", content: "hello there" }],
  tools: tools.map((name) => ({ type: "function", function: { name } }))
})

describe("ScriptedModelApi", () => {
  it.live("plays its steps, and repeats the last one", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModelApi.acquire({
        script: ScriptedModelApi.steps([
          { _tag: "Refuse" },
          { _tag: "Hang" },
          { _tag: "ResetMidStream", events: 2 },
          { _tag: "Html", status: 502 },
          { _tag: "Error", status: 500 },
          { _tag: "SlowStream", events: 2, pauseMillis: 5 },
          { _tag: "Answer", body: "last" }
        ])
      })
      const answers = yield* Effect.forEach(Array.from({ length: 8 }), (_, index) =>
        ask(upstream.url, {}, index !== 1)
      )
      assert.deepStrictEqual(answers.slice(0, 3), ["TypeError", "TimeoutError", "200 broken"])
      assert.match(answers[3]!, /^502 <html>/u)
      assert.match(answers[4]!, /^500 .*scripted/u)
      assert.match(answers[5]!, /^200 data: .*\n\ndata: .*\n\ndata: \[DONE\]\n\n$/u)
      assert.deepStrictEqual(answers.slice(6), ["200 last", "200 last"])
      assert.deepStrictEqual(
        (yield* upstream.received).map(({ cut }) => cut),
        [true, true, true, false, false, false, false, false]
      )
    })
  )

  it.live("calls the script for turns that offer tools, and answers other requests itself", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModelApi.acquire({
        raw: true,
        script: ScriptedModelApi.turns(({ index, tools }) =>
          index === 0 ? { call: [{ name: tools[0]!, args: { index } }] } : { refuse: "no more" }
        )
      })
      const url = `${upstream.url}/v1/chat/completions`
      assert.match(yield* ask(url, chat([])), /"content":"Done\."/u)
      assert.match(yield* ask(url, chat(["look"])), /"name":"look","arguments":"\{\\"index\\":0\}"/u)
      assert.match(yield* ask(url, chat(["look"])), /^400 .*no more/u)
      const received = yield* upstream.received
      assert.deepStrictEqual(
        received.map(({ tools, usage }) => [tools.length, usage?.outputTokens]),
        [
          [0, 101],
          [1, 102],
          [1, undefined]
        ]
      )
      assert.strictEqual(received[0]!.body["model"], "m")
    })
  )

  it("reports usage that clients can count, after any number of calls", () => {
    const answer = ScriptedModelApi.turns(() => ({ say: "Done." }))
    const outputOf = (number: number) => {
      const given = answer({ number, body: {}, tools: [], results: [], text: "look" })
      return "usage" in given ? given.usage?.outputTokens : undefined
    }
    assert.deepStrictEqual([outputOf(0), outputOf(23), outputOf(24)], [101, 100 + 2 ** 23, 101])
  })

  it.live("numbers only model calls, so that usage does not grow with other requests", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModelApi.acquire({
        script: ScriptedModelApi.turns(() => ({ say: "Done." }))
      })
      const url = `${upstream.url}/v1/chat/completions`
      yield* ask(url, chat(["look"]))
      for (const path of ["v1/models", "spend/logs/v2", "v1/messages/count_tokens"])
        yield* ask(`${upstream.url}/${path}`)
      yield* ask(url, chat(["look"]))
      assert.deepStrictEqual(
        (yield* upstream.received).flatMap(({ usage }) => usage?.outputTokens ?? []),
        [101, 102]
      )
    })
  )

  it.live("reports an error that a script throws", () =>
    Effect.gen(function* () {
      const upstream = yield* ScriptedModelApi.acquire({
        script: () => {
          throw new Error("a mistake")
        }
      })
      assert.match(yield* ask(`${upstream.url}/v1/messages`), /^500 /u)
      assert.deepStrictEqual(yield* upstream.problems, ["/v1/messages: Error: a mistake"])
    })
  )
})

describe("embeddings of ScriptedModelApi", () => {
  const answering = Effect.gen(function* () {
    const api = yield* ScriptedModelApi.acquire({ script: () => ({ say: "unused" }) })
    const client = new OpenAI({ apiKey: "none", baseURL: `${api.url}/v1`, maxRetries: 0 })
    const create = (body: Partial<OpenAI.EmbeddingCreateParams>) =>
      Effect.promise(() =>
        client.embeddings.create({ model: "m", input: "x", ...body } as OpenAI.EmbeddingCreateParams)
      )
    return { ...api, create }
  })
  const product = (a: ReadonlyArray<number>, b: ReadonlyArray<number>) =>
    a.reduce((sum, value, index) => sum + value * b[index]!, 0)

  it.live("are the same for the same text, of length 1, and similar for texts that share words", () =>
    Effect.gen(function* () {
      const input = ["The quick brown fox", "a quick brown fox", "invoices for May", "The quick brown fox"]
      const { data, model, object, usage } = yield* (yield* answering).create({ input })
      assert.deepStrictEqual([object, model, data.map(({ index }) => index)], ["list", "m", [0, 1, 2, 3]])
      assert.deepStrictEqual(usage, { prompt_tokens: 15, total_tokens: 15 })
      const vectors = data.map(({ embedding }) => embedding)
      assert.deepStrictEqual(vectors[0], vectors[3])
      for (const vector of vectors) {
        assert.lengthOf(vector, 1536)
        assert.closeTo(product(vector, vector), 1, 1e-5)
      }
      assert.isAbove(product(vectors[0]!, vectors[1]!), 0.5)
      assert.isBelow(Math.abs(product(vectors[0]!, vectors[2]!)), 0.2)
      const again = yield* (yield* answering).create({ input: input[0]! })
      assert.deepStrictEqual(again.data[0]!.embedding, vectors[0])
    })
  )

  it.live("have the requested format and number of dimensions, for text and tokens", () =>
    Effect.gen(function* () {
      const { create, received } = yield* answering
      const [decoded, plain] = [yield* create({}), yield* create({ encoding_format: "float" })]
      // The client asks for base64 and decodes it, unless a format is named.
      assert.deepStrictEqual(decoded.data, plain.data)
      const encoded = (yield* create({ encoding_format: "base64", dimensions: 1 })).data[0]!
        .embedding as unknown
      assert.match(
        Buffer.from(encoded as string, "base64")
          .readFloatLE(0)
          .toString(),
        /^-?1$/u
      )
      for (const input of [
        [1, 2, 3],
        [[1, 2, 3], [4]]
      ]) {
        const { data, usage } = yield* create({ input, dimensions: 8 })
        assert.deepStrictEqual(
          data.map(({ embedding }) => embedding.length),
          input.length === 3 ? [8] : [8, 8]
        )
        assert.strictEqual(usage.prompt_tokens, input.length === 3 ? 3 : 4)
      }
      assert.deepStrictEqual((yield* received).at(-1)?.usage, { inputTokens: 4, outputTokens: 0 })
    })
  )

  it.live("refuse an invalid request with an error of OpenAI's API", () =>
    Effect.gen(function* () {
      const { create } = yield* answering
      const invalid: ReadonlyArray<readonly [param: string, body: object]> = [
        ["model", { model: "" }],
        ["input", { input: "" }],
        ["input", { input: [] }],
        ["input", { input: ["a", ""] }],
        ["input", { input: [[1], []] }],
        ["input", { input: [1, "a"] }],
        ["input", { input: [-1] }],
        ["input", { input: Array.from({ length: 2049 }, () => "a") }],
        ["input", { input: Array.from({ length: 2048 }, () => "a"), dimensions: 1537 }],
        ["encoding_format", { encoding_format: "int8" }],
        ["dimensions", { dimensions: 0 }],
        ["dimensions", { dimensions: 1.5 }],
        ["dimensions", { dimensions: 4097 }]
      ]
      for (const [param, body] of invalid) {
        const error = (yield* Effect.flip(Effect.catchDefect(create(body), Effect.fail))) as APIError
        assert.deepStrictEqual([error.status, error.type, error.param], [400, "invalid_request_error", param])
      }
    })
  )

  it.live("are refused by the script, and fail as its steps say", () =>
    Effect.gen(function* () {
      const { url } = yield* ScriptedModelApi.acquire({
        script: ScriptedModelApi.steps([{ _tag: "Error", status: 503 }, { refuse: "not today" } as never])
      })
      assert.match(yield* ask(`${url}/v1/embeddings`, { input: "a" }), /^503 /u)
      assert.deepStrictEqual(
        yield* ask(`${url}/v1/embeddings`, { model: "m", input: "a" }),
        `400 ${JSON.stringify({
          error: { message: "not today", type: "invalid_request_error", param: null, code: null }
        })}`
      )
    })
  )
})
