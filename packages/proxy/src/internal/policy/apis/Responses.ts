/**
 * Schema of the fields that may pass in a request to `POST /v1/responses`.
 *
 * References to state that the provider keeps (an earlier response, a conversation, a file) are refused: this state
 * belongs to the account, and so to every run. An agent that sends its whole conversation does not need it.
 */
import * as Schema from "effect/Schema"
import { maybe, textOr, typed } from "../../SchemaFields.ts"
import { Amount, answerSchema, callable, Count, DataUri, Effort, Flag, Logprob, Text } from "./Shapes.ts"

/** Source of a text. Citations of files are not allowed, because they refer to state that the provider keeps. */
const Annotation = typed("url_citation", {
  url: Text,
  title: maybe(Text),
  start_index: maybe(Count),
  end_index: maybe(Count)
})

const InputText = typed("input_text", { text: Text })
const InputImage = typed("input_image", { image_url: DataUri, detail: maybe(Text) })
const InputFile = typed("input_file", { file_data: DataUri, filename: maybe(Text) })

const OutputText = typed("output_text", {
  text: Text,
  annotations: maybe(Schema.Array(Annotation)),
  logprobs: maybe(Schema.Array(Logprob))
})

const Refusal = typed("refusal", { refusal: Text })

const Content = textOr(Schema.Union([InputText, InputImage, InputFile, OutputText, Refusal]))

/** Result of a tool call. */
const Output = textOr(Schema.Union([InputText, InputImage, InputFile]))

const Format = Schema.Struct({
  type: Schema.Literals(["text", "grammar"]),
  syntax: maybe(Text),
  definition: maybe(Text)
})

const Tool = Schema.Union([
  typed("function", callable),
  typed("custom", { name: Text, description: maybe(Text), format: maybe(Format) })
])

/** Namespace of the agent's own tools. Every request of Codex's newer models uses one. */
const Namespace = typed("namespace", { name: Text, description: maybe(Text), tools: Schema.Array(Tool) })

const own = { id: maybe(Text), status: maybe(Text) }

const thought = {
  summary: Schema.Array(typed("summary_text", { text: Text })),
  content: maybe(
    Schema.Array(Schema.Struct({ type: Schema.Literals(["reasoning_text", "text"]), text: Text }))
  ),
  status: maybe(Text)
}

const Item = Schema.Union([
  typed("reasoning", { id: maybe(Text), ...thought, encrypted_content: Text }),
  // Without its content, an ID refers to state that the provider keeps.
  typed("reasoning", { ...thought, encrypted_content: Schema.optionalKey(Schema.Null) }),
  typed("function_call", { ...own, call_id: Text, name: Text, namespace: maybe(Text), arguments: Text }),
  typed("function_call_output", { ...own, call_id: Text, output: Output }),
  typed("custom_tool_call", { ...own, call_id: Text, name: Text, namespace: maybe(Text), input: Text }),
  typed("custom_tool_call_output", { ...own, call_id: Text, output: Output }),
  // Tools that the provider runs are refused here: only those in the request's own list are removed.
  typed("additional_tools", {
    ...own,
    role: Schema.Literal("developer"),
    tools: Schema.Array(Schema.Union([...Tool.members, Namespace]))
  }),
  typed("compaction", { ...own, encrypted_content: Text }),
  typed("compaction_summary", { ...own, encrypted_content: Text }),
  Schema.Struct({
    type: Schema.optionalKey(Schema.Literal("message")),
    ...own,
    role: Schema.Literals(["user", "assistant", "system", "developer"]),
    content: Content,
    phase: maybe(Text)
  })
])

const NamedTool = Schema.Struct({ type: Schema.Literals(["function", "custom"]), name: Text })

const ToolChoice = Schema.Union([
  Schema.Literals(["none", "auto", "required"]),
  NamedTool,
  typed("allowed_tools", { mode: Text, tools: Schema.Array(NamedTool) })
])

/** Additional data that a request may include in the answer. All other values concern tools that are not allowed. */
export const includes = ["reasoning.encrypted_content", "message.output_text.logprobs"] as const

const TextFormat = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["text", "json_object"]) }),
  typed("json_schema", answerSchema)
])

export const Body = Schema.Struct({
  model: maybe(Text),
  input: textOr(Item),
  instructions: maybe(Text),
  include: maybe(Schema.Array(Schema.Literals(includes))),
  max_output_tokens: maybe(Count),
  max_tool_calls: maybe(Count),
  parallel_tool_calls: maybe(Flag),
  prompt_cache_key: maybe(Text),
  reasoning: maybe(Schema.Struct({ ...Effort.fields, context: maybe(Text) })),
  stream: maybe(Flag),
  stream_options: maybe(Schema.Struct({ include_obfuscation: maybe(Flag) })),
  temperature: maybe(Amount),
  text: maybe(Schema.Struct({ format: maybe(TextFormat), verbosity: maybe(Text) })),
  tool_choice: maybe(ToolChoice),
  tools: maybe(Schema.Array(Tool)),
  top_logprobs: maybe(Count),
  top_p: maybe(Amount),
  truncation: maybe(Text)
})
