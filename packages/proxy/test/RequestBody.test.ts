import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import * as JsonText from "../src/internal/policy/JsonText.ts"
import * as RequestBody from "../src/internal/policy/RequestBody.ts"
import type * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"
import * as BodyField from "../src/BodyField.ts"
import { account, bytesOf, fixture, type Json, passed, policyFor, policyOf, refused } from "./Bodies.ts"

const chat = policyOf("chat_completions")
const responses = policyOf("responses")
const messages = policyOf("messages")

const hi = { messages: [{ role: "user", content: "hi" }] }
const input = { input: "hi" }

const weather = { type: "function", function: { name: "weather", parameters: {} } }

describe("the identity", () => {
  it("is the run's, in the field of its API", () => {
    assert.deepStrictEqual(passed(hi, chat).sent, { ...hi, model: "m", user: account })
    assert.deepStrictEqual(passed(input, responses).sent, {
      ...input,
      model: "m",
      user: account,
      store: false
    })
    assert.deepStrictEqual(passed(hi, messages).sent, { ...hi, model: "m", metadata: { user_id: account } })
    assert.deepStrictEqual(passed(hi, policyOf("count_tokens")).sent, { ...hi, model: "m" })
  })

  it("is a pseudonym in the field that the profile names, and nothing if the upstream learns none", () => {
    const endUser = { field: "safety_identifier", value: "pseudonym" } as const
    const evil = { user: "evil", safety_identifier: "evil", metadata: { user_id: "evil" } }
    for (const [api, body, more] of [
      ["chat_completions", hi, {}],
      ["responses", input, { store: false }],
      ["messages", hi, {}],
      ["embeddings", input, {}]
    ] as const) {
      const said = passed({ ...body, ...evil }, policyOf(api, { endUser }))
      assert.deepStrictEqual(said.sent, { ...body, model: "m", safety_identifier: "pseudonym", ...more })
      const silent = passed({ ...body, ...evil }, policyOf(api, { endUser: undefined }))
      assert.deepStrictEqual(silent.sent, { ...body, model: "m", ...more })
    }
  })

  it("is recorded as dropped if the agent sends another one, but not if it sends the same", () => {
    assert.deepStrictEqual(passed({ ...hi, user: "evil", store: true }, chat).dropped, ["user", "store"])
    assert.deepStrictEqual(passed({ ...hi, user: account }, chat).dropped, [])
    assert.deepStrictEqual(passed({ ...hi, metadata: { user_id: "evil", tags: [] } }, messages).dropped, [
      "metadata.user_id",
      "metadata.tags"
    ])
    assert.deepStrictEqual(passed({ ...hi, metadata: { user_id: account } }, messages).dropped, [])
    assert.deepStrictEqual(passed({ ...hi, metadata: "evil" }, messages).dropped, ["metadata"])
  })
})

describe("embeddings", () => {
  const embeddings = policyOf("embeddings")

  it("reserve their input, and no output", () => {
    const { inputTokensMax, outputTokensMax, sent } = passed({ input: ["a", "b"], dimensions: 8 }, embeddings)
    assert.deepStrictEqual(sent, { input: ["a", "b"], dimensions: 8, model: "m", user: account })
    assert.strictEqual(outputTokensMax, 0)
    assert.isAtLeast(inputTokensMax, 2)
    assert.isAtLeast(passed({ input: [1, 2, 3] }, embeddings).inputTokensMax, 3)
  })

  it.each([{ input: { text: "a" } }, { input: [{ image_url: "https://evil" }] }, {}])(
    "refuse an input that is neither text nor tokens",
    (body) =>
      assert.include(["invalid_request_body", "remote_url_not_allowed"], refused(body, embeddings).code)
  )
})

