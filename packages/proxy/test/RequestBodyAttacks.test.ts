import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"
import { violations } from "./AllowedBody.ts"
import { account, bytesOf, type Json, passed, policyOf, rebuild, refused } from "./Bodies.ts"

interface Attack {
  readonly name: string
  readonly api: RoutePolicy.Api
  readonly body: unknown
  /** Code of the refusal. Without one, the body passes after cleaning. */
  readonly refused?: string
  readonly param?: string
  /** The complete body that is sent, without the run's own fields. */
  readonly sent?: Json
}

const hi = { messages: [{ role: "user", content: "hi" }] }
const hiText = '"messages":[{"role":"user","content":"hi"}]'

const chat = (name: string, body: unknown, outcome: Omit<Attack, "name" | "api" | "body"> = {}): Attack => ({
  name,
  api: "chat_completions",
  body,
  ...outcome
})

/** Expects a body to pass with nothing but its greeting. */
const only = (name: string, fields: object): Attack => chat(name, { ...hi, ...fields }, { sent: hi })

const content = (...parts: ReadonlyArray<unknown>) => ({ messages: [{ role: "user", content: parts }] })
const image = (url: unknown) => content({ type: "image_url", image_url: { url } })
const item = (...items: ReadonlyArray<unknown>) => ({ input: items })

const nested = (depth: number, open: string, close: string) => `${open.repeat(depth)}1${close.repeat(depth)}`

