/** Upstreams of each kind behind the gateway: what they are asked, and what they learn about who pays. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import * as KeyInjection from "../src/KeyInjection.ts"
import * as UpstreamProfile from "../src/UpstreamProfile.ts"
import * as Gateway from "./GatewaySocket.ts"

const usage = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 }
const answered = { _tag: "Answer", body: JSON.stringify({ ok: true, usage }) } as const

const account = "acct-planted-4711"
const llm = {
  identity: { billingAccountId: account, attempt: 3, userId: "user-planted", sessionId: "session-planted" }
}
const identitySecret = Redacted.make("a secret of this deployment")

const errorOf = (answer: Gateway.Answer) => JSON.parse(answer.body).error

const hi = [{ role: "user", content: "hi" }]

/** One call of each API, as an agent sends it. */
const calls = {
  chat_completions: { path: "/v1/chat/completions", body: { messages: hi } },
  responses: { path: "/v1/responses", body: { input: "hi" } },
  messages: { path: "/v1/messages", body: { messages: hi, max_tokens: 9 } },
  count_tokens: { path: "/v1/messages/count_tokens", body: { messages: hi } },
  embeddings: { path: "/v1/embeddings", body: { input: "hi" } }
} as const

describe("an upstream", () => {
  for (const name of UpstreamProfile.Name.literals.filter((one) => one !== "litellm"))
    it.live(`learns nothing about the account, the user or the run by default: ${name}`, () =>
      Effect.gen(function* () {
        const profile = { name, embeddings: true }
        const gateway = yield* Gateway.make({ script: [answered], profile, llm })
        for (const [api, { body, path }] of Object.entries(calls)) {
          const { paths } = UpstreamProfile.profiles[name]
          const isOpen = api === "embeddings" || Object.hasOwn(paths, api)
          const answer = yield* gateway.send(Gateway.http({ ...body, user: account }, { path }))
          assert.strictEqual(answer.status, isOpen ? 200 : 404, `${api} ${answer.text}`)
        }
        const received = yield* gateway.upstream.received
        assert.isAbove(received.length, 1)
        const seen = JSON.stringify(received)
        for (const secret of [account, "user-planted", "session-planted", gateway.runId, "x-litellm-"])
          assert.notInclude(seen, secret)
        for (const { body } of received)
          for (const field of ["user", "safety_identifier", "metadata"]) assert.notProperty(body, field)
      })
    )

  it.live("gets a pseudonym if the deployment has a secret for it, in the field of its API", () =>
    Effect.gen(function* () {
      const pseudonym = KeyInjection.pseudonym(identitySecret, "end-user", account)
      for (const [name, path, field] of [
        ["openai", "/v1/chat/completions", "safety_identifier"],
        ["openrouter", "/v1/chat/completions", "user"],
        ["anthropic", "/v1/messages", "metadata"]
      ] as const) {
        const gateway = yield* Gateway.make({ script: [answered], profile: name, identitySecret, llm })
        const answer = yield* gateway.send(Gateway.http({ messages: hi, max_tokens: 9 }, { path }))
        assert.strictEqual(answer.status, 200, answer.text)
        const [received] = yield* gateway.upstream.received
        const said = received!.body[field]
        assert.deepStrictEqual(said, field === "metadata" ? { user_id: pseudonym } : pseudonym)
        assert.notInclude(JSON.stringify(received), account)
      }
    })
  )

  it.live("binds the agent's prompt cache key to the account, without naming it", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [answered], profile: "openai", llm })
      const other = yield* Gateway.openRun(gateway.proxy, {
        llm: { identity: { billingAccountId: "acct-other", attempt: 0 } }
      })
      const ask = Gateway.http(Gateway.chat({ prompt_cache_key: "shared" }))
      for (const run of [gateway, gateway, other]) yield* run.send(ask)
      const [mine, again, theirs] = (yield* gateway.upstream.received).map(
        ({ body }) => body["prompt_cache_key"]
      )
      assert.match(String(mine), /^[\w-]{43}$/u)
      assert.strictEqual(again, mine)
      assert.notStrictEqual(theirs, mine)
    })
  )

  it.live("is asked at its own path, with its own key header, and only for what it offers", () =>
    Effect.gen(function* () {
      const profile = { name: "azure", apiVersion: "2024-10-21" } as const
      const gateway = yield* Gateway.make({ script: [answered], profile })
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      const closed = yield* gateway.send(Gateway.http({ input: "hi" }, { path: "/v1/responses" }))
      assert.strictEqual(closed.status, 404)
      assert.strictEqual(errorOf(closed).code, "api_not_offered")
      assert.include(errorOf(closed).message, "Use POST /v1/chat/completions, GET /v1/models")
      const received = yield* gateway.upstream.received
      assert.deepStrictEqual(
        received.map(({ target }) => target),
        ["/openai/deployments/contract-model/chat/completions?api-version=2024-10-21"]
      )
      const headers = new Map(received[0]!.headers)
      assert.strictEqual(headers.get("api-key"), Gateway.key)
      assert.isFalse(headers.has("authorization"))
      const { calls, injectedHeaders } = yield* gateway.endpoint.finish
      assert.deepStrictEqual(injectedHeaders, ["api-key"])
      assert.deepStrictEqual(
        calls.map(({ status }) => status),
        [200, 404]
      )
    })
  )

  it.live("gets further fields and headers that the host allows", () =>
    Effect.gen(function* () {
      const profile = {
        name: "openrouter",
        headers: { "x-title": "Acme" },
        bodyFields: {
          chat_completions: { provider: { type: "object", properties: { sort: { type: "string" } } } }
        }
      } as const
      const gateway = yield* Gateway.make({ script: [answered], profile })
      const provider = { sort: "price", order: ["evil"] }
      const answer = yield* gateway.send(
        Gateway.http(Gateway.chat({ provider, models: ["evil"] }), { headers: ["x-title: evil"] })
      )
      assert.strictEqual(answer.status, 200, answer.text)
      const [received] = yield* gateway.upstream.received
      assert.deepStrictEqual(received!.body["provider"], { sort: "price" })
      assert.notProperty(received!.body, "models")
      assert.deepStrictEqual(
        received!.headers.filter(([name]) => name === "x-title"),
        [["x-title", "Acme"]]
      )
    })
  )

  it.live("inspects a large body with a further field on another thread", () =>
    Effect.gen(function* () {
      const profile = {
        name: "vllm",
        bodyFields: { chat_completions: { chat_template_kwargs: { type: "object" } } }
      } as const
      const gateway = yield* Gateway.make({ script: [answered], profile })
      const kwargs = { enable_thinking: false }
      const messages = [{ role: "user", content: "x".repeat(1_500_000) }]
      const answer = yield* gateway.send(
        Gateway.http(Gateway.chat({ messages, chat_template_kwargs: kwargs, dropped: 1 }))
      )
      assert.strictEqual(answer.status, 200, answer.text.slice(0, 500))
      const [received] = yield* gateway.upstream.received
      assert.deepStrictEqual(received!.body["chat_template_kwargs"], kwargs)
      assert.notProperty(received!.body, "dropped")
    })
  )
})

