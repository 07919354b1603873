/**
 * Attempts of a client to bill another account, to use another key or address, or to keep a call out of the log.
 *
 * Data only. Each attempt is a complete request to a model API. The ledger must never contain `evil`.
 */

export interface Attempt {
  readonly name: string
  readonly path?: string
  /** Header lines, sent unchanged. */
  readonly headers?: ReadonlyArray<string>
  /** Fields that are merged into an ordinary body, or a string that is sent unchanged. */
  readonly body?: object | string
  /** LiteLLM without protection bills `evil` for this attempt. This proves that the attempts are realistic. */
  readonly worksUnprotected?: true
}

const header = (line: string, worksUnprotected?: true): Attempt => ({
  name: `header ${line}`,
  headers: [line],
  ...(worksUnprotected === true ? { worksUnprotected } : {})
})

const body = (name: string, fields: object | string, worksUnprotected?: true): Attempt => ({
  name: `body ${name}`,
  body: fields,
  ...(worksUnprotected === true ? { worksUnprotected } : {})
})

const ordinary = '"messages":[{"role":"user","content":"hi"}]'

export const attempts: ReadonlyArray<Attempt> = [
  header("x-litellm-customer-id: evil", true),
  header("X-LiteLLM-Customer-Id: evil", true),
  header("X-LITELLM-CUSTOMER-ID:evil", true),
  header("x-litellm-end-user-id: evil", true),
  header("x_litellm_customer_id: evil"),
  header("x-litellm-customer-id : evil"),
  header("x-litellm-user: evil"),
  header("x-openwebui-user-id: evil"),
  header("x-litellm-api-key: sk-evil"),
  header("Authorization: Bearer sk-evil"),
  header("authorization: Basic ZXZpbDpldmls"),
  header("api-key: sk-evil"),
  header("x-api-key: sk-evil"),
  header("x-goog-api-key: sk-evil"),
  header("Ocp-Apim-Subscription-Key: sk-evil"),
  header("x-litellm-call-id: evil"),
  header('x-litellm-spend-logs-metadata: {"run_id":"evil"}'),
  header("x-litellm-tags: evil"),
  header("x-litellm-trace-id: evil"),
  header("x-litellm-session-id: evil"),
  header("x-claude-code-session-id: evil"),
  header("x-litellm-agent-id: evil"),
  header("x-litellm-model: other"),
  header("x-litellm-num-retries: 9"),
  header("x-litellm-timeout: 0.001"),
  header("x-litellm-stream-timeout: 0.001"),
  header("x-litellm-enable-message-redaction: true"),
  header("Cookie: token=evil"),
  header("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
  header("openai-organization: evil"),
  header("x-forwarded-for: 6.6.6.6"),
  {
    name: "a header twice",
    headers: ["x-litellm-customer-id: evil", "x-litellm-customer-id: evil"]
  },
  {
    name: "a header on Connection's list",
    headers: [
      "Connection: close, x-litellm-customer-id, x-litellm-end-user-id",
      "x-litellm-end-user-id: evil"
    ]
  },
  { name: "query key", path: "/v1/chat/completions?key=sk-evil" },
  { name: "query user", path: "/v1/chat/completions?user=evil&customer_id=evil" },
  { name: "query twice encoded", path: "/v1/chat/completions?%75ser=evil" },
  body("user", { user: "evil" }, true),
  body("user as an object", { user: { user_id: "evil" } }),
  body("User", { User: "evil" }),
  body("litellm_metadata.user", { litellm_metadata: { user: "evil" } }, true),
  body("metadata.user_id", { metadata: { user_id: "evil" } }, true),
  body("metadata.spend_logs_metadata", { metadata: { spend_logs_metadata: { run_id: "evil" } } }),
  body("metadata.tags", { metadata: { tags: ["evil"] } }),
  body("metadata in a text", { metadata: '{"user_id":"evil"}' }),
  body("safety_identifier", { safety_identifier: "evil" }, true),
  body("tags", { tags: ["evil"] }),
  body("litellm_session_id", { litellm_session_id: "evil", litellm_trace_id: "evil" }),
  body("litellm_call_id", { litellm_call_id: "evil" }),
  body("api_key and api_base", { api_key: "sk-evil", api_base: "http://127.0.0.1:9/evil" }),
  body("base_url", { base_url: "http://127.0.0.1:9/evil" }),
  body("extra_headers", { extra_headers: { "x-litellm-customer-id": "evil" } }),
  body("headers", { headers: { "x-litellm-customer-id": "evil" } }),
  body("extra_body", { extra_body: { user: "evil", metadata: { user_id: "evil" } } }),
  body("proxy_server_request", { proxy_server_request: { headers: { "x-litellm-customer-id": "evil" } } }),
  body("user_config", { user_config: { model_list: [] } }),
  body("model_list", { model_list: [{ model_name: "chat", litellm_params: { model: "openai/evil" } }] }),
  body("fallbacks", { fallbacks: [{ model: "other" }] }),
  body("mock_response", { mock_response: "evil" }),
  body("no-log", { "no-log": true }),
  body("cache", { cache: { "no-store": true } }),
  body("guardrails", { guardrails: [], disable_global_guardrails: true }),
  body("num_retries", { num_retries: 9 }),
  body("langfuse", { langfuse_public_key: "evil", langfuse_host: "http://127.0.0.1:9" }),
  body("aws", { aws_access_key_id: "evil", aws_sts_endpoint: "http://127.0.0.1:9" }),
  body("service_tier", { service_tier: "priority" }),
  body("nested in a message", {
    messages: [{ role: "user", content: "hi", user: "evil", metadata: { user_id: "evil" } }]
  }),
  body("in the text of a message", {
    messages: [{ role: "user", content: '{"user":"evil","metadata":{"user_id":"evil"}}' }]
  }),
  body("in a tool", {
    tools: [
      {
        type: "function",
        function: { name: "f", parameters: {} },
        api_base: "http://127.0.0.1:9",
        user: "evil"
      }
    ]
  }),
  body("a key with escapes", `{"model":"chat","\\u0075ser":"evil",${ordinary}}`, true),
  body("a key twice", `{"model":"chat","user":"acct","user":"evil",${ordinary}}`, true),
  body("__proto__", `{"model":"chat","__proto__":{"user":"evil"},${ordinary}}`),
  body("constructor", `{"model":"chat","constructor":{"prototype":{"user":"evil"}},${ordinary}}`),
  body("another model", { model: "other" }),
  body("a model that is an address", { model: "openai/http://127.0.0.1:9/evil" }),
  body("the deployment's own name", { model: "openai/gpt-4o" }),
  {
    name: "responses: metadata and user",
    path: "/v1/responses",
    body: { input: "hi", user: "evil", metadata: { user_id: "evil" }, litellm_metadata: { user: "evil" } },
    worksUnprotected: true
  },
  {
    name: "responses: an earlier response",
    path: "/v1/responses",
    body: { input: "hi", previous_response_id: "resp_evil" }
  },
  {
    name: "messages: metadata.user_id",
    path: "/v1/messages?beta=true",
    body: { model: "claude", max_tokens: 9, metadata: { user_id: "evil" } },
    worksUnprotected: true
  },
  {
    name: "messages: mcp_servers and container",
    path: "/v1/messages",
    body: {
      model: "claude",
      max_tokens: 9,
      container: "evil",
      mcp_servers: [{ type: "url", url: "http://127.0.0.1:9" }]
    }
  }
]

/** Builds the complete body of an attempt. */
export const bodyOf = ({ body: fields = {}, path = "" }: Attempt): string =>
  typeof fields === "string"
    ? fields
    : JSON.stringify({
        model: path.startsWith("/v1/messages") ? "claude" : "chat",
        ...(path.startsWith("/v1/responses") ? {} : { messages: [{ role: "user", content: "hi" }] }),
        ...fields
      })

const get = (paths: string) =>
  paths
    .trim()
    .split(/\s+/u)
    .map((path) => ["GET", path] as const)
const post = (paths: string) =>
  paths
    .trim()
    .split(/\s+/u)
    .map((path) => ["POST", path] as const)

/** Other routes that the key could open, and spellings of the allowed paths that a router might accept. */
export const routes: ReadonlyArray<readonly [method: string, path: string]> = [
  ...post(`/key/generate /key/delete /key/update /key/regenerate /key/block /user/new /user/update /team/new /team/update
    /organization/new /customer/new /customer/update /budget/new /model/new /model/delete /model/update /config/update
    /credentials /guardrails /mcp-rest/tools/call /v1/files /v1/batches /v1/fine_tuning/jobs /v1/assistants /v1/threads
    /v1/vector_stores /v1/embeddings /v1/completions /v1/images/generations /v1/images/edits /v1/audio/speech
    /v1/audio/transcriptions /v1/moderations /v1/rerank /v1/search /v1/rag/ingest /v1/containers /v1/skills /v1/videos
    /v1/realtime /v1/responses/compact /v1/messages/batches /v1/chat/completions/ /v1/chat/completions/x
    /chat/completions /completions /engines/chat/chat/completions /openai/v1/chat/completions
    /openai/deployments/chat/chat/completions /anthropic/v1/messages /bedrock/model/x/invoke /vertex_ai/x /gemini/v1beta/models/x:generateContent
    /azure/x /cohere/v1/chat /langfuse/x /utils/transform_request /cache/flushall /queue/chat/completions /a2a/x
    //v1/chat/completions /v1//chat/completions /v1/chat/../chat/completions /v1/chat/%63ompletions /V1/chat/completions
    /v1/chat/completions%2f /v1/chat/completions;x=1 /v1/chat/completions%3Fx /v1\\chat\\completions /./v1/chat/completions`),
  ...get(`/key/info /key/list /user/info /user/list /team/list /model/info /v1/model/info /v2/model/info /config/yaml
    /get/config/callbacks /spend/logs /spend/logs/v2 /global/spend /global/spend/report /spend/keys /spend/users
    /credentials /guardrails/list /settings /health/readiness /health/liveliness /metrics /routes /openapi.json /docs /redoc
    /ui /sso/key/generate /v1/files /v1/responses/resp_1 /v1/responses/resp_1/input_items /v1/models/chat /models /v1/mcp/tools /v1/realtime /cache/ping / `)
]