const fields: ReadonlyArray<Attack> = [
  only("user", { user: "evil" }),
  only("User", { User: "evil" }),
  only("USER and  user", { USER: "evil", " user": "evil", "user ": "evil", "user\0": "evil" }),
  only("user as an object", { user: { user_id: "evil" } }),
  only("metadata", { metadata: { user_id: "evil" } }),
  only("metadata as a string", { metadata: '{"user_id":"evil"}' }),
  only("litellm_metadata", { litellm_metadata: { user: "evil", tags: ["evil"] } }),
  only("safety_identifier", { safety_identifier: "evil" }),
  only("extra_body", { extra_body: { user: "evil" } }),
  only("extra_headers and headers", { extra_headers: { "x-litellm-customer-id": "evil" }, headers: {} }),
  only("proxy_server_request", { proxy_server_request: { body: { user: "evil" } } }),
  only("destination fields", {
    api_base: "https://evil",
    base_url: "https://evil",
    api_key: "sk",
    user_config: {}
  }),
  only("model fields", { model_list: [], fallbacks: ["evil"], mock_response: "evil", mock_tool_calls: [] }),
  only("guardrail and cache fields", {
    guardrails: [],
    disable_global_guardrails: true,
    cache: {},
    "no-log": true
  }),
  only("cost fields", { num_retries: 9, timeout: 9, service_tier: "priority", web_search_options: {} }),
  only("credentials", {
    aws_access_key_id: "evil",
    vertex_credentials: "evil",
    langfuse_host: "https://evil"
  }),
  only("calls and sessions", {
    litellm_call_id: "evil",
    litellm_session_id: "evil",
    litellm_trace_id: "evil"
  }),
  only("cache_control_injection_points", { cache_control_injection_points: [{ location: "message" }] }),
  only("prompt templates", { prompt_id: "evil", prompt_variables: {}, prompt_label: "x" }),
  only("store", { store: true }),
  only("audio", { audio: { voice: "x", format: "wav" } }),
  chat("a key with escapes", `{"us\\u0065r":"evil","met\\u0061data":{},${hiText}}`, { sent: hi }),
  chat("duplicate keys", `{"user":"evil","model":"m","user":"evil","model":"evil",${hiText}}`, {
    refused: "model_not_found"
  }),
  chat("duplicate messages", `{"messages":[{"role":"user","content":"evil","user":1}],${hiText}}`, {
    sent: hi
  }),
  chat("__proto__", `{"__proto__":{"user":"evil","n":9,"stream":true},${hiText}}`, { sent: hi }),
  chat("constructor", `{"constructor":{"prototype":{"user":"evil"}},"toString":1,${hiText}}`, { sent: hi }),
  chat(
    "__proto__ in a message",
    `{"messages":[{"role":"user","content":"hi","__proto__":{"name":"evil"}}]}`,
    {
      sent: hi
    }
  ),
  chat("__proto__ for a message", `{"messages":[{"__proto__":{"role":"user","content":"evil"}}]}`, {
    refused: "invalid_request_body"
  }),
  chat("__proto__ in a map", `{${hiText},"logit_bias":{"__proto__":1,"constructor":2,"5":3}}`, {}),
  chat(
    "__proto__ as an ordinary name in a schema",
    `{${hiText},"tools":[{"type":"function","function":{"name":"f","parameters":{"__proto__":{"a":1}}}}]}`,
    {
      sent: JSON.parse(
        `{${hiText},"tools":[{"type":"function","function":{"name":"f","parameters":{"__proto__":{"a":1}}}}]}`
      )
    }
  ),
  chat(
    "fields in a message, a part, a call and a tool",
    {
      messages: [
        { role: "user", content: [{ type: "text", text: "hi", user: "evil", api_base: "x" }], metadata: {} },
        {
          role: "assistant",
          content: null,
          tool_calls: [
            { id: "c", type: "function", function: { name: "f", arguments: "{}", user: 1 }, api_base: 1 }
          ],
          provider_specific_fields: {}
        }
      ],
      tools: [
        { type: "function", api_base: "https://evil", function: { name: "f", user: "evil", headers: {} } }
      ]
    },
    {
      sent: {
        messages: [
          { role: "user", content: [{ type: "text", text: "hi" }] },
          {
            role: "assistant",
            content: null,
            tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }]
          }
        ],
        tools: [{ type: "function", function: { name: "f" } }]
      }
    }
  ),
  chat(
    "JSON inside a string",
    { messages: [{ role: "user", content: '{"user":"evil","metadata":{"user_id":"\\u0000"}}' }] },
    { sent: { messages: [{ role: "user", content: '{"user":"evil","metadata":{"user_id":"\\u0000"}}' }] } }
  ),
  chat("another model", { ...hi, model: "vendor/other" }, { refused: "model_not_found", param: "model" }),
  chat("a model that is an address", { ...hi, model: "openai/https://evil" }, { refused: "model_not_found" }),
  chat("a model that is a list", { ...hi, model: ["m", "evil"] }, { refused: "invalid_request_body" }),
  {
    name: "identity and tools of messages",
    api: "messages",
    body: {
      ...hi,
      metadata: { user_id: "evil", tags: [] },
      mcp_servers: [{ url: "https://evil" }],
      user: "evil",
      service_tier: "auto"
    },
    sent: hi
  },
  {
    name: "identity of responses",
    api: "responses",
    body: {
      input: "hi",
      user: "evil",
      store: true,
      metadata: { user_id: "evil" },
      safety_identifier: "evil"
    },
    sent: { input: "hi" }
  },
  {
    name: "fields of an answer in count_tokens",
    api: "count_tokens",
    body: { ...hi, max_tokens: 9, stream: true, metadata: { user_id: "evil" }, temperature: 1 },
    sent: hi
  }
]

const kept = { refused: "state_not_allowed" }

const states: ReadonlyArray<Attack> = [
  {
    name: "previous_response_id",
    api: "responses",
    body: { input: "hi", previous_response_id: "resp_x" },
    ...kept
  },
  { name: "conversation", api: "responses", body: { input: "hi", conversation: { id: "x" } }, ...kept },
  { name: "a stored prompt", api: "responses", body: { input: "hi", prompt: { id: "pmpt_x" } }, ...kept },
  { name: "background", api: "responses", body: { input: "hi", background: true }, ...kept },
  { name: "container", api: "messages", body: { ...hi, container: "x" }, ...kept },
  {
    name: "item_reference",
    api: "responses",
    body: item({ type: "item_reference", id: "x" }),
    param: "input[0]",
    ...kept
  },
  {
    name: "an image by ID",
    api: "responses",
    body: item({ role: "user", content: [{ type: "input_image", file_id: "file-x" }] }),
    param: "input[0].content[0]",
    ...kept
  },
  {
    name: "a file by ID in chat",
    api: "chat_completions",
    body: content({ type: "file", file: { file_id: "x" } }),
    ...kept
  },
  {
    name: "a document by ID",
    api: "messages",
    body: content({ type: "document", source: { type: "file", file_id: "x" } }),
    param: "messages[0].content[0].source",
    ...kept
  },
  {
    name: "container_upload",
    api: "messages",
    body: content({ type: "container_upload", file_id: "x" }),
    ...kept
  },
  {
    name: "reasoning that is only an ID",
    api: "responses",
    body: item({ type: "reasoning", id: "rs_evil", summary: [] }),
    sent: item({ type: "reasoning", summary: [] })
  }
]