describe("a further field of the host", () => {
  const fields = {
    provider: BodyField.fromSchema(
      Schema.Struct({
        order: Schema.Array(Schema.String),
        data_collection: Schema.optionalKey(Schema.Literal("deny"))
      })
    ),
    chat_template_kwargs: { type: "object", additionalProperties: { type: "boolean" } }
  }
  const open = policyOf("chat_completions", { fields })
  const provider = { order: ["a"], data_collection: "deny" }

  it("passes as its schema describes it, without what the schema does not name", () => {
    const kwargs = { enable_thinking: false }
    const body = { ...hi, provider: { ...provider, api_base: "https://evil" }, chat_template_kwargs: kwargs }
    const { dropped, sent } = passed(body, open)
    assert.deepStrictEqual(sent, {
      ...hi,
      provider,
      chat_template_kwargs: kwargs,
      model: "m",
      user: account
    })
    assert.deepStrictEqual(dropped, ["provider.api_base"])
    assert.deepStrictEqual(passed({ ...hi, provider: null }, open).sent["provider"], null)
  })

  it("is refused if it does not match its schema, and is dropped if the host does not open it", () => {
    for (const wrong of [{ provider: { order: "a" } }, { chat_template_kwargs: { a: "b" } }]) {
      const { code, param } = refused({ ...hi, ...wrong }, open)
      assert.strictEqual(code, "invalid_request_body")
      assert.include(param, Object.keys(wrong)[0])
    }
    assert.deepStrictEqual(passed({ ...hi, provider }, chat).dropped, ["provider"])
    assert.deepStrictEqual(passed({ ...hi, provider, other: 1 }, open).dropped, ["other"])
  })

  it("never replaces a field that the gateway sets", () => {
    // A profile refuses these names. If one got through, the gateway's own value would still win.
    const evil = policyOf("chat_completions", {
      fields: { model: {}, user: {}, messages: {}, prompt_cache_key: {} }
    })
    const messages = [{ role: "user", content: "hi", api_base: "https://evil" }]
    const { sent } = passed({ messages, user: "evil", prompt_cache_key: "k" }, evil)
    assert.deepStrictEqual([sent["user"], sent["model"], sent["messages"]], [account, "m", hi.messages])
    assert.notStrictEqual(sent["prompt_cache_key"], "k")
  })
})

describe("the model", () => {
  it("defaults to the run's own, and has the upstream's name", () => {
    assert.strictEqual(passed({ ...hi, model: null }, chat).sent["model"], "m")
    const { model, modelRequested, sent } = passed({ ...hi, model: "other" }, chat)
    assert.deepStrictEqual([model, modelRequested, sent["model"]], ["vendor/other", "other", "vendor/other"])
    assert.isUndefined(passed(hi, chat).modelRequested)
  })

  for (const model of ["gpt-x", "https://evil.example/v1", "vendor/other", "__proto__", "toString", ""])
    it(`${JSON.stringify(model)} is refused with the names of the run's models`, () => {
      const { code, message, param, status } = refused({ ...hi, model }, chat)
      assert.deepStrictEqual([status, code, param], [404, "model_not_found", "model"])
      assert.include(message, "m, other")
    })
})

describe("a key of the provider's cache", () => {
  const keyOf = (api: RoutePolicy.Api, key: unknown, cacheScope = account) =>
    passed(
      { ...(api === "responses" ? input : hi), prompt_cache_key: key },
      policyOf(api, { cacheScope, unknownFields: "refuse" })
    ).sent["prompt_cache_key"]

  it.each(["chat_completions", "responses"] as const)(
    "%s: is bound to the account, so that no tenant finds what another has sent",
    (api) => {
      const mine = keyOf(api, "shared-prefix")
      assert.match(mine, /^[\w-]{43}$/u)
      assert.strictEqual(keyOf(api, "shared-prefix"), mine, "the same in every call of the account")
      assert.notStrictEqual(keyOf(api, "shared-prefix", "acct2"), mine)
      assert.notStrictEqual(keyOf(api, "another"), mine)
      assert.notStrictEqual(keyOf(api, mine, "acct2"), mine, "not even for a tenant that knows it")
      assert.notStrictEqual(keyOf(api, "x", "a"), keyOf(api, "x", "a,"))
      assert.match(keyOf(api, "k".repeat(100_000)), /^[\w-]{43}$/u)
      assert.isNull(keyOf(api, null))
    }
  )

  it("is not added if the agent sends none", () => {
    assert.notProperty(passed(hi, chat).sent, "prompt_cache_key")
  })
})

