import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as Upstream from "../src/Upstream.ts"
import * as UpstreamProfile from "../src/UpstreamProfile.ts"

const selected = (host: string, chosen?: UpstreamProfile.Name | UpstreamProfile.Choice) =>
  Result.getOrThrow(UpstreamProfile.select(host, chosen))

const refused = (host: string, chosen: UpstreamProfile.Name | UpstreamProfile.Choice) => {
  const result = UpstreamProfile.select(host, chosen)
  return Result.isFailure(result) ? result.failure : assert.fail(`selected: ${result.success.name}`)
}

const publicHosts: ReadonlyArray<readonly [host: string, name: UpstreamProfile.Name]> = [
  ["api.openai.com", "openai"],
  ["eu.api.openai.com", "openai"],
  ["API.OpenAI.com.", "openai"],
  ["api.anthropic.com", "anthropic"],
  ["openrouter.ai", "openrouter"],
  ["acme.openai.azure.com", "azure"],
  ["acme.services.ai.azure.com", "azure"],
  ["generativelanguage.googleapis.com", "gemini"],
  ["europe-west4-aiplatform.googleapis.com", "vertex"],
  ["aiplatform.googleapis.com", "vertex"],
  ["bedrock-runtime.us-east-1.amazonaws.com", "bedrock"],
  ["bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "bedrock"],
  ["api.groq.com", "openai"],
  ["api.mistral.ai", "openai"],
  ["api.x.ai", "openai"]
]

describe("the profile of a host", () => {
  for (const [host, name] of publicHosts)
    it(`is ${name} for ${host}, and never litellm`, () => {
      assert.strictEqual(selected(host).name, name)
      assert.strictEqual(selected(host, { embeddings: true }).name, name)
      for (const chosen of ["litellm", { name: "litellm" }] as const) {
        const { message, remedy } = refused(host, chosen)
        assert.include(message, `${host} is a public API, which must not learn who pays`)
        assert.include(remedy, name)
      }
    })

  it.each([
    "127.0.0.1",
    "litellm",
    "litellm.example.com",
    "api.openai.com.example.com",
    "notopenai.com",
    "models.elb.us-east-1.amazonaws.com"
  ])("is litellm for %s, unless another is chosen", (host) => {
    assert.strictEqual(selected(host).name, "litellm")
    assert.strictEqual(selected(host, "vllm").name, "vllm")
  })

  it("can be that of another upstream for a public API, because only litellm gets the identity", () => {
    assert.strictEqual(selected("api.groq.com", "vllm").name, "vllm")
  })
})

describe("a profile", () => {
  it.prop(
    "has a header of LiteLLM only for LiteLLM, opens no embeddings, and can be sent to a thread",
    [UpstreamProfile.Name],
    ([name]) => {
      const profile = selected("models.example.com", name)
      assert.deepStrictEqual(profile, UpstreamProfile.profiles[name])
      assert.strictEqual(profile.callIdHeader?.startsWith("x-litellm-") ?? false, name === "litellm")
      assert.isFalse(UpstreamProfile.isOpen(profile, "embeddings"))
      // It crosses to the threads of the gateway.
      assert.deepStrictEqual(structuredClone(profile), profile)
    }
  )

  it("asks each upstream at the path of its API", () => {
    const paths = (url: string, chosen?: UpstreamProfile.Name | UpstreamProfile.Choice) => {
      const { address, profile } = Result.getOrThrow(
        Upstream.resolve({ type: "host", url }, chosen === undefined ? {} : { profile: chosen })
      )
      const target = UpstreamProfile.targetOf(profile, { api: "chat_completions", model: "gpt 4/o" })
      return `${address.basePath}${target}`
    }
    const gemini = "https://generativelanguage.googleapis.com"
    assert.deepStrictEqual(
      [
        paths("http://127.0.0.1:4000"),
        paths("http://127.0.0.1:4000/litellm/v1/"),
        paths("https://openrouter.ai/api/v1"),
        paths("https://acme.openai.azure.com"),
        paths("https://acme.openai.azure.com/openai/v1"),
        paths("https://acme.openai.azure.com", { apiVersion: "2024-10-21" }),
        paths(gemini),
        paths(`${gemini}/v1beta/openai/`),
        paths("https://bedrock-runtime.us-east-1.amazonaws.com"),
        paths("https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi"),
        paths("https://api.example.com/v4", { name: "openai", pathPrefix: "" })
      ],
      [
        "/v1/chat/completions",
        "/litellm/v1/chat/completions",
        "/api/v1/chat/completions",
        "/openai/v1/chat/completions",
        "/openai/v1/chat/completions",
        "/openai/deployments/gpt%204%2Fo/chat/completions?api-version=2024-10-21",
        "/v1beta/openai/chat/completions",
        "/v1beta/openai/chat/completions",
        "/openai/v1/chat/completions",
        "/v1/projects/p/locations/global/endpoints/openapi/chat/completions",
        "/v4/chat/completions"
      ]
    )
  })

  it("adds the client's query to its own", () => {
    const profile = selected("h", { name: "anthropic", query: "a=b" })
    const call = { api: "messages", model: "m", query: "beta=true" } as const
    assert.strictEqual(UpstreamProfile.targetOf(profile, call), "/v1/messages?a=b&beta=true")
  })

  it("opens embeddings, and closes an API, on request", () => {
    const profile = selected("h", {
      name: "openai",
      embeddings: true,
      paths: { responses: null }
    })
    assert.deepStrictEqual(profile.paths, {
      chat_completions: "/chat/completions",
      embeddings: "/embeddings"
    })
  })

  it.prop(
    "accepts only names of models that cannot leave their place in a path",
    [Schema.String],
    ([text]) => {
      for (const model of [text, `gpt-${text}`]) {
        if (!UpstreamProfile.isPathModel(model)) continue
        const url = new URL(`http://h/openai/deployments/${encodeURIComponent(model)}/chat`)
        assert.strictEqual(url.pathname.split("/").length, 5)
      }
      assert.isFalse(UpstreamProfile.isPathModel(".."))
      assert.isFalse(UpstreamProfile.isPathModel("a/b"))
    }
  )

  const refusals: ReadonlyArray<readonly [UpstreamProfile.Choice, says: string]> = [
    [{ pathPrefix: "/v1/../admin" }, "a path such as"],
    [{ pathPrefix: "v1" }, "a path such as"],
    [{ paths: { responses: "/responses?x=1" } }, "a path such as"],
    [{ query: "a=b&" }, "a query such as"],
    [{ apiVersion: "2024-10-21" }, "which only azure reads"],
    [{ name: "azure", apiVersion: "1", query: "a=b" }, "both apiVersion and query"],
    [{ headers: { authorization: "Bearer x" } }, "sets the header authorization"],
    [{ headers: { "x-litellm-tags": "x" } }, "sets the header x-litellm-tags"],
    [{ headers: { cookie: "x" } }, "sets the header cookie"],
    [{ headers: { host: "x" } }, "sets the header host"],
    [{ headers: { "X-Title": "x" } }, "is invalid"],
    [{ headers: { "x-title": "a\r\nb" } }, "printable ASCII"],
    [{ bodyFields: { chat_completions: { messages: {} } } }, "already has a rule for"],
    [{ bodyFields: { chat_completions: { user: {} } } }, "who pays"],
    [{ bodyFields: { responses: { previous_response_id: {} } } }, "who pays"],
    [{ bodyFields: { messages: { metadata: {} } } }, "who pays"],
    [{ bodyFields: { chat_completions: { api_base: {} } } }, "who pays"],
    [{ bodyFields: { chat_completions: { models: {} } } }, "who pays"],
    [{ bodyFields: { chat_completions: { "a b": {} } } }, "invalid name"],
    [{ bodyFields: { chat_completions: { provider: { contains: {} } } } }, "no usable JSON Schema"],
    [
      {
        paths: { chat_completions: null, responses: null, messages: null, count_tokens: null }
      },
      "closes every API"
    ],
    [{ unknown: 1 } as UpstreamProfile.Choice, "is invalid"]
  ]
  for (const [choice, says] of refusals)
    it(`is refused with ${JSON.stringify(choice)}`, () => {
      assert.include(refused("h", choice).message, says)
    })
})
