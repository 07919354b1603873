/**
 * Describes the allowed fields of a request a second time, to check the result of the schemas independently.
 *
 * It knows neither the schemas nor types, only which names are allowed at which place. A name that it does not list is
 * a violation, whatever its value.
 */
import type * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"
import { account, type Json } from "./Bodies.ts"

/** Value of a name: another place, or one of these kinds. */
type Lies = "plain" | "free" | "data" | "base64" | "numbers" | (string & {})

type Places = Readonly<Record<string, Readonly<Record<string, Lies>>>>

const named = (lies: Lies, ...names: ReadonlyArray<string>) =>
  Object.fromEntries(names.map((name) => [name, lies]))
const plain = (...names: ReadonlyArray<string>) => named("plain", ...names)

const shared: Places = {
  cache: plain("type", "ttl"),
  thinking: plain("type", "budget_tokens", "display"),
  effort: plain("effort", "summary", "generate_summary", "max_tokens", "exclude", "enabled"),
  format: { ...plain("type", "syntax", "definition"), grammar: "grammar" },
  grammar: plain("syntax", "definition")
}

const chat: Places = {
  ...shared,
  body: {
    ...plain("model", "stream", "max_tokens", "max_completion_tokens", "n", "temperature", "top_p", "top_k"),
    ...plain(
      "min_p",
      "presence_penalty",
      "frequency_penalty",
      "repetition_penalty",
      "logprobs",
      "top_logprobs"
    ),
    ...plain("seed", "stop", "parallel_tool_calls", "modalities", "prompt_cache_key", "reasoning_effort"),
    ...plain("verbosity", "user"),
    messages: "message",
    stream_options: "stream_options",
    logit_bias: "numbers",
    response_format: "response_format",
    tools: "tool",
    tool_choice: "choice",
    functions: "function",
    function_call: "call",
    prediction: "prediction",
    reasoning: "effort",
    thinking: "thinking"
  },
  stream_options: plain("include_usage", "include_obfuscation"),
  message: {
    ...plain("role", "name", "refusal", "reasoning_content", "reasoning", "reasoning_text", "tool_call_id"),
    content: "part",
    tool_calls: "tool_call",
    function_call: "call",
    reasoning_details: "detail",
    thinking_blocks: "part",
    cache_control: "cache"
  },
  part: {
    ...plain("type", "text", "refusal", "thinking", "signature", "data"),
    image_url: "image",
    input_audio: "audio",
    file: "file",
    cache_control: "cache"
  },
  image: { url: "data", ...plain("detail") },
  audio: { data: "base64", ...plain("format") },
  file: { file_data: "data", ...plain("filename") },
  detail: plain("type", "id", "format", "index", "summary", "text", "data", "signature"),
  tool_call: {
    ...plain("id", "type", "index"),
    function: "call",
    custom: "call",
    provider_specific_fields: "signature",
    extra_content: "extra"
  },
  call: {
    ...plain("name", "arguments", "input"),
    provider_specific_fields: "signature",
    extra_content: "extra"
  },
  extra: { google: "signature" },
  signature: plain("thought_signature"),
  tool: { ...plain("type"), function: "function", custom: "custom", cache_control: "cache" },
  function: { ...plain("name", "description", "strict"), parameters: "free" },
  custom: { ...plain("name", "description"), format: "format" },
  choice: { ...plain("type"), function: "call", custom: "call", allowed_tools: "allowed" },
  allowed: { ...plain("mode"), tools: "choice" },
  response_format: { ...plain("type"), json_schema: "json_schema" },
  json_schema: { ...plain("name", "description", "strict"), schema: "free" },
  prediction: { ...plain("type"), content: "part" }
}

const responses: Places = {
  ...shared,
  effort: { ...shared["effort"], ...plain("context") },
  body: {
    ...plain(
      "model",
      "instructions",
      "include",
      "max_output_tokens",
      "max_tool_calls",
      "parallel_tool_calls"
    ),
    ...plain(
      "prompt_cache_key",
      "stream",
      "temperature",
      "top_logprobs",
      "top_p",
      "truncation",
      "user",
      "store"
    ),
    input: "item",
    reasoning: "effort",
    stream_options: "stream_options",
    text: "text",
    tool_choice: "choice",
    tools: "tool"
  },
  stream_options: plain("include_obfuscation"),
  item: {
    ...plain("type", "id", "status", "role", "phase", "call_id", "name", "namespace", "arguments", "input"),
    ...plain("encrypted_content"),
    content: "part",
    summary: "part",
    output: "part",
    tools: "tool"
  },
  part: {
    ...plain("type", "text", "refusal", "detail", "filename"),
    image_url: "data",
    file_data: "data",
    annotations: "annotation",
    logprobs: "logprob"
  },
  annotation: plain("type", "url", "title", "start_index", "end_index"),
  logprob: { ...plain("token", "logprob", "bytes"), top_logprobs: "logprob" },
  text: { ...plain("verbosity"), format: "text_format" },
  text_format: { ...plain("type", "name", "description", "strict"), schema: "free" },
  choice: { ...plain("type", "name", "mode"), tools: "choice" },
  tool: {
    ...plain("type", "name", "description", "strict"),
    parameters: "free",
    format: "format",
    tools: "tool"
  }
}