describe("the size of a rebuilt body", () => {
  const vast = (count: number, spelled: string) =>
    `{"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f","parameters":[${Array.from({ length: count }, () => spelled).join(",")}]}}]}`

  it.each(["1e20", "-1E-6", "1.5e+20", "1e0"])(
    "refuses %s if its digits exceed the maximum size",
    (spelled) => {
      const text = vast(10_000, spelled)
      const sentBytesMax = text.length + 1000
      const { code, status } = refused(text, policyOf("chat_completions", { sentBytesMax }))
      assert.deepStrictEqual([code, status], ["request_too_large", 413])
      const roomy = passed(text, policyOf("chat_completions", { sentBytesMax: 30 * text.length }))
      assert.isAtMost(roomy.body.length, 26 * text.length)
    }
  )

  it("refuses 32 MiB of 1e20 without allocating anything larger", () => {
    const text = bytesOf(vast((32 * 1024 * 1024 - 200) / 5, "1e20"))
    const before = process.memoryUsage().rss
    assert.strictEqual(refused(text, chat).status, 413)
    assert.isBelow(process.memoryUsage().rss - before, 64 * 1024 * 1024)
  })

  it.each(["[[[[]]]],", '{"999":0},', "[]", "{},"])(
    "refuses 32 MiB of %s, whose values take many times the memory of their text",
    (unit) => {
      const text = vast(Math.floor((32 * 1024 * 1024 - 200) / (unit.length + 1)), unit.replace(/,$/u, ""))
      const before = process.memoryUsage().rss
      const { code, status } = refused(bytesOf(text), chat)
      assert.deepStrictEqual([code, status], ["request_too_complex", 413])
      assert.isBelow(process.memoryUsage().rss - before, 128 * 1024 * 1024)
    }
  )

  it.each(["99999999999999999999", '"\\u0000"', '"\\uDC00"'])(
    "refuses half as many values with %s, because they are then held twice",
    (value) => {
      const count = (0.6 * RequestBody.structureBytesMax) / (64 + 16)
      const text = (last: string) => bytesOf(vast(count, "[]").replace("]}}]}", `,${last}]}}]}`))
      passed(text('"\\u0001"'), chat)
      assert.strictEqual(refused(text(value), chat).code, "request_too_complex")
    }
  )

  it("allows 4 MiB of small values, and 30 MiB of numbers", () => {
    for (const [unit, mebibytes] of [
      ['{"type":"string","description":"x"}', 4],
      ["[1,2]", 4],
      ["12345", 30]
    ] as const)
      assert.isFalse(passed(vast((mebibytes * 1024 * 1024) / (unit.length + 1), unit), chat).stream)
  })

  it("allows numbers that do not grow, up to the exact maximum", () => {
    const text = vast(10_000, "123456.5")
    passed(text, policyOf("chat_completions", { sentBytesMax: text.length }))
    assert.strictEqual(
      refused(text, policyOf("chat_completions", { sentBytesMax: text.length - 1 })).status,
      413
    )
  })

  it.prop(
    "is never more than was estimated, in any spelling of numbers",
    [Schema.Array(Schema.Finite), Schema.Int],
    ([numbers, seed]) => {
      const spelled = numbers.map((value, index) => {
        const forms = [
          String(value),
          value.toExponential(),
          value.toExponential().toUpperCase(),
          value.toPrecision(17)
        ]
        return forms[Math.abs(seed + index) % forms.length]!
      })
      const text = `[${spelled.join(",")}]`
      const { growthBytes, vastNumbers } = JsonSurvey.survey(bytesOf(text))
      assert.isAtMost(JSON.stringify(JsonText.read(text, vastNumbers)).length, text.length + growthBytes)
    }
  )
})