const remote = { refused: "remote_url_not_allowed" }
const part = "messages[0].content[0]"

const addresses: ReadonlyArray<Attack> = [
  ...[
    "https://evil/x.png",
    "HTTP://evil/x.png",
    "gs://evil/x.png",
    "s3://evil/x",
    "file:///etc/passwd",
    "//evil/x.png",
    "/etc/passwd",
    "",
    " data:image/png;base64,AA==",
    "\tdata:image/png;base64,AA==",
    "\u0000https://evil/x.png",
    "\ufeffdata:image/png;base64,AA==",
    "data:image/png;base64,AA==\nhttps://evil",
    "data:image/png;x=https://evil/x.png;base64,AA==",
    "data:image/png;base64,https://evil/x.png",
    "data:text/html,<img src='https://evil'>",
    "data://evil/x.png",
    "data:"
  ].map((url) => chat(`image ${JSON.stringify(url)}`, image(url), { ...remote, param: `${part}.image_url` })),
  chat("an image that is an address", content({ type: "image_url", image_url: "https://evil" }), {
    ...remote,
    param: part
  }),
  chat("a video", content({ type: "video_url", video_url: { url: "https://evil" } }), {
    ...remote,
    param: part
  }),
  chat("a file", content({ type: "file", file: { file_data: "https://evil" } }), remote),
  chat(
    "audio",
    content({ type: "input_audio", input_audio: { data: "https://evil/a.wav", format: "wav" } }),
    {
      refused: "invalid_request_body"
    }
  ),
  chat(
    "a format of audio",
    content({ type: "input_audio", input_audio: { data: "AA==", format: "x;https://evil" } }),
    {
      refused: "invalid_request_body"
    }
  ),
  {
    name: "an image of responses",
    api: "responses",
    body: item({ role: "user", content: [{ type: "input_image", image_url: "https://evil" }] }),
    param: "input[0].content[0]",
    ...remote
  },
  {
    name: "a file of responses",
    api: "responses",
    body: item({ role: "user", content: [{ type: "input_file", file_url: "https://evil" }] }),
    param: "input[0].content[0]",
    ...remote
  },
  {
    name: "an image in the result of a tool",
    api: "responses",
    body: item({
      type: "function_call_output",
      call_id: "c",
      output: [{ type: "input_image", image_url: "https://evil" }]
    }),
    param: "input[0].output[0]",
    ...remote
  },
  {
    name: "an image of messages",
    api: "messages",
    body: content({ type: "image", source: { type: "url", url: "https://evil" } }),
    param: `${part}.source`,
    ...remote
  },
  {
    name: "a document in the result of a tool",
    api: "messages",
    body: content({
      type: "tool_result",
      tool_use_id: "t",
      content: [{ type: "document", source: { type: "url", url: "https://evil" } }]
    }),
    param: `${part}.content[0].source`,
    ...remote
  },
  {
    name: "base64 that is an address",
    api: "messages",
    body: content({
      type: "image",
      source: { type: "base64", media_type: "image/png", data: "https://evil/x" }
    }),
    refused: "invalid_request_body"
  },
  {
    name: "tools that fetch",
    api: "responses",
    body: {
      input: "hi",
      tools: [{ type: "mcp", server_url: "https://evil" }, { type: "web_search" }, { type: "file_search" }]
    },
    sent: { input: "hi" }
  },
  chat("an image in any case of its scheme", image("DATA:image/png;BASE64,AA=="), {
    sent: image("DATA:image/png;BASE64,AA==")
  })
]