describe("embeddings", () => {
  it.live("are closed by default", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [answered] })
      const answer = yield* gateway.send(Gateway.http(calls.embeddings.body, calls.embeddings))
      assert.strictEqual(answer.status, 403)
      assert.deepStrictEqual(yield* gateway.upstream.received, [])
    })
  )

  it.live("count against the budget and are in the audit like other calls", () =>
    Effect.gen(function* () {
      const body = JSON.stringify({ data: [], usage: { prompt_tokens: 8, total_tokens: 8 } })
      const gateway = yield* Gateway.make({
        script: [{ _tag: "Answer", body }],
        profile: { embeddings: true },
        prices: { "contract-model": { input: 1_000_000, output: 2_000_000 } },
        llm: { ...llm, budget: { callsMax: 1, outputTokensMax: 5, onExhausted: "refuse" } }
      })
      const ask = Gateway.http({ input: ["a", "b"], user: "evil" }, calls.embeddings)
      assert.strictEqual((yield* gateway.send(ask)).status, 200)
      assert.strictEqual((yield* gateway.send(ask)).status, 429)
      const [received] = yield* gateway.upstream.received
      assert.deepStrictEqual(received!.body, { input: ["a", "b"], model: "contract-model", user: account })
      const { usage } = yield* gateway.endpoint.finish
      assert.deepInclude(usage, {
        calls: 1,
        inputTokens: 8,
        outputTokens: 0,
        costUsd: 8,
        callsWithoutUsage: 0
      })
      const log = yield* gateway.audit
      assert.include(log, '"api":"embeddings"')
      assert.include(log, '"dropped":["user"]')
    })
  )
})

describe("a gateway", () => {
  it.live("refuses a profile that does not fit, before anything starts, and says what to do", () =>
    Effect.gen(function* () {
      for (const [options, says] of [
        [
          { url: "https://api.openai.com", profile: "litellm" },
          "must not learn who pays. Choose the profile openai"
        ],
        [{ identitySecret }, "is litellm, which bills by the account itself"],
        [{ profile: "gemini", identitySecret }, "has no field for a pseudonym"],
        [{ profile: "openai", identitySecret: Redacted.make("short") }, "less than 16 bytes"],
        [{ profile: { headers: { host: "evil" } } }, "sets the header host"],
        [{ url: "http://127.0.0.1:1/?a=b" }, "has a query or a fragment. Remove everything after the path"],
        [
          { profile: { name: "azure", apiVersion: "2024-10-21" }, llm: { model: "a/b" } },
          'puts the model into the path, and "a/b" cannot'
        ]
      ] as const) {
        const error = yield* Effect.flip(Gateway.make(options as Gateway.Options))
        assert.strictEqual(error._tag, "Misconfigured")
        assert.isFalse((error as { readonly isRetryable?: boolean }).isRetryable)
        assert.include(error.message, says)
        assert.notInclude(`${error} ${JSON.stringify(error)}`, "a secret of this deployment")
      }
    })
  )
})
