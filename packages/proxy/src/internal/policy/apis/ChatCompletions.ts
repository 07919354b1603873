/** Schema of the fields that may pass in a request to `POST /v1/chat/completions`. */
import * as Schema from "effect/Schema"
import { maybe, textOr, typed } from "../../SchemaFields.ts"
import {
  Amount,
  answerSchema,
  Base64,
  cached,
  callable,
  Count,
  DataUri,
  Effort,
  Flag,
  Free,
  MediaType,
  Text,
  Thinking
} from "./Shapes.ts"

const ThinkingPart = typed("thinking", { thinking: Text, signature: maybe(Text), ...cached })

const RedactedPart = typed("redacted_thinking", { data: Text })

const Part = Schema.Union([
  typed("text", { text: Text, ...cached }),
  typed("image_url", { image_url: Schema.Struct({ url: DataUri, detail: maybe(Text) }), ...cached }),
  typed("input_audio", { input_audio: Schema.Struct({ data: Base64, format: MediaType }) }),
  typed("file", { file: Schema.Struct({ file_data: DataUri, filename: maybe(Text) }), ...cached }),
  typed("refusal", { refusal: Text }),
  ThinkingPart,
  RedactedPart
])

const Content = textOr(Part)

const Signature = Schema.Struct({ thought_signature: maybe(Text) })

/** Gemini's signature, as LiteLLM and Gemini itself send it. Without it, the model does not recognize its own call. */
const signed = {
  provider_specific_fields: maybe(Signature),
  extra_content: maybe(Schema.Struct({ google: maybe(Signature) }))
}

/** A model's reasoning in OpenRouter's format, which the provider reads again. */
const ReasoningDetail = Schema.Struct({
  type: Text,
  id: maybe(Text),
  format: maybe(Text),
  index: maybe(Count),
  summary: maybe(Text),
  text: maybe(Text),
  data: maybe(Text),
  signature: maybe(Text)
})

const ToolCall = Schema.Union([
  Schema.Struct({
    id: Text,
    type: Schema.optionalKey(Schema.Literal("function")),
    function: Schema.Struct({ name: Text, arguments: Text, ...signed }),
    index: maybe(Count),
    ...signed
  }),
  typed("custom", { id: Text, custom: Schema.Struct({ name: Text, input: Text }) })
])

const Message = Schema.Union([
  Schema.Struct({
    role: Schema.Literals(["system", "developer", "user"]),
    content: Content,
    name: maybe(Text),
    ...cached
  }),
  Schema.Struct({
    role: Schema.Literal("assistant"),
    content: maybe(Content),
    refusal: maybe(Text),
    name: maybe(Text),
    tool_calls: maybe(Schema.Array(ToolCall)),
    function_call: maybe(Schema.Struct({ name: Text, arguments: Text })),
    reasoning_content: maybe(Text),
    reasoning: maybe(Text),
    reasoning_text: maybe(Text),
    reasoning_details: maybe(Schema.Array(ReasoningDetail)),
    thinking_blocks: maybe(Schema.Array(Schema.Union([ThinkingPart, RedactedPart]))),
    ...cached
  }),
  Schema.Struct({
    role: Schema.Literal("tool"),
    tool_call_id: Text,
    content: Content,
    name: maybe(Text),
    ...cached
  }),
  Schema.Struct({ role: Schema.Literal("function"), name: Text, content: Schema.NullOr(Content) })
])

const Format = Schema.Struct({
  type: Schema.Literals(["text", "grammar"]),
  grammar: maybe(Schema.Struct({ syntax: Text, definition: Text }))
})

const Tool = Schema.Union([
  typed("function", { function: Schema.Struct(callable), ...cached }),
  typed("custom", { custom: Schema.Struct({ name: Text, description: maybe(Text), format: maybe(Format) }) })
])

const NamedTool = Schema.Union([
  typed("function", { function: Schema.Struct({ name: Text }) }),
  typed("custom", { custom: Schema.Struct({ name: Text }) })
])

const ToolChoice = Schema.Union([
  Schema.Literals(["none", "auto", "required"]),
  ...NamedTool.members,
  typed("allowed_tools", { allowed_tools: Schema.Struct({ mode: Text, tools: Schema.Array(NamedTool) }) })
])

const ResponseFormat = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["text", "json_object"]) }),
  typed("json_schema", { json_schema: Schema.Struct(answerSchema) })
])

export const Body = Schema.Struct({
  model: maybe(Text),
  messages: Schema.Array(Message),
  stream: maybe(Flag),
  stream_options: maybe(Schema.Struct({ include_usage: maybe(Flag), include_obfuscation: maybe(Flag) })),
  max_tokens: maybe(Count),
  max_completion_tokens: maybe(Count),
  n: maybe(Count),
  temperature: maybe(Amount),
  top_p: maybe(Amount),
  top_k: maybe(Amount),
  min_p: maybe(Amount),
  presence_penalty: maybe(Amount),
  frequency_penalty: maybe(Amount),
  repetition_penalty: maybe(Amount),
  logit_bias: maybe(Schema.Record(Text, Amount)),
  logprobs: maybe(Flag),
  top_logprobs: maybe(Count),
  seed: maybe(Schema.Int),
  stop: maybe(textOr(Text)),
  response_format: maybe(ResponseFormat),
  tools: maybe(Schema.Array(Tool)),
  tool_choice: maybe(ToolChoice),
  parallel_tool_calls: maybe(Flag),
  functions: maybe(
    Schema.Array(Schema.Struct({ name: Text, description: maybe(Text), parameters: maybe(Free) }))
  ),
  function_call: maybe(Schema.Union([Schema.Literals(["none", "auto"]), Schema.Struct({ name: Text })])),
  modalities: maybe(Schema.Array(Schema.Literal("text"))),
  prediction: maybe(typed("content", { content: Content })),
  prompt_cache_key: maybe(Text),
  reasoning: maybe(Effort),
  reasoning_effort: maybe(Text),
  thinking: maybe(Thinking),
  verbosity: maybe(Text)
})