const invalid = { refused: "invalid_json" }
const utf16 = (text: string) => new Uint8Array(Buffer.from(text, "utf16le"))

const texts: ReadonlyArray<Attack> = [
  chat("an empty body", "", invalid),
  chat("a list", "[]", invalid),
  chat("null", "null", invalid),
  chat("a string", '"{}"', invalid),
  chat("data after it", `{${hiText}}{"user":"evil"}`, invalid),
  chat("a NUL after it", `{${hiText}}\0`, invalid),
  chat("a byte order mark", `\ufeff{${hiText}}`, invalid),
  chat("UTF-16", utf16(`{${hiText}}`), invalid),
  chat("invalid UTF-8", new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), invalid),
  chat("NUL in overlong UTF-8", new Uint8Array([0x7b, 0x22, 0xc0, 0x80, 0x22, 0x3a, 0x31, 0x7d]), invalid),
  chat("a lone surrogate in UTF-8", new Uint8Array([0x22, 0xed, 0xa0, 0x80, 0x22]), invalid),
  chat("NaN", `{"temperature":NaN,${hiText}}`, invalid),
  chat("Infinity", `{"temperature":-Infinity,${hiText}}`, invalid),
  chat("comments", `{/* */${hiText}}`, invalid),
  chat("single quotes", "{'messages':[]}", invalid),
  chat("a trailing comma", `{${hiText},}`, invalid),
  chat("a number out of range", `{"temperature":1e999,${hiText}}`, invalid),
  chat(
    "a number out of range in a tool",
    `{${hiText},"tools":[{"type":"function","function":{"name":"f","parameters":[1e400]}}]}`,
    invalid
  ),
  chat("a number of 400 digits", `{"seed":${"9".repeat(400)},${hiText}}`, invalid),
  chat("a seed that is rounded", `{"seed":12345678901234567890,${hiText}}`, {
    refused: "invalid_request_body"
  }),
  chat("negative lengths", { ...hi, max_tokens: -1 }, { refused: "invalid_request_body" }),
  chat("lengths with a fraction", { ...hi, max_tokens: 1.5 }, { refused: "invalid_request_body" }),
  chat("lengths as strings", { ...hi, max_tokens: "9" }, { refused: "invalid_request_body" }),
  chat("stream as a string", { ...hi, stream: "true" }, { refused: "invalid_request_body" }),
  chat("lists 100,000 deep", `{"x":${nested(100_000, "[", "]")},${hiText}}`, invalid),
  chat("objects 100,000 deep", `{"x":${nested(100_000, '{"a":', "}")},${hiText}}`, invalid),
  chat("lists that are never closed", `{"x":${"[".repeat(1_000_000)}`, invalid),
  chat(
    "lists that are hidden after a backslash",
    `{"a":"\\\\","x":${nested(101, "[", "]")},${hiText}}`,
    invalid
  ),
  chat(
    "brackets after a quote in a string",
    { messages: [{ role: "user", content: `"${"[".repeat(1000)}` }] },
    {}
  ),
  chat("brackets in a string", { messages: [{ role: "user", content: "[".repeat(1000) }] }, {}),
  chat("a key of 1 MB", { ...hi, ["user".repeat(250_000)]: 1 }, { sent: hi }),
  chat(
    "an unknown role",
    { messages: [{ role: "evil", content: "hi" }] },
    {
      refused: "invalid_request_body",
      param: "messages[0].role"
    }
  ),
  chat("an unknown part", content({ type: "evil", text: "hi" }), {
    refused: "invalid_request_body",
    param: part
  }),
  chat(
    "messages that are an object",
    { messages: { 0: hi.messages[0], length: 1 } },
    {
      refused: "invalid_request_body",
      param: "messages"
    }
  ),
  chat(
    "an invalid detail of a valid image",
    content({ type: "image_url", image_url: { url: "data:image/png;base64,AA==", detail: 5 } }),
    { refused: "invalid_request_body", param: `${part}.image_url.detail` }
  ),
  chat("no messages", {}, { refused: "invalid_request_body", param: "messages" }),
  chat(
    "modalities other than text",
    { ...hi, modalities: ["text", "audio"] },
    { refused: "invalid_request_body" }
  ),
  chat(
    "NUL and lone surrogates",
    `{"messages":[{"role":"user","content":"a\\u0000\\ud800b\\udc00 \\ud83d\\ude00 \\\\u0000"}]}`,
    {
      sent: { messages: [{ role: "user", content: "a\ufffd\ufffdb\ufffd \u{1f600} \\u0000" }] }
    }
  ),
  chat(
    "NUL beside a million backslashes",
    `{"messages":[{"role":"user","content":"\\u0000${"\\\\".repeat(1_000_000)}"}]}`,
    {
      sent: { messages: [{ role: "user", content: `\ufffd${"\\".repeat(1_000_000)}` }] }
    }
  )
]

