import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { createHash } from "node:crypto"
import * as DemoUpstream from "../src/DemoUpstream.ts"

const post = (url: string, body: unknown, headers: Record<string, string> = {}) =>
  Effect.promise(async () => {
    const answer = await fetch(url, { method: "POST", body: JSON.stringify(body), headers })
    const text = await answer.text()
    return { status: answer.status, headers: answer.headers, text, json: () => JSON.parse(text) }
  })

const events = (text: string) =>
  text
    .split("\n\n")
    .filter((block) => block !== "")
    .map((block) => block.replace(/^(?:event: .*\n)?data: /u, ""))

const question = {
  model: "any",
  messages: [
    { role: "system", content: "be brief" },
    { role: "user", content: "what is 2+2?" }
  ]
}

describe("DemoUpstream", () => {
  it.live("answers a chat in OpenAI's format, and labels the answer as a demo", () =>
    Effect.gen(function* () {
      const { url } = yield* DemoUpstream.acquire()
      const first = yield* post(`${url}/v1/chat/completions`, question)
      const body = first.json()
      assert.include(body.choices[0].message.content, "demo upstream")
      assert.include(body.choices[0].message.content, "what is 2+2?")
      assert.deepInclude(body, { object: "chat.completion", model: "demo" })
      assert.deepStrictEqual(body.usage, { prompt_tokens: 3, completion_tokens: 14, total_tokens: 17 })
      assert.strictEqual(first.headers.get("x-scripted-model"), "1")
    })
  )

  it.live("streams the same text", () =>
    Effect.gen(function* () {
      const { url } = yield* DemoUpstream.acquire()
      const whole = (yield* post(`${url}/v1/chat/completions`, question)).json().choices[0].message.content
      const streamed = events(
        (yield* post(`${url}/v1/chat/completions`, {
          ...question,
          stream: true,
          stream_options: { include_usage: true }
        })).text
      )
      assert.strictEqual(streamed.at(-1), "[DONE]")
      const chunks = streamed.slice(0, -1).map((data) => JSON.parse(data))
      assert.strictEqual(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), whole)
      assert.strictEqual(chunks.at(-2).choices[0].finish_reason, "stop")
      assert.isAbove(chunks.at(-1).usage.total_tokens, 0)
    })
  )

  it.live("supports Anthropic's messages and OpenAI's responses, with and without streaming", () =>
    Effect.gen(function* () {
      const { url } = yield* DemoUpstream.acquire()
      const message = (yield* post(`${url}/v1/messages?beta=true`, {
        ...question,
        messages: [{ role: "user", content: [{ type: "text", text: "hi" }] }]
      })).json()
      assert.include(message.content[0].text, "You said: hi")
      assert.deepInclude(message, { type: "message", stop_reason: "end_turn", model: "demo" })
      const streamed = events((yield* post(`${url}/v1/messages`, { ...question, stream: true })).text).map(
        (data) => JSON.parse(data).type
      )
      assert.deepStrictEqual([streamed[0], streamed.at(-1)], ["message_start", "message_stop"])

      const response = (yield* post(`${url}/v1/responses`, { model: "any", input: "hi" })).json()
      assert.include(response.output[0].content[0].text, "You said: hi")
      const parts = events(
        (yield* post(`${url}/v1/responses`, { model: "any", input: "hi", stream: true })).text
      ).map((data) => JSON.parse(data))
      assert.deepStrictEqual(
        parts.map((part) => part.sequence_number),
        parts.map((_, index) => index)
      )
      assert.strictEqual(parts.at(-1).type, "response.completed")
      assert.deepStrictEqual((yield* post(`${url}/v1/messages/count_tokens`, question)).json(), {
        input_tokens: 3
      })
    })
  )

  it.live("lists one model, and returns clear errors", () =>
    Effect.gen(function* () {
      const { url } = yield* DemoUpstream.acquire()
      const models = yield* Effect.promise(() =>
        fetch(`${url}/v1/models`).then((answer) => answer.json() as Promise<{ data: Array<{ id: string }> }>)
      )
      assert.deepStrictEqual(
        models.data.map(({ id }) => id),
        ["demo"]
      )
      assert.strictEqual((yield* post(`${url}/key/generate`, {})).status, 404)
      const bad = yield* post(`${url}/v1/chat/completions`, "no")
      assert.strictEqual(bad.status, 400)
      assert.include(bad.json().error.message, "could not read the body as JSON")
    })
  )

  it.live("records its requests, with only the fingerprint of a credential", () =>
    Effect.gen(function* () {
      const demo = yield* DemoUpstream.acquire()
      const body = JSON.stringify(question)
      yield* post(`${demo.url}/v1/chat/completions`, question, {
        Authorization: "Bearer sk-secret",
        "x-litellm-end-user-id": "acct"
      })
      const [received] = yield* demo.received
      assert.deepInclude(received, {
        method: "POST",
        target: "/v1/chat/completions",
        bodyBytes: body.length,
        cut: false
      })
      assert.strictEqual(received!.bodyDigest, createHash("sha256").update(body).digest("hex"))
      const headers = new Map(received!.headers.map(([name, value]) => [name.toLowerCase(), value]))
      assert.strictEqual(headers.get("x-litellm-end-user-id"), "acct")
      assert.match(headers.get("authorization") ?? "", /^Bearer sha256:[0-9a-f]{12}$/u)
      assert.notInclude(JSON.stringify(yield* demo.received), "sk-secret")

      const raw = yield* DemoUpstream.acquire({ raw: true })
      yield* post(`${raw.url}/v1/chat/completions`, question, { Authorization: "Bearer sk-secret" })
      assert.include(JSON.stringify(yield* raw.received), "sk-secret")
    })
  )
})