describe("the cap of an answer", () => {
  const capped = (body: Json, api: RoutePolicy.Api, outputTokensMax: number) =>
    passed({ ...(api === "responses" ? input : hi), ...body }, policyOf(api, { outputTokensMax }))

  it("is set if the agent sets none, or one that is too high", () => {
    assert.strictEqual(capped({}, "chat_completions", 50).sent["max_completion_tokens"], 50)
    assert.strictEqual(capped({}, "responses", 50).sent["max_output_tokens"], 50)
    assert.strictEqual(capped({ max_tokens: 60 }, "messages", 50).sent["max_tokens"], 50)
    assert.strictEqual(capped({ max_tokens: null }, "messages", 50).sent["max_tokens"], 50)
  })

  it("is the agent's own if that is lower, and applies to both fields of chat", () => {
    const { outputTokensMax, sent } = capped(
      { max_tokens: 40, max_completion_tokens: 60 },
      "chat_completions",
      50
    )
    assert.deepStrictEqual([sent["max_tokens"], sent["max_completion_tokens"]], [40, 50])
    assert.strictEqual(outputTokensMax, 50, "whichever of the two counts")
    assert.strictEqual(capped({ max_tokens: 40 }, "messages", 50).outputTokensMax, 40)
  })

  it("is not set for counting tokens, and is the agent's own without a maximum", () => {
    assert.deepStrictEqual(capped({}, "count_tokens", 50).sent, { ...hi, model: "m" })
    assert.isUndefined(passed(hi, messages).outputTokensMax)
    const own = passed({ ...hi, max_tokens: 9 }, messages)
    assert.strictEqual(own.outputTokensMax, 9)
    assert.strictEqual(own.sent["max_tokens"], 9)
  })

  it("has a default that can be lower than the maximum", () => {
    const bounds = { outputTokensMax: 500, outputTokensAbsent: 50 }
    assert.strictEqual(passed(hi, policyOf("messages", bounds)).outputTokensMax, 50)
    assert.strictEqual(passed({ ...hi, max_tokens: 400 }, policyOf("messages", bounds)).outputTokensMax, 400)
    assert.strictEqual(passed(input, policyOf("responses", { outputTokensAbsent: 50 })).outputTokensMax, 50)
    assert.strictEqual(
      passed(hi, policyOf("messages", { outputTokensMax: 20, outputTokensAbsent: 50 })).outputTokensMax,
      20
    )
  })

  it("is never 0, which some upstreams read as no cap", () => {
    const { outputTokensMax, sent } = passed({ ...hi, max_tokens: 0, max_completion_tokens: 0 }, chat)
    assert.strictEqual(outputTokensMax, 1)
    assert.strictEqual(sent["max_tokens"], 1)
    assert.strictEqual(sent["max_completion_tokens"], 1)
  })

  it("limits the budget for reasoning", () => {
    const { sent } = capped({ reasoning: { max_tokens: 9000 } }, "chat_completions", 50)
    assert.deepStrictEqual(sent["reasoning"], { max_tokens: 49 })
  })

  it("limits the budget for thinking, or removes thinking if the cap is too low", () => {
    const thinking = { type: "enabled", budget_tokens: 31_999 }
    const less = capped({ max_tokens: 32_000, thinking }, "messages", 8000)
    assert.deepStrictEqual(less.sent["thinking"], { type: "enabled", budget_tokens: 7999 })
    const none = capped({ max_tokens: 32_000, thinking }, "messages", 1024)
    assert.notProperty(none.sent, "thinking")
    assert.deepStrictEqual(none.dropped, ["thinking"])
  })

  it("applies to one answer", () => {
    const { dropped, sent } = passed({ ...hi, n: 5 }, chat)
    assert.notProperty(sent, "n")
    assert.deepStrictEqual(dropped, ["n"])
    assert.strictEqual(passed({ ...hi, n: 1 }, chat).sent["n"], 1)
  })
})

describe("a chat stream", () => {
  it("always requests its usage, and reports if the gateway added this", () => {
    const added = passed({ ...hi, stream: true, stream_options: { include_obfuscation: false } }, chat)
    assert.isTrue(added.usageAdded)
    assert.deepStrictEqual(added.sent["stream_options"], { include_obfuscation: false, include_usage: true })
    assert.isTrue(passed({ ...hi, stream: true, stream_options: { include_usage: false } }, chat).usageAdded)
    assert.isFalse(passed({ ...hi, stream: true, stream_options: { include_usage: true } }, chat).usageAdded)
    assert.isFalse(passed(hi, chat).usageAdded)
    assert.isFalse(passed({ ...input, stream: true }, responses).usageAdded)
  })
})