const here = "data:image/png;base64,AA=="

const lookalikes: ReadonlyArray<Attack> = [
  ...[
    " https://evil/x.png",
    "\thTTpS://evil/x.png",
    "\r\nhttp://evil",
    "https:evil",
    "data:https://evil;base64,AA=="
  ].map((url) => chat(`image ${JSON.stringify(url)}`, image(url), { ...remote, param: `${part}.image_url` })),
  chat(
    "an address beside an image",
    content({
      type: "image_url",
      image_url: { url: here, format: "https://evil", file_id: "x" },
      url: "https://evil",
      video_url: { url: "https://evil" }
    }),
    { sent: image(here) }
  ),
  chat(
    "an address in a prediction",
    { ...hi, prediction: { type: "content", content: image("https://evil").messages[0]!.content } },
    {
      ...remote,
      param: "prediction.content[0].image_url"
    }
  ),
  chat(
    "a file by ID beside its content",
    content({ type: "file", file: { file_data: here, file_id: "x" } }),
    {
      sent: content({ type: "file", file: { file_data: here } })
    }
  ),
  {
    name: "a file by ID and by address beside its content",
    api: "responses",
    body: item({
      role: "user",
      content: [{ type: "input_file", file_data: here, file_id: "x", file_url: "https://evil" }]
    }),
    sent: item({ role: "user", content: [{ type: "input_file", file_data: here }] })
  },
  {
    name: "an address beside base64",
    api: "messages",
    body: content({
      type: "image",
      source: { type: "base64", media_type: "image/png", data: "AA==", url: "https://evil" }
    }),
    sent: content({ type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } })
  },
  {
    name: "a source in capitals",
    api: "messages",
    body: content({ type: "image", source: { type: "URL", url: "https://evil" } }),
    ...remote,
    param: `${part}.source`
  },
  chat(
    "a tool in capitals, and one whose type is a list",
    {
      ...hi,
      tools: [
        { type: "FUNCTION", function: { name: "f" } },
        { type: ["function"], function: { name: "f" } }
      ]
    },
    { sent: hi }
  ),
  chat(
    "a tool that is null",
    { ...hi, tools: [null] },
    { refused: "invalid_request_body", param: "tools[0]" }
  ),
  chat(
    "deprecated functions with additional fields",
    {
      ...hi,
      functions: [{ name: "f", user: "evil", api_base: "x" }],
      function_call: { name: "f", user: "evil" }
    },
    {
      sent: { ...hi, functions: [{ name: "f" }], function_call: { name: "f" } }
    }
  ),
  {
    name: "a tool that other tools may call",
    api: "messages",
    body: {
      ...hi,
      tools: [
        { type: "code_execution_20250522", name: "run" },
        { name: "f", input_schema: {}, allowed_callers: ["code_execution_20250825"], type: null }
      ],
      tool_choice: { type: "tool", name: "run" }
    },
    sent: { ...hi, tools: [{ name: "f", input_schema: {}, type: null }] }
  },
  ...["server_tool_use", "mcp_tool_use", "web_search_tool_result", "tool_addition"].map((type): Attack => ({
    name: `${type} in the conversation`,
    api: "messages",
    body: content({ type, id: "x", name: "x", input: {} }),
    refused: "invalid_request_body",
    param: part
  })),
  ...[
    "mcp_call",
    "web_search_call",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call"
  ].map((type): Attack => ({
    name: `${type} in the conversation`,
    api: "responses",
    body: item({ type, id: "x", status: "completed" }),
    refused: "invalid_request_body",
    param: "input[0].type"
  })),
  ...[
    { type: "web_search" },
    { type: "mcp", server_label: "x", server_url: "https://evil" },
    { type: "namespace", name: "x", tools: [{ type: "web_search" }] },
    { type: "namespace", name: "x", tools: [{ type: "namespace", name: "y", tools: [] }] }
  ].map((tool): Attack => ({
    name: `${JSON.stringify(tool)} among tools in the conversation`,
    api: "responses",
    body: item({ type: "additional_tools", role: "developer", tools: [tool] }),
    refused: "invalid_request_body"
  })),
  {
    name: "a tool in the conversation with additional fields",
    api: "responses",
    body: item({
      type: "additional_tools",
      role: "developer",
      tools: [{ type: "function", name: "f", server_url: "https://evil", api_key: "x" }]
    }),
    sent: item({ type: "additional_tools", role: "developer", tools: [{ type: "function", name: "f" }] })
  },
  {
    name: "state with an empty name",
    api: "responses",
    body: { input: "hi", previous_response_id: "" },
    ...kept,
    param: "previous_response_id"
  },
  {
    name: "state that is null",
    api: "responses",
    body: { input: "hi", previous_response_id: null, conversation: null, prompt: null, background: false },
    sent: { input: "hi" }
  },
  chat("five answers", { ...hi, n: 5 }, { sent: hi }),
  chat("the answer count as a string", { ...hi, n: "5" }, { refused: "invalid_request_body", param: "n" })
]