const counted = {
  ...plain("model"),
  messages: "message",
  system: "block",
  thinking: "thinking",
  tool_choice: "choice",
  tools: "tool",
  context_management: "management",
  output_config: "output",
  output_format: "json",
  cache_control: "cache"
}

const count: Places = {
  ...shared,
  body: counted,
  message: { ...plain("role"), content: "block" },
  block: {
    ...plain(
      "type",
      "text",
      "title",
      "context",
      "id",
      "name",
      "tool_use_id",
      "is_error",
      "thinking",
      "signature"
    ),
    ...plain("data", "tool_name"),
    source: "source",
    citations: "citation",
    content: "block",
    input: "free",
    cache_control: "cache"
  },
  source: { ...plain("type", "media_type", "data"), content: "block" },
  citation: {
    ...plain("enabled", "type", "cited_text", "document_index", "document_title", "source", "title"),
    ...plain("start_char_index", "end_char_index", "start_page_number", "end_page_number"),
    ...plain("start_block_index", "end_block_index", "search_result_index")
  },
  choice: plain("type", "name", "disable_parallel_tool_use"),
  tool: {
    ...plain("type", "name", "description", "strict", "eager_input_streaming", "defer_loading"),
    input_schema: "free",
    input_examples: "free",
    cache_control: "cache"
  },
  management: { edits: "edit" },
  edit: {
    ...plain("type", "exclude_tools", "clear_tool_inputs"),
    trigger: "amount",
    keep: "amount",
    clear_at_least: "amount"
  },
  amount: plain("type", "value"),
  output: { ...plain("effort"), format: "json" },
  json: { ...plain("type"), schema: "free" }
}

const messages: Places = {
  ...count,
  body: {
    ...counted,
    ...plain("max_tokens", "stop_sequences", "stream", "temperature", "top_k", "top_p"),
    metadata: "metadata"
  },
  metadata: plain("user_id")
}

const embeddings: Places = { body: plain("model", "input", "encoding_format", "dimensions", "user") }

const places: Readonly<Record<RoutePolicy.Api, Places>> = {
  chat_completions: chat,
  responses,
  messages,
  count_tokens: count,
  embeddings
}

/** Returns all violations in a body; empty if the body is allowed. */
export const violations = (
  api: RoutePolicy.Api,
  sent: Json,
  models: ReadonlyArray<string>
): ReadonlyArray<string> => {
  const found: Array<string> = []
  walk(places[api], "body", sent, "", found)
  if (!models.includes(sent["model"])) found.push("model is not one of the run's")
  if (sent["n"] !== undefined && sent["n"] !== null && sent["n"] !== 1) found.push("n is not 1")
  const payer = api === "messages" ? sent["metadata"]?.user_id : sent["user"]
  if (api !== "count_tokens" && payer !== account) found.push("another account pays")
  const { prompt_cache_key: key } = sent
  if (key !== undefined && key !== null && !/^[\w-]{43}$/u.test(key)) found.push("the agent's own cache key")
  if (api === "responses" && sent["store"] !== false) found.push("store is not false")
  for (const { type } of sent["tools"] ?? []) if (!isOwn(type)) found.push("a tool that the provider runs")
  for (const { tools, type } of Array.isArray(sent["input"]) ? sent["input"] : [])
    if (type === "additional_tools")
      for (const tool of tools)
        for (const inner of tool.type === "namespace" ? tool.tools : [tool])
          if (!isOwn(inner.type)) found.push("a tool in the conversation that the provider runs")
  return found
}

const isOwn = (type: unknown): boolean =>
  type === undefined || type === null || type === "function" || type === "custom"

const walk = (of: Places, lies: Lies, value: unknown, path: string, found: Array<string>): void => {
  if (typeof value === "string" && (/\0/u.test(value) || !value.isWellFormed()))
    found.push(`${path} is not well-formed`)
  if (Array.isArray(value)) {
    value.forEach((one, index) => walk(of, lies, one, `${path}[${index}]`, found))
  } else if (typeof value === "object" && value !== null) {
    for (const [name, inner] of Object.entries(value)) {
      const below = `${path}.${name}`
      if (lies === "free") walk(of, "free", inner, below, found)
      else if (lies === "numbers" && typeof inner === "number") continue
      else if (Object.hasOwn(of, lies) && Object.hasOwn(of[lies]!, name))
        walk(of, of[lies]![name]!, inner, below, found)
      else found.push(`${below} is not allowed`)
    }
  } else if (lies === "data" && !(typeof value === "string" && /^data:[^:\s]*$/iu.test(value))) {
    found.push(`${path} is an address`)
  } else if (lies === "base64" && !(typeof value === "string" && !/[:.]/u.test(value))) {
    found.push(`${path} is not base64`)
  }
}