describe("tools", () => {
  it("are removed if the provider runs them, with the choice that names one", () => {
    const search = { type: "web_search", filters: {} }
    const { dropped, sent } = passed(
      {
        ...input,
        tools: [search, { type: "function", name: "f" }, search],
        tool_choice: { type: "web_search" }
      },
      responses
    )
    assert.deepStrictEqual(sent["tools"], [{ type: "function", name: "f" }])
    assert.notProperty(sent, "tool_choice")
    assert.deepStrictEqual(dropped, ["tools[0]", "tools[2]", "tool_choice"])
  })

  it("keep a choice that is still valid", () => {
    const tools = [{ type: "mcp", server_url: "https://evil.example" }, weather]
    for (const choice of ["auto", "required", { type: "function", function: { name: "weather" } }])
      assert.deepStrictEqual(passed({ ...hi, tools, tool_choice: choice }, chat).sent["tool_choice"], choice)
    for (const choice of [{ type: "function", function: { name: "mcp" } }])
      assert.notProperty(passed({ ...hi, tools, tool_choice: choice }, chat).sent, "tool_choice")
  })

  it("leave no list and no choice if all are removed", () => {
    const { dropped, sent } = passed(
      { ...hi, tools: [{ type: "web_search_20250305", name: "web_search" }], tool_choice: { type: "any" } },
      messages
    )
    assert.deepStrictEqual(sent, { ...hi, model: "m", metadata: { user_id: account } })
    assert.deepStrictEqual(dropped, ["tools[0]", "tool_choice"])
  })

  it("are reported with their original positions", () => {
    const { dropped } = passed({ ...hi, tools: [{ type: "x" }, { ...weather, api_base: "evil" }] }, chat)
    assert.deepStrictEqual(dropped, ["tools[0]", "tools[1].api_base"])
    const { param } = refused({ ...hi, tools: [{ type: "x" }, { type: "function", function: {} }] }, chat)
    assert.strictEqual(param, "tools[1].function.name")
  })

  it("keep schemas, arguments and results unchanged", () => {
    const free = {
      user: "x",
      metadata: { user_id: "x" },
      api_base: "https://x",
      deep: [[{ mock_response: null }]]
    }
    const body = {
      messages: [
        { role: "assistant", content: [{ type: "tool_use", id: "t", name: "f", input: free }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "t", content: JSON.stringify(free) }] }
      ],
      tools: [{ name: "f", input_schema: free }]
    }
    const { dropped, sent } = passed(body, messages)
    assert.deepStrictEqual(sent, { ...body, model: "m", metadata: { user_id: account } })
    assert.deepStrictEqual(dropped, [])
  })

  for (const number of [
    "12345678901234567890",
    "-9007199254740993",
    "9007199254740991",
    "0.1",
    "123456789.1234"
  ])
    it(`keep ${number} unchanged`, () => {
      const schema = `{"enum":[${number}]}`
      const { body } = passed(`{"messages":[],"tools":[{"name":"f","input_schema":${schema}}]}`, messages)
      assert.include(body, schema)
    })
})

describe("betas of Anthropic", () => {
  const one = fixture("claude-code-adaptive")

  it("are required for their fields, which are removed without them", () => {
    const { dropped, sent } = passed(one.body, policyFor(one, { betas: [] }))
    const deferred = (one.body["tools"] as ReadonlyArray<Json>).findIndex(
      (tool) => tool["defer_loading"] === true
    )
    assert.deepStrictEqual(dropped.toSorted(), [
      "context_management",
      "metadata.user_id",
      "thinking.display",
      `tools[${deferred}].defer_loading`
    ])
    assert.deepStrictEqual(sent["thinking"], { type: "adaptive" })
  })

  it("are not required for a display that needs none", () => {
    const thinking = { type: "adaptive", display: "omitted" }
    assert.deepStrictEqual(passed({ ...hi, thinking }, messages).sent["thinking"], thinking)
  })
})