const attacks = [...lookalikes, ...fields, ...states, ...addresses, ...texts]

const ours: Readonly<Record<RoutePolicy.Api, Json>> = {
  chat_completions: { model: "m", user: account },
  responses: { model: "m", user: account, store: false },
  messages: { model: "m", metadata: { user_id: account } },
  count_tokens: { model: "m" },
  embeddings: { model: "m", user: account }
}

describe("an attack", () => {
  for (const attack of attacks)
    it(`${attack.api}: ${attack.name} ${attack.refused === undefined ? "passes after cleaning" : "is refused"}`, () => {
      const policy = policyOf(attack.api)
      if (attack.refused !== undefined) {
        const { code, param } = refused(attack.body, policy)
        assert.strictEqual(code, attack.refused)
        if (attack.param !== undefined) assert.strictEqual(param, attack.param)
        return
      }
      const { body, sent } = passed(attack.body, policy)
      assert.deepStrictEqual(violations(attack.api, sent, ["m"]), [])
      if (attack.sent !== undefined) assert.deepStrictEqual(sent, { ...attack.sent, ...ours[attack.api] })
      assert.strictEqual(
        body.match(/"(?:user|user_id)":"acct"/gu)?.length ?? 0,
        attack.api === "count_tokens" ? 0 : 1
      )
    })

  it("with names that are equal after repair keeps the last of them", () => {
    const schema = '{"\\u0000":1,"\\ud800":12345678901234567890}'
    const { body } = passed(
      `{"messages":[],"tools":[{"name":"f","input_schema":${schema}}]}`,
      policyOf("messages")
    )
    assert.include(body, '"input_schema":{"\ufffd":12345678901234567890}')
  })

  it("leaves no properties in prototypes", () => {
    assert.deepStrictEqual(Object.keys(Object.prototype), [])
    const { user, n } = {} as Json
    assert.deepStrictEqual([user, n], [undefined, undefined])
  })

  it("an attack of any bytes never causes a crash, wherever it is truncated or changed", () => {
    const whole = bytesOf(
      `{"model":"m","tools":[{"a":[1.5e3,{"b":"\\ud83d\\ude00\\""}]}],${hiText},"é":null}`
    )
    for (let end = 0; end < whole.length; end++) {
      assert.isTrue(Result.isFailure(rebuild(whole.slice(0, end), policyOf("chat_completions"))))
      const flipped = whole.slice()
      flipped[end] = flipped[end]! ^ 0x80
      rebuild(flipped, policyOf("chat_completions"))
    }
  })
})
