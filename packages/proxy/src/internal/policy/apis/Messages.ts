/** Schemas of the fields that may pass in a request to `POST /v1/messages` and its `count_tokens`. */
import * as Schema from "effect/Schema"
import { maybe, textOr, typed } from "../../SchemaFields.ts"
import { Amount, Base64, cached, Count, Flag, Free, MediaType, Text, Thinking } from "./Shapes.ts"

/** Reference to the passage of the input that a text quotes. */
const Citation = Schema.Struct({
  type: Schema.Literals([
    "char_location",
    "page_location",
    "content_block_location",
    "search_result_location"
  ]),
  cited_text: maybe(Text),
  document_index: maybe(Count),
  document_title: maybe(Text),
  start_char_index: maybe(Count),
  end_char_index: maybe(Count),
  start_page_number: maybe(Count),
  end_page_number: maybe(Count),
  start_block_index: maybe(Count),
  end_block_index: maybe(Count),
  search_result_index: maybe(Count),
  source: maybe(Text),
  title: maybe(Text)
})

const TextBlock = typed("text", { text: Text, citations: maybe(Schema.Array(Citation)), ...cached })

const Inline = typed("base64", { media_type: MediaType, data: Base64 })

const ImageBlock = typed("image", { source: Inline, ...cached })

const DocumentBlock = typed("document", {
  source: Schema.Union([
    Inline,
    typed("text", { media_type: MediaType, data: Text }),
    typed("content", { content: textOr(Schema.Union([TextBlock, ImageBlock])) })
  ]),
  title: maybe(Text),
  context: maybe(Text),
  citations: maybe(Schema.Struct({ enabled: maybe(Flag) })),
  ...cached
})

const SearchResultBlock = typed("search_result", {
  source: Text,
  title: Text,
  content: Schema.Array(TextBlock),
  citations: maybe(Schema.Struct({ enabled: maybe(Flag) })),
  ...cached
})

const ToolReference = typed("tool_reference", { tool_name: Text })

const ToolResultBlock = typed("tool_result", {
  tool_use_id: Text,
  content: maybe(
    textOr(Schema.Union([TextBlock, ImageBlock, DocumentBlock, SearchResultBlock, ToolReference]))
  ),
  is_error: maybe(Flag),
  ...cached
})

const Block = Schema.Union([
  TextBlock,
  ImageBlock,
  DocumentBlock,
  SearchResultBlock,
  typed("tool_use", { id: Text, name: Text, input: Free, ...cached }),
  ToolResultBlock,
  typed("thinking", { thinking: Text, signature: Text }),
  typed("redacted_thinking", { data: Text })
])

const Message = Schema.Struct({
  role: Schema.Literals(["user", "assistant", "system"]),
  content: textOr(Block)
})

const Tool = Schema.Struct({
  type: maybe(Schema.Literal("custom")),
  name: Text,
  description: maybe(Text),
  input_schema: Free,
  input_examples: maybe(Schema.Array(Free)),
  strict: maybe(Flag),
  eager_input_streaming: maybe(Flag),
  defer_loading: maybe(Flag),
  ...cached
})

const ToolChoice = Schema.Struct({
  type: Schema.Literals(["auto", "any", "tool", "none"]),
  name: maybe(Text),
  disable_parallel_tool_use: maybe(Flag)
})

const Amounts = Schema.Struct({ type: Text, value: maybe(Count) })

const JsonFormat = typed("json_schema", { schema: Free })

/** Rule by which the provider removes old turns from the model's context. */
const Edit = Schema.Struct({
  type: Schema.Literals(["clear_tool_uses_20250919", "clear_thinking_20251015"]),
  trigger: maybe(Amounts),
  keep: maybe(Schema.Union([Schema.Literal("all"), Amounts])),
  clear_at_least: maybe(Amounts),
  exclude_tools: maybe(Schema.Array(Text)),
  clear_tool_inputs: maybe(Schema.Union([Flag, Schema.Array(Text)]))
})

const counted = {
  model: maybe(Text),
  messages: Schema.Array(Message),
  system: maybe(textOr(TextBlock)),
  thinking: maybe(Thinking),
  tool_choice: maybe(ToolChoice),
  tools: maybe(Schema.Array(Tool)),
  context_management: maybe(Schema.Struct({ edits: maybe(Schema.Array(Edit)) })),
  output_config: maybe(Schema.Struct({ effort: maybe(Text), format: maybe(JsonFormat) })),
  output_format: maybe(JsonFormat),
  ...cached
}

export const CountBody = Schema.Struct(counted)

export const Body = Schema.Struct({
  ...counted,
  max_tokens: maybe(Count),
  stop_sequences: maybe(Schema.Array(Text)),
  stream: maybe(Flag),
  temperature: maybe(Amount),
  top_k: maybe(Count),
  top_p: maybe(Amount)
})