describe("data to include in an answer", () => {
  it("is removed if it concerns tools that are not allowed", () => {
    const { dropped, sent } = passed(
      { ...input, include: ["web_search_call.action.sources", "reasoning.encrypted_content"] },
      responses
    )
    assert.deepStrictEqual(sent["include"], ["reasoning.encrypted_content"])
    assert.deepStrictEqual(dropped, ["include[0]"])
  })
})

describe("a removed field", () => {
  const evil = { tags: ["x"], messages: [{ role: "user", content: "hi", metadata: {}, user: "x" }] }

  it("is named by its path", () => {
    assert.deepStrictEqual(passed(evil, chat).dropped, ["tags", "messages[0].metadata", "messages[0].user"])
  })

  it("is refused with all others if the policy says so", () => {
    const { code, message, param, status } = refused(
      evil,
      policyOf("chat_completions", { unknownFields: "refuse" })
    )
    assert.deepStrictEqual([status, code, param], [400, "unknown_fields", "tags"])
    assert.include(message, "tags, messages[0].metadata, messages[0].user")
  })

  it("is also refused for tools, for betas and for more than one answer", () => {
    const strict = (api: RoutePolicy.Api, body: Json) =>
      refused(body, policyOf(api, { unknownFields: "refuse" })).param
    assert.strictEqual(strict("chat_completions", { ...hi, tools: [{ type: "x" }] }), "tools[0]")
    assert.strictEqual(strict("chat_completions", { ...hi, n: 2 }), "n")
    assert.strictEqual(strict("messages", { ...hi, context_management: {} }), "context_management")
  })

  it("is not refused if the gateway sets it and every client sends it", () => {
    const strict = { unknownFields: "refuse" } as const
    assert.deepStrictEqual(
      passed({ ...hi, metadata: { user_id: "device" } }, policyOf("messages", strict)).dropped,
      ["metadata.user_id"]
    )
    passed({ ...hi, user: "x", store: false }, policyOf("chat_completions", strict))
    passed({ ...input, user: "x", store: true }, policyOf("responses", strict))
  })

  it("is counted, and the first ones are kept, sanitized and short", () => {
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`x${index}`, 0]))
    const { dropped, droppedTotal } = passed({ ...hi, ...many }, chat)
    assert.deepStrictEqual([dropped.length, droppedTotal, dropped[99]], [100, 1000, "x99"])
    const odd = passed({ ...hi, ["a\n\0\ud800b"]: 1, ["y".repeat(1_000_000)]: 1 }, chat)
    assert.deepStrictEqual(odd.dropped, ["a\ufffd\ufffd\ufffdb", "y".repeat(100)])
  })
})

describe("a refusal", () => {
  it("never repeats values of the request", () => {
    const secret = "sk-SECRETSECRET"
    const bodies: ReadonlyArray<unknown> = [
      `{"messages":[${secret}]}`,
      `${secret}`,
      { messages: secret },
      { messages: [{ role: secret, content: "hi" }] },
      { messages: [{ role: "user", content: [{ type: `a ${secret}` }] }] },
      {
        messages: [
          { role: "user", content: [{ type: "image_url", image_url: { url: `https://${secret}` } }] }
        ]
      },
      { ...hi, temperature: secret },
      { ...hi, tool_choice: secret }
    ]
    for (const body of bodies) assert.notInclude(JSON.stringify(refused(body, chat)), secret)
  })

  it("is plain data that can be sent to another thread", () => {
    const refusal = refused({ messages: 1 }, chat)
    assert.deepStrictEqual(structuredClone(refusal), refusal)
    assert.strictEqual(refusal._tag, "BodyRefused")
    const result = RequestBody.rebuild(bytesOf(hi), chat)
    if (Result.isSuccess(result)) assert.deepStrictEqual(structuredClone(result.success), result.success)
  })
})

describe("lists", () => {
  it("are limited before their entries are read", () => {
    const many = Array.from({ length: RequestBody.entriesMax + 1 }, () => 0)
    for (const [field, body] of [
      ["messages", { messages: many }],
      ["tools", { ...hi, tools: many }],
      ["functions", { ...hi, functions: many }]
    ] as const) {
      const { code, param } = refused(body, chat)
      assert.deepStrictEqual([code, param], ["too_many_entries", field])
    }
  })
})
